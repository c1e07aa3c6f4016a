#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/watchdog/rank_activity.hpp"
#include "parallel/trace/flight_recorder.hpp"

namespace mpzero {

// Last report and process state of another rank of this host.
struct Neighbor {
  int rank = 0;
  int64_t pid = 0;
  bool alive = false;                             // also true if unknown
  std::optional<int> exit_status;                 // set by announce_end(); 0: ends normally
  RankActivity::Report activity;                  // without `limit` and `gap`
  double quiet = 0;                               // seconds since the rank's watchdog last ran
  std::vector<parallel::ChannelRecord> channels;  // in the order in which they were opened; `name` and `last` are empty
};

// Shared memory of the ranks of one host. Each rank writes its state to its own record, which other ranks can read
// after the rank has exited. The file is unlinked once all ranks have opened it, so a killed run leaves no file.
class HostBoard {
 public:
  // Opens the shared memory of the attempt with id `start` for `ranks` ranks of this host. `own`: index of this process
  // on the host.
  HostBoard(const std::string& start, int ranks, int own, int rank, const std::filesystem::path& folder = "/dev/shm");
  ~HostBoard();
  HostBoard(const HostBoard&) = delete;
  HostBoard& operator=(const HostBoard&) = delete;
  // Returns the reason why this rank cannot use the shared-memory file to monitor other ranks; empty if it can.
  const std::string& problem() const { return problem_; }
  // Unlinks the shared-memory file. Must be called after all ranks have opened the file.
  void remove_name() const;

  void write(const RankActivity::Report& report, const std::vector<parallel::ChannelRecord>& channels);
  // Announces that this rank ends with `exit_status`. If `exit_status` is not 0, the other ranks of the host end as
  // well.
  void announce_end(int exit_status);
  // Return true for the first caller on this host, which then reports the stop or the failure.
  bool claim_stop();
  bool claim_failure();

  std::vector<Neighbor> neighbors() const;

 private:
  struct Header;
  struct Line;
  Line& line(int number) const;
  Line& own() const { return line(own_); }
  // Returns false only if the process is known to have ended.
  bool is_alive(int number) const;

  std::filesystem::path path_;
  std::string problem_;
  int file_ = -1;  // each rank holds a lock on one byte until it exits
  int ranks_;
  int own_;
  Header* memory_ = nullptr;  // followed by one Line per rank
  size_t bytes_ = 0;
};

}  // namespace mpzero
