#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/faults/disk_calls.hpp"
#include "tests/faults/saves.hpp"
#include "tests/faults/subject_process.hpp"
#include "tests/faults/target.hpp"

// Programs that use a failing disk. A fault is a setting of the preloaded library: "write:3:ENOSPC", "any:7:kill".
namespace mpzero::faults {

// Returns all disk faults for a program that made `calls` calls of each kind: each call fails once with each applicable
// errno.
std::vector<std::string> disk_errors(const std::array<uint64_t, kDiskCalls + 1>& calls, bool of_writer);
// Returns faults that kill the program before, during and after each call.
std::vector<std::string> kills(const std::array<uint64_t, kDiskCalls + 1>& calls);
// Returns faults that stop the program before each call.
std::vector<std::string> stops(const std::array<uint64_t, kDiskCalls + 1>& calls);
// Returns about `count` random elements of `all`.
std::vector<std::string> some_of(std::vector<std::string> all, size_t count, Random& random);

// A program that reads files. While the program is stopped, another program may change the files.
//
//   disk   an error, or a short read
//   and each kind of `meanwhile`
//
// The program must print the same output as with a healthy disk or as after `meanwhile`, or fail with a message that
// does not call the files damaged, because they are intact.
class ReadingProgram final : public Target {
 public:
  // Makes the changes of another program to the files in `folder`, e.g. a run that replaces the checkpoint.
  using Meanwhile = std::function<void(const std::filesystem::path& folder)>;

  // `command`: command of fault_subject that reads `place` (empty: everything) in a folder that contains `files`.
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

// A training run that saves a checkpoint.
//
//   disk      an error, or a short write
//   kill      SIGKILL
//   leftover  files left by a crashed save of another step cannot be removed
//   immutable the same, after chattr +i
//   overlap   there is no flock, and another run saves here while this one is stopped: "same:any:7:stop" the same step,
//             "other:any:7:stop" another
//
// `latest` must name a complete checkpoint: the new one if the run reported success, otherwise the old or the new one.
// No complete checkpoint may be lost. The next save must succeed.
class SavingRun final : public Target {
 public:
  struct Scene {
    std::string name;
    Save old, saved;
    bool can_exchange = true;  // the file system can swap two names atomically
  };
  SavingRun(Scene scene, std::filesystem::path programs, std::filesystem::path scratch);

  std::string name() const override { return scene_.name; }
  std::vector<std::string> kinds() const override;
  std::vector<std::string> faults(const std::string& kind, size_t count, Random& random) override;
  Verdict try_fault(const std::string& kind, const std::string& fault, const std::filesystem::path& scratch) override;

 private:
  Verdict try_alone(const std::string& kind, const std::string& fault, const std::filesystem::path& scratch);
  Verdict try_overlap(const std::string& fault, const std::filesystem::path& scratch);
  // Checks the folder. `saved`: the saves that were reported as successful.
  Verdict check(const std::filesystem::path& dir, const std::vector<Save>& saved, bool may_have_saved) const;
  Verdict save_once_more(const std::filesystem::path& dir) const;
  std::vector<std::string> words(const std::filesystem::path& dir, const Save& save) const;
  std::string with_scene(const std::string& fault) const;

  Scene scene_;
  Files before_;  // the folder with the old checkpoint
  std::filesystem::path programs_, scratch_;
};

// zero_to_fp32 with an output folder that contains another checkpoint's weights.
//
//   disk     an error
//   kill     SIGKILL
//   overlap  another conversion into the same folder while this one is stopped
//
// The folder must contain the weights of the checkpoint that the last successful program converted. After a failure,
// the folder may instead contain no loadable weights. The next conversion must succeed once the staging folder is
// deleted.
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
  Files before_;                    // checkpoints/, and output/ with the first checkpoint's weights
  std::vector<std::string> right_;  // the expected result of reading the output, by checkpoint
  std::filesystem::path programs_, scratch_;
};

}  // namespace mpzero::faults
