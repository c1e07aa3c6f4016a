#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "io/checkpoint_dir/catalog.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "tests/faults/disk_targets.hpp"
#include "tests/faults/readings.hpp"

namespace mpzero::faults {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kStepOfNext = 99;
constexpr const char* kLeftover = "tiny-77steps.tmp";
constexpr const char* kNoLock = "lock:1:ENOSYS:on";

void leave(const fs::path& file) {
  fs::create_directories(file.parent_path());
  write_bytes(file, "of a crashed save");
}

// Makes a file immutable during its lifetime, as chattr +i does.
class ImmutableFile {
 public:
  explicit ImmutableFile(const fs::path& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    is_so_ = set(FS_IMMUTABLE_FL);
  }
  ~ImmutableFile() {
    if (is_so_) set(0);
    ::close(descriptor_);
  }
  ImmutableFile(const ImmutableFile&) = delete;
  ImmutableFile& operator=(const ImmutableFile&) = delete;
  bool is_so() const { return is_so_; }

 private:
  bool set(int immutable) const {
    int flags = 0;
    if (::ioctl(descriptor_, FS_IOC_GETFLAGS, &flags) != 0) return false;
    flags = (flags & ~FS_IMMUTABLE_FL) | immutable;
    return ::ioctl(descriptor_, FS_IOC_SETFLAGS, &flags) == 0;
  }

  int descriptor_;
  bool is_so_ = false;
};

}  // namespace

SavingRun::SavingRun(Scene scene, fs::path programs, fs::path scratch)
    : scene_(std::move(scene)), programs_(std::move(programs)), scratch_(std::move(scratch)) {
  const fs::path dir = scratch_ / "before";
  fs::remove_all(dir);
  write_save(dir, scene_.old);
  if (!holds(dir / scene_.old.tag(), scene_.old)) throw std::runtime_error(scene_.name + ": the oracle is wrong");
  before_ = read_files(dir);
  fs::remove_all(dir);
}

std::vector<std::string> SavingRun::kinds() const { return {"disk", "kill", "leftover", "immutable", "overlap"}; }

std::vector<std::string> SavingRun::words(const fs::path& dir, const Save& save) const {
  const std::string format = !save.deepspeed ? "hdf5" : save.zero_stage == 3 ? "zero3" : "zero2";
  return {"save",      dir,    std::to_string(save.step),     std::to_string(save.values),
          save.run_id, format, std::to_string(save.keep_last)};
}

std::string SavingRun::with_scene(const std::string& fault) const {
  return scene_.can_exchange ? fault : fault.empty() ? "exchange:1:EINVAL:on" : fault + ",exchange:1:EINVAL:on";
}

std::vector<std::string> SavingRun::faults(const std::string& kind, size_t count, Random& random) {
  if (kind == "leftover") return {"remove:1:EACCES:on", "remove:1:EPERM:on", "remove:1:EIO:on"};
  if (kind == "immutable") return {"file"};
  const fs::path dir = scratch_ / "files";
  write_files(dir, before_);
  SubjectProcess subject(programs_, words(dir, scene_.saved), {with_scene(""), dir, ""}, scratch_);
  subject.wait();
  if (!subject.succeeded()) throw std::runtime_error(scene_.name + " fails on a good disk");
  std::vector<std::string> all;
  if (kind == "disk") {
    all = disk_errors(subject.calls(), /*of_writer=*/true);
  } else if (kind == "kill") {
    all = kills(subject.calls());
  } else {
    for (const std::string& stop : stops(subject.calls())) {
      all.push_back(fmt::format("same:{}", stop));
      all.push_back(fmt::format("other:{}", stop));
    }
  }
  return some_of(std::move(all), count, random);
}

Verdict SavingRun::try_fault(const std::string& kind, const std::string& fault, const fs::path& scratch) {
  write_files(scratch / "files", before_);
  if (kind == "overlap") return try_overlap(fault, scratch);
  if (kind != "immutable") return try_alone(kind, fault, scratch);
  const fs::path file = scratch / "files" / kLeftover / "file";
  leave(file);
  const ImmutableFile immutable(file);
  if (!immutable.is_so()) return {Outcome::kNotTried, "needs root and a file system that has immutable files"};
  return try_alone("leftover", "", scratch);
}

