#include "io/locks/folder_owner.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/host_name.hpp"
#include "base/json.hpp"
#include "io/checkpoint/run_record.hpp"
#include "io/files/atomic_file.hpp"
#include "io/files/retry.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(OwnerRecord, host, kernel, pid, start, run, job, folder, token, count)
using std::chrono::milliseconds;
namespace {

// All records have equal length, so that readers never see the end of an older, longer record.
constexpr size_t kRecordBytes = 1024;
constexpr JsonLimits kRecordLimits{.bytes = kRecordBytes};
constexpr std::string_view kPrefix = ".owner-";
constexpr milliseconds kLook(1000);
// Upper bound on file numbers. Larger numbers are ignored.
constexpr int64_t kMaxNumber = 1'000'000'000'000;

std::string this_kernel() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code error;
  const std::string pids = fs::read_symlink("/proc/self/ns/pid", error).string();
  return boot.empty() || pids.empty() ? "" : boot + " " + pids;
}

// Returns the device and inode, or an empty string if unknown.
std::string identity_of(const fs::path& folder) {
  struct stat status {};
  return ::stat(folder.c_str(), &status) == 0 ? fmt::format("{}:{}", status.st_dev, status.st_ino) : "";
}

std::string to_text(const OwnerRecord& owner) {
  std::string text = json(owner).dump(-1, ' ', true, json::error_handler_t::replace);
  text.resize(kRecordBytes - 1, ' ');
  return text + '\n';
}

// Returns std::nullopt if the text is not a complete record.
std::optional<OwnerRecord> parse(const std::string& text) {
  try {
    json record = parse_json(text, kRecordLimits);
    record.emplace("folder", "");  // missing in older records
    return record.get<OwnerRecord>();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

struct Seen {
  bool runs = false;
  int64_t start = 0;
};

// Returns std::nullopt if no process with this PID is visible.
std::optional<Seen> look_for(int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  // The process name in parentheses may contain any character. The start time is the 20th field after the name.
  constexpr int kFieldsBefore = 19;
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string state, skipped;
  fields >> state;
  for (int i = 1; i < kFieldsBefore; ++i) fields >> skipped;
  Seen seen;
  if (!(fields >> seen.start)) return std::nullopt;
  // Zombies remain visible until the parent reaps them.
  seen.runs = state != "Z" && state != "X";
  return seen;
}

enum class Life : uint8_t { kAlive, kDead, kUnknown };

// Returns the state of the process with this PID and start time. `start` is 0 if unknown.
Life life_of_process(int64_t pid, int64_t start) {
  if (const auto seen = look_for(pid)) {
    if (!seen->runs) return Life::kDead;
    if (start == 0 || seen->start == 0) return Life::kUnknown;
    return seen->start == start ? Life::kAlive : Life::kDead;
  }
  // Processes of other users may be hidden in /proc (hidepid).
  return ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH ? Life::kDead : Life::kUnknown;
}

Life life_of(const std::optional<OwnerRecord>& owner, const fs::path& folder) {
  if (!owner || owner->kernel.empty() || owner->kernel != this_kernel()) return Life::kUnknown;
  if (!owner->folder.empty() && owner->folder != identity_of(folder)) return Life::kDead;
  return life_of_process(owner->pid, owner->start);
}

std::string show(const std::optional<OwnerRecord>& owner) { return owner ? show_owner(*owner) : "an unknown process"; }

}  // namespace

OwnerRecord this_owner(const std::string& job) {
  return {.host = host_name(),
          .kernel = this_kernel(),
          .pid = ::getpid(),
          .start = look_for(::getpid()).value_or(Seen{}).start,
          .run = "",
          .job = job,
          .folder = "",
          .token = new_run_id(),
          .count = 0};
}

std::string show_owner(const OwnerRecord& owner) {
  std::string details;
  if (!owner.run.empty()) details += show_run(owner.run);
  if (!owner.job.empty()) details += (details.empty() ? "job " : ", job ") + owner.job;
  return fmt::format("process {} on {}{}", owner.pid, owner.host, details.empty() ? "" : fmt::format(" ({})", details));
}

WaitingClock system_clock() {
  return {
      .now =
          [] { return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now().time_since_epoch()); },
      .wait = [](milliseconds time) { std::this_thread::sleep_for(time); }};
}

FolderOwner::FolderOwner(fs::path folder, OwnerRecord self, const Options& options, FileSystem& files)
    : folder_(std::move(folder)), files_(files), self_(std::move(self)) {
  self_.folder = identity_of(folder_);
  for (;;) {
    const std::optional<Found> found = last();
    if (found && !options.has_lock) {
      watch(*found, options);
      // Another process may have claimed the folder in the meantime.
      const std::optional<Found> now = last();
      if (!now || now->number != found->number || now->text != found->text) continue;
    }
    if (try_to_claim(found)) break;
  }
  for (const int64_t number : numbers()) {
    // Errors are ignored because the file belongs to a dead owner and has a smaller number.
    if (number < number_) (void)files_.remove_file(path_of(number));
  }
}

FolderOwner::~FolderOwner() { remove_own(); }

