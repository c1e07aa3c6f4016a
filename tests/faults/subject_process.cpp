#include "tests/faults/subject_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>

#include "base/error.hpp"
#include "tests/faults/readings.hpp"
#include "tests/faults/saves.hpp"

namespace mpzero::faults {
namespace fs = std::filesystem;
namespace {

constexpr int kCannotStart = 127;

const std::map<std::string, int>& errnos() {
  static const std::map<std::string, int> names = {
      {"EACCES", EACCES}, {"EDQUOT", EDQUOT}, {"EINTR", EINTR},   {"EINVAL", EINVAL}, {"EIO", EIO},
      {"EMFILE", EMFILE}, {"ENOLCK", ENOLCK}, {"ENOSPC", ENOSPC}, {"ENOSYS", ENOSYS}, {"EOPNOTSUPP", EOPNOTSUPP},
      {"EPERM", EPERM},   {"EROFS", EROFS},   {"ESTALE", ESTALE}};
  return names;
}

// Replaces the names of errnos by numbers, which the library requires.
std::string with_numbers(std::string fault) {
  for (const auto& [name, number] : errnos()) {
    const std::string word = fmt::format(":{}", name);
    for (size_t at = fault.find(word); at != std::string::npos; at = fault.find(word, at + 1)) {
      fault = fmt::format("{}:{}{}", fault.substr(0, at), number, fault.substr(at + word.size()));
    }
  }
  return fault;
}

}  // namespace

SubjectProcess::SubjectProcess(const fs::path& programs, const std::vector<std::string>& words, const DiskFault& fault,
                               const fs::path& scratch)
    : scratch_(scratch) {
  fs::create_directories(scratch);
  write_bytes(file("counts"), std::string((kDiskCalls + 1) * sizeof(uint64_t), '\0'));
  const std::string program = programs / "fault_subject";
  std::vector<std::string> environment = {
      fmt::format("LD_PRELOAD={}", (programs / "libdisk_faults.so").string()),
      fmt::format("MPZERO_FAULT={}", with_numbers(fault.what)),
      fmt::format("MPZERO_FAULT_FOLDER={}", fault.folder.string()),
      fmt::format("MPZERO_FAULT_PATH={}", fault.path),
      fmt::format("MPZERO_FAULT_COUNTS={}", file("counts").string()),
  };
  if (const char* libraries = std::getenv("LD_LIBRARY_PATH")) {
    environment.push_back(fmt::format("LD_LIBRARY_PATH={}", libraries));
  }
  std::vector<std::string> arguments = {program};
  arguments.insert(arguments.end(), words.begin(), words.end());
  std::vector<char*> argv, envp;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  for (std::string& variable : environment) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const int out = ::open(file("out").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const int err = ::open(file("err").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    ::execve(program.c_str(), argv.data(), envp.data());
    ::_exit(kCannotStart);
  }
  ::close(out);
  ::close(err);
}

SubjectProcess::~SubjectProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, &status_, 0);
}

fs::path SubjectProcess::file(const char* name) const { return scratch_ / fmt::format("subject.{}", name); }

bool SubjectProcess::wait_for_stop() {
  if (::waitpid(pid_, &status_, WUNTRACED) != pid_) throw std::runtime_error("waitpid failed");
  if (WIFSTOPPED(status_)) return true;
  pid_ = -1;
  return false;
}

void SubjectProcess::go_on() { ::kill(pid_, SIGCONT); }

void SubjectProcess::wait() {
  if (pid_ <= 0) return;
  if (::waitpid(pid_, &status_, 0) != pid_) throw std::runtime_error("waitpid failed");
  pid_ = -1;
  if (WIFEXITED(status_) && WEXITSTATUS(status_) == kCannotStart)
    throw std::runtime_error("fault_subject cannot start");
}

bool SubjectProcess::succeeded() const { return WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }
bool SubjectProcess::was_killed() const { return WIFSIGNALED(status_) && WTERMSIG(status_) == SIGKILL; }

std::array<uint64_t, kDiskCalls + 1> SubjectProcess::calls() const {
  std::array<uint64_t, kDiskCalls + 1> counts{};
  const std::string bytes = read_bytes(file("counts"));
  if (bytes.size() != sizeof counts) throw std::runtime_error("the counts of the library are missing");
  std::memcpy(counts.data(), bytes.data(), sizeof counts);
  return counts;
}

std::string SubjectProcess::output() const { return read_bytes(file("out")); }

Verdict SubjectProcess::judge(const fs::path& place) const {
  const std::string text = read_bytes(file("err"));
  if (WIFSIGNALED(status_)) return {Outcome::kCrash, fmt::format("{}: {}", ::strsignal(WTERMSIG(status_)), text)};
  try {
    if (WEXITSTATUS(status_) == kDamagedExitCode) throw Damaged(text);
    if (WEXITSTATUS(status_) == kUserErrorExitCode) throw UserError(text);
    if (WEXITSTATUS(status_) == kFailureExitCode) throw Failure(text);
    throw std::runtime_error(text);
  } catch (...) {
    return judge_exception(place, /*system_failed=*/true);
  }
}

}  // namespace mpzero::faults
