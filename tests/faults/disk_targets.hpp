#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/faults/disk_calls.hpp"
#include "tests/faults/saves.hpp"
#include "tests/faults/subject_process.hpp"
#include "tests/faults/target.hpp"

// Programs on a disk that fails. A fault is what the preloaded library is told: "write:3:ENOSPC", "any:7:kill".
namespace mpzero::faults {

// All faults of a disk for a program that made this many calls of each kind: every call with every errno that fits.
std::vector<std::string> disk_errors(const std::array<uint64_t, kDiskCalls + 1>& calls, bool of_writer);
// Every call, killed before it, in the middle of it, or after it.
std::vector<std::string> kills(const std::array<uint64_t, kDiskCalls + 1>& calls);
// Every call, with the program stopped before it.
std::vector<std::string> stops(const std::array<uint64_t, kDiskCalls + 1>& calls);
// About `count` of all.
std::vector<std::string> some_of(std::vector<std::string> all, size_t count, Random& random);

// A program that reads. While it is stopped, something else may happen to the files.
//
//   disk   an error, or a read that is short
//   then also each kind of `meanwhile`
//
// It must print what it prints on a good disk, what it prints after `meanwhile`, or refuse in a sentence that does not
// call the files damaged, which they are not.
class ReadingProgram final : public Target {
 public:
  // What another program does to the files below this folder, e.g. a run that replaces the checkpoint.
  using Meanwhile = std::function<void(const std::filesystem::path& folder)>;

  // `command` of fault_subject reads `place` (empty: all) below a folder that holds `files`.
  ReadingProgram(std::string name, std::string command, Files files, std::string place,
                 std::map<std::string, Meanwhile> meanwhile, std::filesystem::path programs,
                 std::filesystem::path scratch);

  std::string name() const override { return name_; }
  std::vector<std::string> kinds() const override;
  std::vector<std::string> faults(const std::string& kind, size_t count, Random& random) override;
  Verdict try_fault(const std::string& kind, const std::string& fault, const std::filesystem::path& scratch) override;

 private:
  std::vector<std::string> words(const std::filesystem::path& folder) const;

  std::string name_, command_;
  Files files_;
  std::string place_;
  std::map<std::string, Meanwhile> meanwhile_;
  std::filesystem::path programs_, scratch_;
};

// A training run that saves.
//
//   disk      an error, or a write that is short
//   kill      SIGKILL
//   leftover  what a crashed save of another step has left cannot be removed
//   immutable the same, after chattr +i
//   overlap   there is no flock, and another run saves here while this one is stopped: "same:any:7:stop" the same step,
//             "other:any:7:stop" another
//
// `latest` must name a whole checkpoint, the old one or the new one, and the new one where the run said so; nothing
// that was whole may be gone; and the next save must work.
class SavingRun final : public Target {
 public:
  struct Scene {
    std::string name;
    Save old, saved;
    bool can_exchange = true;  // two names in one step
  };
  SavingRun(Scene scene, std::filesystem::path programs, std::filesystem::path scratch);

  std::string name() const override { return scene_.name; }
  std::vector<std::string> kinds() const override;
  std::vector<std::string> faults(const std::string& kind, size_t count, Random& random) override;
  Verdict try_fault(const std::string& kind, const std::string& fault, const std::filesystem::path& scratch) override;

 private:
  Verdict try_alone(const std::string& kind, const std::string& fault, const std::filesystem::path& scratch);
  Verdict try_overlap(const std::string& fault, const std::filesystem::path& scratch);
  // What is wrong with the folder; `saved` says whose success was reported.
  Verdict check(const std::filesystem::path& dir, const std::vector<Save>& saved, bool may_have_saved) const;
  Verdict save_once_more(const std::filesystem::path& dir) const;
  std::vector<std::string> words(const std::filesystem::path& dir, const Save& save) const;
  std::string with_scene(const std::string& fault) const;

  Scene scene_;
  Files before_;  // the folder with the old checkpoint
  std::filesystem::path programs_, scratch_;
};

// zero_to_fp32 into a folder that holds another checkpoint's weights.
//
//   disk     an error
//   kill     SIGKILL
//   overlap  another conversion into the same folder while this one is stopped
//
// The folder must hold the weights of one checkpoint, and of the one that the last program to end well has converted;
// or, after a failure, nothing that loads, with the new weights whole beside it, which the next conversion puts in
// place.
class ExportingProgram final : public Target {
 public:
  ExportingProgram(std::string name, std::filesystem::path programs, std::filesystem::path scratch);

  std::string name() const override { return name_; }
  std::vector<std::string> kinds() const override { return {"disk", "kill", "overlap"}; }
  std::vector<std::string> faults(const std::string& kind, size_t count, Random& random) override;
  Verdict try_fault(const std::string& kind, const std::string& fault, const std::filesystem::path& scratch) override;

 private:
  std::vector<std::string> words(const std::filesystem::path& folder, const Save& save) const;

  std::string name_;
  Files before_;                    // checkpoints/, and output/ with the first one's weights
  std::vector<std::string> right_;  // what reading the output gives, by checkpoint
  std::filesystem::path programs_, scratch_;
};

}  // namespace mpzero::faults
