#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/watchdog/host_board.hpp"
#include "app/watchdog/rank_activity.hpp"
#include "parallel/trace/flight_recorder.hpp"

namespace mpzero {

// Maximum time to wait for each folder if its file system does not respond.
inline constexpr std::chrono::milliseconds kDiskLimit(3000);

// The reason why a rank ended. kSharedError: all ranks throw the same error. kSignal: another rank has ended, or the
// launcher has sent a signal.
enum class Why : uint8_t { kError, kSharedError, kUserError, kStuck, kSignal, kCommunicatorError, kDeviceError };

// The ranks of one attempt of a run.
struct StartRanks {
  std::string id;                  // start id; ids sort by time
  std::string job;                 // SLURM_JOB_ID; empty: none
  int restart = 0;                 // SLURM_RESTART_COUNT
  std::string launch;              // MPZERO_LAUNCH; empty: none
  std::string checkpoint_dir;      // absolute
  int64_t time = 0;                // Unix time in seconds
  int rank = 0;                    // rank of this process
  std::vector<std::string> hosts;  // one per rank
  std::vector<int64_t> pids;
};

// The state of a rank when the rank ends.
struct Evidence {
  Why why = Why::kError;
  std::string error;          // one sentence without a final period; may be empty
  std::vector<int> culprits;  // ranks known to be the cause
  int exit_status = 1;
  bool provisional = false;  // the rank is still running; it may continue, stop, or write again before it ends
  double time = 0;           // Unix time of the fields below, in seconds
  RankActivity::Report activity;
  std::vector<parallel::ChannelRecord> channels;
  std::vector<Neighbor> neighbors;
};

// Returns the contents of rank_N.json (docs/formats.md). `host_condition`: result of host_condition().
nlohmann::ordered_json evidence_json(const Evidence& evidence, const StartRanks& start,
                                     const nlohmann::ordered_json& host_condition);
// Returns the error line that a failing rank prints to stderr, without the prefix "mpzero: error: " and the newline.
std::string describe(const Evidence& evidence, const StartRanks& start);

// Returns possible external causes of a failure: available memory, memory pressure, OOM kills, Xid messages of the
// driver, and the state of the rank's GPU. Best effort: returns an empty object if reading takes more than two seconds.
// `root`: parent of /proc and /dev.
nlohmann::ordered_json host_condition(at::Device device, const std::filesystem::path& root = "/");

// Writes evidence to FOLDER/failures/ID. If a thread can be started, the functions never hang, even if a file system
// does not respond.
class EvidenceWriter {
 public:
  // `folders`: candidates, in order of preference. All folders but the first may be writable by other users.
  EvidenceWriter(std::vector<std::filesystem::path> folders, const StartRanks& start)
      : folders_(std::move(folders)), start_(start) {}

  // The rank that reported a failure first, from the `first` file.
  struct First {
    int rank = -1;  // -1: none
    std::string reason;
  };
  struct Outcome {
    First first = {};                      // this rank if no folder is writable
    std::filesystem::path elsewhere = {};  // folder of the evidence, unless it is in the first of `folders`
    bool is_written = true;
  };
  // Writes start.json and rank_N.json. If `claims` is true, also writes `first` unless another rank has written
  // `first`. If no folder is writable, prints evidence that is not provisional to stderr.
  Outcome write(const Evidence& evidence, const nlohmann::ordered_json& host_condition, bool claims) const;
  // Reads the `first` file. Does not wait again for a folder that has not responded.
  First read_first();
  // Writes start.json if the first folder contains evidence from earlier attempts, so that this evidence is not
  // attributed to the current attempt.
  void record_start() const;

 private:
  std::filesystem::path folder_in(const std::filesystem::path& folder) const;

  std::vector<std::filesystem::path> folders_;
  const StartRanks& start_;
  std::set<std::filesystem::path> unresponsive_;
};

// Writes `text` to stderr. If the reader of stderr is blocked, returns after one second and may lose the text.
void print_error(const std::string& text);

}  // namespace mpzero
