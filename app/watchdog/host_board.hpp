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

// Last report of another rank of this host, and the state of its process.
struct Neighbor {
  int rank = 0;
  int64_t pid = 0;
  bool alive = false;              // also if in another PID namespace, where this is unknown
  bool has_left = false;           // normally
  std::optional<int> exit_status;  // the announced one
  RunPhase phase = RunPhase::kSetUp;
  int64_t step = 0;
  int64_t progress = 0;
  double idle = 0;                                // seconds since its last progress
  double quiet = 0;                               // seconds since its watchdog ran
  std::vector<parallel::ChannelRecord> channels;  // without collectives, in the order in which all ranks open them
};

// Shared memory of the ranks of one host: each writes a line about itself, which outlives its process. The file is
// unlinked once all ranks have opened it, so a killed run leaves nothing behind.
class HostBoard {
 public:
  // Opens the file of the start with this id for `ranks` ranks of this host; this process is number `own`.
  // `pid_namespace`: of this process. Throws Failure.
  HostBoard(const std::string& start, int ranks, int own, int rank, const std::filesystem::path& folder = "/dev/shm",
            int64_t pid_namespace = own_pid_namespace());
  ~HostBoard();
  HostBoard(const HostBoard&) = delete;
  HostBoard& operator=(const HostBoard&) = delete;
  // Removes the file's name. Call it after all ranks have opened it.
  void remove_name() const;

  void write(const RankActivity::Report& report, const std::vector<parallel::ChannelRecord>& channels);
  // Announces that this rank ends with `exit_status`; the other ranks of the host follow.
  void announce_end(int exit_status);
  void leave();
  // The run's files contain its end, so no other rank needs to record it.
  void mark_recorded();
  // Whether rank 0 is a live neighbor that has not recorded the end yet.
  bool rank_0_will_record() const;
  // True for the first caller on this host, which prints that the run stops or fails.
  bool claim_stop();
  bool claim_failure();

  std::vector<Neighbor> neighbors() const;

  // Inode of the PID namespace that /proc shows; 0: not known.
  static int64_t own_pid_namespace();

 private:
  struct Header;
  struct Line;
  Line& line(int number) const;
  Line& own() const { return line(own_); }
  // False only if the process is known to have ended.
  bool is_alive(const Line& line) const;

  std::filesystem::path path_;
  int ranks_;
  int own_;
  Header* memory_ = nullptr;  // lines follow it
  size_t bytes_ = 0;
};

}  // namespace mpzero
