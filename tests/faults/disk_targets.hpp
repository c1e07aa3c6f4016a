#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/faults/disk_calls.hpp"
#include "tests/faults/saves.hpp"
#include "tests/faults/subject_process.hpp"
#include "tests/faults/target.hpp"

// Programs on a failing disk. A fault is the setting of the preloaded library: "write:3:ENOSPC", "any:7:kill".
namespace mpzero::faults {

// All disk faults for a program that made this many calls of each kind: every call with every applicable errno.
std::vector<std::string> disk_errors(const std::array<uint64_t, kDiskCalls + 1>& calls, bool of_writer);
// Every call, killed before it, in the middle of it, or after it.
std::vector<std::string> kills(const std::array<uint64_t, kDiskCalls + 1>& calls);
// Every call, with the program stopped before it.
std::vector<std::string> stops(const std::array<uint64_t, kDiskCalls + 1>& calls);
// About `count` of all.
std::vector<std::string> some_of(std::vector<std::string> all, size_t count, Random& random);

// A program that reads. While it is stopped, another program may change the files.
//
//   disk   an error, or a short read
//   and each kind of `meanwhile`
//
// It must print the same as on a good disk, or the same as after `meanwhile`, or refuse in a sentence that does not
// call the files damaged, because they are not.
class ReadingProgram final : public Target {
 public:
  // The changes that another program makes to the files in this folder, e.g. a run that replaces the checkpoint.
  using Meanwhile = std::function<void(const std::filesystem::path& folder)>;

  // `command` of fault_subject reads `place` (empty: all) in a folder that holds `files`.
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
//   disk      an error, or a short write
//   kill      SIGKILL
//   leftover  files left by a crashed save of another step cannot be removed
//   immutable the same, after chattr +i
//   overlap   there is no flock, and another run saves here while this one is stopped: "same:any:7:stop" the same step,
//             "other:any:7:stop" another
//
// `latest` must name a complete checkpoint, the old one or the new one, and the new one if the run reported success. No
// complete checkpoint may be lost. The next save must succeed.
class SavingRun final : public Target {
 public:
  struct Scene {
    std::string name;
    Save old, saved;
    bool can_exchange = true;  // swaps two names atomically
  };
  SavingRun(Scene scene, std::filesystem::path programs, std::filesystem::path scratch);

  std::string name() const override { return scene_.name; }
  std::vector<std::string> kinds() const override;
  std::vector<std::string> faults(const std::string& kind, size_t count, Random& random) override;
  Verdict try_fault(const std::string& kind, const std::string& fault, const std::filesystem::path& scratch) override;

 private:
  Verdict try_alone(const std::string& kind, const std::string& fault, const std::filesystem::path& scratch);
  Verdict try_overlap(const std::string& fault, const std::filesystem::path& scratch);
  // What is wrong with the folder. `saved`: the saves that were reported as successful.
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
// The folder must hold the weights of one checkpoint: the one converted by the last program that succeeded. After a
// failure it may instead hold nothing that loads. The next conversion must succeed without the staging folder.
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
  std::vector<std::string> right_;  // the expected result of reading the output, by checkpoint
  std::filesystem::path programs_, scratch_;
};

}  // namespace mpzero::faults
