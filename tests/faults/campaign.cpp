#include "tests/faults/campaign.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <new>
#include <stdexcept>
#include <thread>

namespace mpzero::faults {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kNoteBytes = 1000;
constexpr int kMaxWorkers = 64;
constexpr auto kPause = std::chrono::milliseconds(20);

// What a worker reports to the process that started it.
struct Slot {
  Outcome outcome = Outcome::kNotTried;
  char note[kNoteBytes] = {};
};
struct Progress {
  std::atomic<int64_t> fault{-1};  // the fault being tried
  std::atomic<int64_t> since{0};   // tick count of Clock
};
struct Board {
  std::atomic<size_t> next{0};
  std::atomic<size_t> done{0};
  Progress workers[kMaxWorkers];
};

template <typename T>
T* map_shared(size_t count) {
  void* memory = ::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return new (memory) T[count];
}

// The size of this process's address space in bytes.
int64_t address_space() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

class Workers {
 public:
  Workers(const std::vector<Fault>& faults, const CampaignOptions& options)
      : faults_(faults), options_(options), board_(map_shared<Board>(1)), slots_(map_shared<Slot>(faults.size())) {}
  ~Workers() {
    ::munmap(slots_, faults_.size() * sizeof(Slot));
    ::munmap(board_, sizeof(Board));
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  std::vector<Verdict> run() {
    const int count = std::clamp(options_.workers, 1, kMaxWorkers);
    pids_.assign(static_cast<size_t>(count), -1);
    for (size_t i = 0; i < pids_.size(); ++i) start(i);
    while (std::any_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid > 0; })) {
      for (size_t i = 0; i < pids_.size(); ++i) look_after(i);
      show_progress();
      std::this_thread::sleep_for(kPause);
    }
    if (::isatty(STDERR_FILENO) != 0) std::fputs("\r\033[K", stderr);
    std::vector<Verdict> verdicts;
    for (size_t i = 0; i < faults_.size(); ++i) verdicts.push_back({slots_[i].outcome, slots_[i].note});
    return verdicts;
  }

 private:
  fs::path scratch_of(size_t worker) const { return options_.scratch / fmt::format("worker-{}", worker); }
  fs::path errors_of(size_t worker) const { return options_.scratch / fmt::format("worker-{}.err", worker); }

  void start(size_t worker) {
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("fork failed");
    if (pid > 0) {
      ::setpgid(pid, pid);
      pids_[worker] = pid;
      return;
    }
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    work(worker);
    ::_exit(0);
  }

  void work(size_t worker) {
    const int errors = ::open(errors_of(worker).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ::dup2(errors, STDERR_FILENO);
    std::error_code ignored;
    fs::remove_all(scratch_of(worker), ignored);
    fs::create_directories(scratch_of(worker));
    if (options_.memory_bytes > 0) {
      const auto bytes = static_cast<rlim_t>(address_space() + options_.memory_bytes);
      const rlimit limit{bytes, bytes};
      ::setrlimit(RLIMIT_AS, &limit);
    }
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    Progress& progress = board_->workers[worker];
    for (size_t i = board_->next++; i < faults_.size(); i = board_->next++) {
      progress.since = Clock::now().time_since_epoch().count();
      progress.fault = static_cast<int64_t>(i);
      Verdict verdict;
      try {
        verdict = faults_[i].target->try_fault(faults_[i].kind, faults_[i].what, scratch_of(worker));
      } catch (const std::exception& error) {
        verdict = {Outcome::kCrash, std::string("an unexpected exception: ") + error.what()};
      }
      note(i, verdict.outcome, verdict.note);
      progress.fault = -1;
      ++board_->done;
    }
  }

  void note(size_t fault, Outcome outcome, const std::string& text) {
    const size_t size = std::min(text.size(), kNoteBytes - 1);
    std::memcpy(slots_[fault].note, text.data(), size);
    slots_[fault].note[size] = '\0';
    slots_[fault].outcome = outcome;
  }

  // Its last message, if it left one.
  std::string words_of(size_t worker) const {
    std::ifstream file(errors_of(worker));
    std::string words, line;
    while (std::getline(file, line)) words += (words.empty() ? ": " : " ") + line;
    return words;
  }

  void look_after(size_t worker) {
    pid_t& pid = pids_[worker];
    if (pid <= 0) return;
    Progress& progress = board_->workers[worker];
    const int64_t fault = progress.fault;
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == pid) {
      // Processes that the worker started are killed with it.
      ::kill(-pid, SIGKILL);
      pid = -1;
      if (fault < 0) {
        if (status != 0) throw std::runtime_error("a worker ended between two faults" + words_of(worker));
        return;
      }
      const std::string how =
          WIFSIGNALED(status) ? ::strsignal(WTERMSIG(status)) : fmt::format("exit status {}", WEXITSTATUS(status));
      replace(worker, fault, Outcome::kCrash, how + words_of(worker));
    } else if (fault >= 0) {
      const Clock::time_point since{Clock::duration(progress.since.load())};
      if (Clock::now() - since < options_.limit || progress.fault != fault) return;
      ::kill(-pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      replace(worker, fault, Outcome::kHang, fmt::format("no end after {} s", options_.limit.count()));
    }
  }

  void replace(size_t worker, int64_t fault, Outcome outcome, const std::string& text) {
    note(static_cast<size_t>(fault), outcome, text);
    board_->workers[worker].fault = -1;
    ++board_->done;
    start(worker);
  }

  void show_progress() {
    if (::isatty(STDERR_FILENO) == 0) return;
    std::fputs(fmt::format("\r{} of {} faults", board_->done.load(), faults_.size()).c_str(), stderr);
  }

  const std::vector<Fault>& faults_;
  const CampaignOptions& options_;
  Board* board_;
  Slot* slots_;
  std::vector<pid_t> pids_;
};

}  // namespace

std::vector<Verdict> try_faults(const std::vector<Fault>& faults, const CampaignOptions& options) {
  if (faults.empty()) return {};
  return Workers(faults, options).run();
}

}  // namespace mpzero::faults
