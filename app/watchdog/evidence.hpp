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

// Maximum delay of a rank's end by a file system that does not respond, per folder.
inline constexpr std::chrono::milliseconds kDiskLimit(3000);

// Why a rank ends. kSignal: another rank has ended, or the launcher asked this one to end.
enum class Why : uint8_t { kError, kUserError, kStuck, kSignal, kCommunicatorError, kDeviceError };

// The ranks of one start of a run.
struct StartRanks {
  std::string id;                  // sorts by time
  std::string job;                 // SLURM_JOB_ID; empty: none
  int restart = 0;                 // SLURM_RESTART_COUNT
  std::string checkpoint_dir;      // absolute
  int64_t time = 0;                // seconds since 1970
  int rank = 0;                    // of this process
  std::vector<std::string> hosts;  // by rank
  std::vector<int64_t> pids;
};

// State of a rank when it ends.
struct Evidence {
  Why why = Why::kError;
  std::string error;          // one sentence without a final period; empty: none
  std::vector<int> culprits;  // ranks that are known to be the cause
  int exit_status = 1;
  double time = 0;  // of the fields below, in seconds since 1970
  RankActivity::Report activity;
  std::vector<parallel::ChannelRecord> channels;
  std::vector<Neighbor> neighbors;
};

// Contents of rank_N.json and start.json (docs/formats.md). `host_condition`: as host_condition() returns it.
nlohmann::ordered_json evidence_json(const Evidence& evidence, const StartRanks& start,
                                     const nlohmann::ordered_json& host_condition);
nlohmann::ordered_json start_json(const StartRanks& start);
// Content of a JSON file.
std::string json_text(const nlohmann::ordered_json& json);
// The line for stderr, without the prefix "mpzero: error: " and the newline.
std::string describe(const Evidence& evidence, const StartRanks& start);

// Writes evidence into FOLDER/failures/ID. No call hangs if a file system does not respond.
class EvidenceWriter {
 public:
  // `folders`: tried in this order. `read_first`: returns the rank that wrote `first` into a folder.
  EvidenceWriter(std::vector<std::filesystem::path> folders, const StartRanks& start,
                 std::function<int(const std::filesystem::path&)> read_first = first_in)
      : folders_(std::move(folders)), start_(start), read_first_(std::move(read_first)) {}

  static constexpr int kNobody = -1, kUnknown = -2;
  struct Outcome {
    int first = kUnknown;                  // the rank that wrote `first`; kUnknown: no folder is writable
    std::string reason;                    // that rank's, if it is another one and can be read
    std::filesystem::path elsewhere = {};  // where the evidence is, if not in the first folder
  };
  // Writes both files, and `first` if `claims` and no other rank has written it. If no folder is writable, prints the
  // text on stderr. An empty text is not written.
  Outcome write(const std::string& text, bool claims) const;
  // The rank that wrote `first`, without waiting for a file system; kUnknown: a folder has not answered yet. For
  // repeated calls: each folder has at most one reading thread, even if it hangs.
  int poll_first();
  static int first_in(const std::filesystem::path& folder);
  // Removes the evidence folder, unless it contains `first`.
  void remove() const;

 private:
  std::filesystem::path folder_in(const std::filesystem::path& folder) const;

  std::vector<std::filesystem::path> folders_;
  const StartRanks& start_;
  std::function<int(const std::filesystem::path&)> read_first_;
  std::vector<std::future<int>> reads_;  // by folder
};

// Writes `text` to stderr. If nothing reads stderr, returns after a second and may lose the text.
void print_error(const std::string& text);

}  // namespace mpzero
