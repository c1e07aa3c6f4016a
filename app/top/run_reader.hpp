#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mpzero {

// A file that another process appends lines to.
class LineFollower {
 public:
  // Reads at most about `most_bytes` from the end of what is there at first, and of a file that replaces it.
  explicit LineFollower(std::filesystem::path path, int64_t most_bytes = int64_t{4} << 20);

  // The complete lines since the last call. A file that is missing has none; one that became shorter, or that was
  // replaced, is read again.
  std::vector<std::string> take();
  const std::filesystem::path& path() const { return path_; }
  // How often that was so, and the first time.
  int64_t openings() const { return openings_; }

 private:
  std::filesystem::path path_;
  int64_t most_bytes_;
  int64_t offset_ = -1;  // none: not opened yet
  uint64_t inode_ = 0;
  int64_t openings_ = 0;
  std::string rest_;  // of an incomplete line
};

// What a run's files say about it, for a person. An optional is empty, and a number 0, if they do not say it.
struct RunView {
  // The newest start.
  std::string run, start, model, status, reason;  // status "": it has not ended
  std::vector<std::string> hosts;                 // one for each rank
  std::string devices;
  double began = 0;  // seconds since 1970
  int64_t starts = 0;
  int64_t max_steps = 0;
  std::string metrics_address;
  int64_t metrics_port = 0;
  std::optional<std::string> metrics_file;  // "": the run writes none
  // The newest step.
  int64_t step = 0;
  double time = 0;  // of its end, in seconds since 1970
  double loss = 0, lr = 0, grad_norm = 0, tokens_per_second = 0, step_seconds = 0;
  std::optional<double> mfu;
  std::map<std::string, double> parts;       // "forward", ...: seconds
  std::vector<double> rank_seconds;          // by rank; of the newest step that has them
  std::map<std::string, double> validation;  // the newest loss, by set; of a file without a name ""
  int64_t validation_step = 0;
  std::vector<double> losses;  // of the steps that were read
  // The newest checkpoint.
  int64_t checkpoint_step = 0;
  double checkpoint_time = 0, checkpoint_seconds = 0;
  std::string warning;  // the newest
};

// Follows the files of a run.
class RunReader {
 public:
  // `run`: the folder of the metrics and events, or a metrics file. Throws UserError if neither is there.
  explicit RunReader(const std::filesystem::path& run);

  const RunView& update();

 private:
  void take_event(const std::string& line);
  // Follows the file that the newest start names.
  void choose_metrics();
  void take_step(const std::string& line);

  std::filesystem::path folder_;
  bool is_file_given_;  // of the metrics
  LineFollower events_;
  LineFollower metrics_;
  RunView view_;
};

}  // namespace mpzero
