#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/watchdog/host_board.hpp"
#include "app/watchdog/rank_activity.hpp"
#include "parallel/trace/flight_recorder.hpp"

namespace mpzero {

// Maximum time per folder to wait for a file system that does not respond.
inline constexpr std::chrono::milliseconds kDiskLimit(3000);

// Why a rank ended. kSignal: another rank has ended, or the launcher has sent a signal.
enum class Why : uint8_t { kError, kUserError, kStuck, kSignal, kCommunicatorError, kDeviceError };

// The ranks of one start of a run.
struct StartRanks {
  std::string id;                  // start id; ids sort by time
  std::string job;                 // SLURM_JOB_ID; empty: none
  int restart = 0;                 // SLURM_RESTART_COUNT
  std::string checkpoint_dir;      // absolute
  int64_t time = 0;                // Unix time in seconds
  int rank = 0;                    // rank of this process
  std::vector<std::string> hosts;  // by rank
  std::vector<int64_t> pids;
};

// The state of a rank at its end.
struct Evidence {
  Why why = Why::kError;
  std::string error;          // one sentence without a final period; may be empty
  std::vector<int> culprits;  // ranks known to be the cause
  int exit_status = 1;
  double time = 0;  // Unix time of the fields below, in seconds
  RankActivity::Report activity;
  std::vector<parallel::ChannelRecord> channels;
  std::vector<Neighbor> neighbors;
};

// Return the contents of rank_N.json and start.json (docs/formats.md). `host_condition`: result of host_condition().
nlohmann::ordered_json evidence_json(const Evidence& evidence, const StartRanks& start,
                                     const nlohmann::ordered_json& host_condition);
nlohmann::ordered_json start_json(const StartRanks& start);
// Returns the text of a JSON file.
std::string json_text(const nlohmann::ordered_json& json);
// Returns the line for stderr, without the prefix "mpzero: error: " and the newline.
std::string describe(const Evidence& evidence, const StartRanks& start);

// Writes evidence to FOLDER/failures/ID. Calls never hang, even if a file system does not respond,
// unless the process cannot start another thread.
class EvidenceWriter {
 public:
  // `folders`: candidates, in order of preference. `read_first`: returns the rank that wrote `first` in a folder.
  EvidenceWriter(std::vector<std::filesystem::path> folders, const StartRanks& start,
                 std::function<int(const std::filesystem::path&)> read_first = first_in)
      : folders_(std::move(folders)), start_(start), read_first_(std::move(read_first)) {}

  static constexpr int kNobody = -1, kUnknown = -2;
  struct Outcome {
    int first = kUnknown;                  // rank that wrote `first`; kUnknown if no folder is writable
    std::string reason;                    // reason reported by rank `first`; empty if unknown or this rank
    std::filesystem::path elsewhere = {};  // folder of the evidence, unless it is the first folder
  };
  // Writes start.json and rank_N.json (`text`) unless `text` is empty. If `claims`, also writes `first` unless another
  // rank has written `first`. Prints `text` to stderr if no folder is writable.
  Outcome write(const std::string& text, bool claims) const;
  // Returns the rank that wrote `first`, without waiting for a file system; kUnknown while a read is pending. Uses at
  // most one thread per folder, even if a read hangs.
  int poll_first();
  static int first_in(const std::filesystem::path& folder);
  // Removes the evidence folder, unless it contains `first`.
  void remove() const;

 private:
  std::filesystem::path folder_in(const std::filesystem::path& folder) const;

  std::vector<std::filesystem::path> folders_;
  const StartRanks& start_;
  std::function<int(const std::filesystem::path&)> read_first_;
  std::vector<std::future<int>> reads_;  // pending reads, by folder
};

// Writes `text` to stderr. If the reader of stderr is blocked, returns after one second and may lose the text; waits
// for the reader if the process cannot start another thread.
void print_error(const std::string& text);

}  // namespace mpzero