fs::path FolderOwner::path_of(int64_t number) const { return folder_ / fmt::format("{}{}", kPrefix, number); }

std::vector<int64_t> FolderOwner::numbers() const {
  std::vector<int64_t> numbers;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    int64_t number = 0;
    const char* last = name.data() + name.size();
    const auto [stop, failed] = std::from_chars(name.data() + kPrefix.size(), last, number);
    if (failed == std::errc{} && stop == last && number > 0 && number < kMaxNumber) numbers.push_back(number);
  }
  if (error) throw_system_error("list", folder_, error.value());
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::optional<std::string> FolderOwner::read(int64_t number) const {
  try {
    std::string text;
    retry_reading([&] { text = read_text_file(path_of(number), kRecordBytes); });
    return text;
  } catch (const Damaged&) {
    return "";  // truncated during the read, or not a record
  } catch (const Error& error) {
    if (error.system_error() == ENOENT) return std::nullopt;
    if (error.system_error() == ESTALE) return "";
    throw;
  }
}

std::optional<FolderOwner::Found> FolderOwner::last() const {
  for (;;) {
    const std::vector<int64_t> all = numbers();
    if (all.empty()) return std::nullopt;
    if (std::optional<std::string> text = read(all.back())) return Found{all.back(), std::move(*text)};
  }
}

void FolderOwner::watch(const Found& found, const Options& options) const {
  const std::optional<OwnerRecord> owner = parse(found.text);
  const Life life = life_of(owner, folder_);
  if (life == Life::kDead) return;
  const auto refuse = [&](const std::string& evidence) {
    throw_user_error("another run ({}) is using {}: {}; stop it or wait until it ends{}", show(owner), folder_.string(),
                     evidence, options.remedy);
  };
  if (life == Life::kAlive) refuse(fmt::format("that run is recorded in {}", path_of(found.number).string()));
  if (options.say) {
    options.say(fmt::format("{} belongs to {}: waiting {} s to determine whether the process is still alive",
                            path_of(found.number).string(), show(owner), kWatch.count() / 1000));
  }
  const milliseconds start = options.clock.now();
  while (options.clock.now() - start < kWatch) {
    options.clock.wait(kLook);
    const std::optional<std::string> text = read(found.number);
    if (!text) return;
    if (*text == found.text) continue;
    const std::optional<OwnerRecord> now = parse(*text);
    // The file belongs to a new claim, or the record was incomplete.
    if (!owner || !now || now->token != owner->token) return;
    refuse(fmt::format("that run renewed {} within {} s", path_of(found.number).string(),
                       (options.clock.now() - start).count() / 1000));
  }
}

bool FolderOwner::is_last(int64_t number) const {
  const std::vector<int64_t> all = numbers();
  return !all.empty() && all.back() == number;
}

bool FolderOwner::try_to_claim(const std::optional<Found>& heir_to) {
  const int64_t number = heir_to ? heir_to->number + 1 : 1;
  try {
    file_.emplace(File::create_new(path_of(number), files_));
  } catch (const Error& error) {
    if (error.system_error() == EEXIST) return false;
    throw;
  }
  number_ = number;
  try {
    write();
    const bool heir = !heir_to || read(heir_to->number) == heir_to->text;
    if (heir && is_last(number)) return true;
  } catch (...) {
    remove_own();
    throw;
  }
  remove_own();
  return false;
}

void FolderOwner::write() {
  const std::string text = to_text(self_);
  file_->write(0, std::as_bytes(std::span(text)));
  file_->sync();
}

void FolderOwner::renew() {
  const std::scoped_lock lock(mutex_);
  const fs::path own = path_of(number_);
  const auto is_own = [&] {
    const std::optional<std::string> text = number_ > 0 ? read(number_) : std::nullopt;
    const std::optional<OwnerRecord> record = text ? parse(*text) : std::nullopt;
    return record && record->token == self_.token;
  };
  bool owned = is_own();
  if (owned) {
    ++self_.count;
    write();
    owned = is_last(number_);
  }
  if (owned) return;
  const std::optional<Found> now = last();
  if (!now || now->number == number_) {
    throw FolderTaken(
        fmt::format("{} was removed, so another process may have used {}: this run no longer writes to the folder",
                    own.string(), folder_.string()));
  }
  throw FolderTaken(
      fmt::format("another process ({}) has taken over {}, according to {}: this run no longer writes to the folder",
                  show(parse(now->text)), folder_.string(), path_of(now->number).string()));
}

void FolderOwner::set_run(const std::string& run) {
  {
    const std::scoped_lock lock(mutex_);
    self_.run = run;
  }
  renew();
}

void FolderOwner::remove_own() noexcept {
  try {
    const std::optional<std::string> text = number_ > 0 ? read(number_) : std::nullopt;
    const std::optional<OwnerRecord> record = text ? parse(*text) : std::nullopt;
    // The file may be empty during a claim.
    if (text && (text->empty() || (record && record->token == self_.token))) (void)files_.remove_file(path_of(number_));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the record is not renewed and expires
  }
  file_.reset();
}

}  // namespace mpzero::io