Verdict SavingRun::try_alone(const std::string& kind, const std::string& fault, const fs::path& scratch) {
  const fs::path dir = scratch / "files";
  if (kind == "leftover" && !fault.empty()) leave(dir / kLeftover / "file");
  const DiskFault disk{with_scene(fault), dir, kind == "leftover" ? kLeftover : ""};
  SubjectProcess subject(programs_, words(dir, scene_.saved), disk, scratch);
  subject.wait();
  Verdict verdict{Outcome::kRight, ""};
  if (!subject.succeeded() && !subject.was_killed()) verdict = subject.judge(dir);
  if (kind == "leftover" && verdict.outcome == Outcome::kRefused) verdict.outcome = Outcome::kLost;
  std::vector<Save> saved;
  if (subject.succeeded()) saved.push_back(scene_.saved);
  return worse_of(verdict, check(dir, saved, /*may_have_saved=*/true));
}

Verdict SavingRun::try_overlap(const std::string& fault, const fs::path& scratch) {
  const fs::path dir = scratch / "files";
  const size_t colon = fault.find(':');
  Save other = scene_.saved;
  other.values += 100;
  other.run_id = "0f0e0d0c0b0a0908";
  if (fault.substr(0, colon) == "other") ++other.step;
  const std::string stop = fmt::format("{},{}", fault.substr(colon + 1), kNoLock);
  SubjectProcess subject(programs_, words(dir, scene_.saved), {with_scene(stop), dir, ""}, scratch);
  std::vector<Save> saved;
  Verdict verdict{Outcome::kRight, ""};
  if (subject.wait_for_stop()) {
    SubjectProcess meanwhile(programs_, words(dir, other), {with_scene(kNoLock), dir, ""}, scratch / "other");
    meanwhile.wait();
    if (meanwhile.succeeded()) saved.push_back(other);
    if (!meanwhile.succeeded()) verdict = meanwhile.judge(dir);
    subject.go_on();
    subject.wait();
  }
  if (subject.succeeded()) saved.push_back(scene_.saved);
  if (!subject.succeeded()) verdict = worse_of(verdict, subject.judge(dir));
  return worse_of(verdict, check(dir, saved, /*may_have_saved=*/true));
}

Verdict SavingRun::check(const fs::path& dir, const std::vector<Save>& saved, bool may_have_saved) const {
  std::vector<Save> known = saved;
  known.push_back(scene_.old);
  if (may_have_saved) known.push_back(scene_.saved);
  try {
    // As a run finds it, and as zero_to_fp32 does.
    const io::ResumeCandidates candidates = io::resume_candidates(dir, "tiny");
    if (candidates.folders.empty()) return {Outcome::kLost, "no checkpoint is left"};
    if (!candidates.problem_of_latest.empty()) return {Outcome::kLost, candidates.problem_of_latest};
    const fs::path latest = io::find_checkpoint(dir);
    verify(latest);
    if (std::none_of(known.begin(), known.end(), [&](const Save& save) { return holds(latest, save); })) {
      return {Outcome::kWrong, fmt::format("{} holds other values", latest.filename().string())};
    }
    for (const Save& save : saved) {
      if (!holds(dir / save.tag(), save)) {
        return {Outcome::kLost, fmt::format("run {} reported that {} is saved", save.run_id, save.tag())};
      }
    }
    const bool replaced = scene_.old.tag() == scene_.saved.tag() || scene_.saved.keep_last == 1;
    if (!replaced && !holds(dir / scene_.old.tag(), scene_.old)) return {Outcome::kLost, scene_.old.tag()};
  } catch (const std::exception& error) {
    return {Outcome::kLost, error.what()};
  }
  return save_once_more(dir);
}

Verdict SavingRun::save_once_more(const fs::path& dir) const {
  Save next = scene_.saved;
  next.step = kStepOfNext;
  next.values = 9;
  try {
    save_as_run(dir, next);
    if (io::find_checkpoint(dir) == dir / next.tag() && holds(dir / next.tag(), next)) return {Outcome::kRight, ""};
    return {Outcome::kLost, "the next save is not the one that `latest` names"};
  } catch (const std::exception& error) {
    return {Outcome::kLost, fmt::format("the next save: {}", error.what())};
  }
}

}  // namespace mpzero::faults
