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

// How long a file system that does not respond delays the end of a rank, for each folder.
inline constexpr std::chrono::milliseconds kDiskLimit(3000);

// Why a rank ends. kSignal: another rank has ended, or the launcher has asked this one to end.
enum class Why : uint8_t { kError, kUserError, kStuck, kSignal, kCommunicatorError, kDeviceError };

// What all ranks of one start of a run know of each other.
struct StartRanks {
  std::string id;                  // sorts by time
  std::string job;                 // SLURM_JOB_ID; empty: none
  int restart = 0;                 // SLURM_RESTART_COUNT
  std::string checkpoint_dir;      // absolute
  int64_t time = 0;                // seconds since 1970
  int rank = 0;                    // this one
  std::vector<std::string> hosts;  // by rank
  std::vector<int64_t> pids;
};

// What a rank knows when it ends.
struct Evidence {
  Why why = Why::kError;
  std::string error;          // one sentence without its full stop; empty: none
  std::vector<int> culprits;  // ranks that are known to be the cause
  int exit_status = 1;
  double time = 0;  // seconds since 1970, of what follows
  RankActivity::Report activity;
  std::vector<parallel::ChannelRecord> channels;
  std::vector<Neighbor> neighbors;
};

// rank_N.json and start.json; docs/formats.md has their fields. `host_condition`: as host_condition() returns it.
nlohmann::ordered_json evidence_json(const Evidence& evidence, const StartRanks& start,
                                     const nlohmann::ordered_json& host_condition);
nlohmann::ordered_json start_json(const StartRanks& start);
// As a file.
std::string json_text(const nlohmann::ordered_json& json);
// The line for stderr, without "mpzero: error: " and line end.
std::string describe(const Evidence& evidence, const StartRanks& start);

// Writes evidence into FOLDER/failures/ID. No call of this returns late because of a file system that does not respond.
class EvidenceWriter {
 public:
  // `folders`: in the order in which they are tried.
  // `read_first`: the rank that wrote `first` into a folder.
  EvidenceWriter(std::vector<std::filesystem::path> folders, const StartRanks& start,
                 std::function<int(const std::filesystem::path&)> read_first = first_in)
      : folders_(std::move(folders)), start_(start), read_first_(std::move(read_first)) {}

  static constexpr int kNobody = -1, kUnknown = -2;
  struct Outcome {
    int first = kUnknown;                  // the rank that wrote `first`; kUnknown: no folder can be written
    std::string reason;                    // of that rank, if it is another one and its reason can be read
    std::filesystem::path elsewhere = {};  // where the evidence is, if not in the first folder
  };
  // Writes both files, and `first` if `claims` and no other rank has written it. If no folder is writable, the
  // text goes to stderr. An empty text is not written.
  Outcome write(const std::string& text, bool claims) const;
  // Which rank wrote `first`, without waiting for a file system; kUnknown: a folder has not answered yet. Call it
  // repeatedly: each folder has one thread that reads, and none is added while it hangs.
  int poll_first();
  static int first_in(const std::filesystem::path& folder);
  // Removes the folder, unless it has a `first`.
  void remove() const;

 private:
  std::filesystem::path folder_in(const std::filesystem::path& folder) const;

  std::vector<std::filesystem::path> folders_;
  const StartRanks& start_;
  std::function<int(const std::filesystem::path&)> read_first_;
  std::vector<std::future<int>> reads_;  // by folder
};

// Writes `text` to stderr. If nothing reads it, this returns after a second, and the text may be lost.
void print_error(const std::string& text);

}  // namespace mpzero
