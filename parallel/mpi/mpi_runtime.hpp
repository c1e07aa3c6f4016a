#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/process_group.hpp"
#include "parallel/comm_thread/communication_thread.hpp"
#include "parallel/trace/flight_recorder.hpp"

namespace mpzero::parallel {

struct MpiGroup;

// The threads that may use MPI at a time.
enum class MpiThreads : uint8_t {
  kOne,      // MPI_THREAD_FUNNELED: for the control plane only, not for tensors
  kSeveral,  // MPI_THREAD_MULTIPLE: also for tensors, concurrently with compute and the control plane
};

// MPI for the lifetime of the program: it starts the ranks and provides the rendezvous and the control plane. One per
// process.
class MpiRuntime final : public ProcessGroup {
 public:
  // Collective. If MPI does not support several threads, one thread uses it, without an error: see
  // communication_thread(). If any rank requests kOne, one thread uses MPI on all ranks.
  MpiRuntime(int* argc, char*** argv, MpiThreads threads);
  ~MpiRuntime() override;
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  // This rank's index among the ranks of this machine, and their number.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  // The largest local_size() of all ranks.
  int most_per_host() const { return most_per_host_; }

  // The ranks of this machine as a separate group, in the same order. Collective. Must not outlive this object.
  std::unique_ptr<MpiRuntime> this_machine() const;
  // The ranks that pass the same `color` [>= 0] as a separate group, in the same order. Collective. Must not outlive
  // this object.
  std::unique_ptr<MpiRuntime> split(int color) const;
  // Whether only one thread uses MPI, because MPI lacks support for more, although all ranks requested kSeveral. The
  // same on all ranks.
  bool lacks_threads() const;
  // Moves this process's tensors over MPI; runs in its callers if only one thread may use MPI. Created by the first
  // call; for use by the thread that uses this object.
  CommunicationThread& communication_thread() const;
  // Collective. If several threads use MPI, waits for all ranks of the group without holding a core, so that a
  // following blocking MPI call only lasts as long as its messages: such calls poll, and ranks may share cores with
  // each other and with communication threads. Otherwise a no-op.
  void meet() const;
  // The MPI communicator of the group.
  const MpiGroup& group() const { return *group_; }

  void barrier() override;
  std::vector<std::string> all_gather(const std::string& text) override;

  // Records the following calls in a flight recorder, until another channel or null is set. `channel` outlives its use.
  void record_in(FlightRecorder::Channel* channel) { channel_ = channel; }

  // Ends all ranks immediately with `exit_code`.
  [[noreturn]] void abort(int exit_code);

 private:
  struct Process;

  MpiRuntime(std::unique_ptr<MpiGroup> group, std::shared_ptr<Process> process);
  // Sets the ranks from group_.
  void find_ranks();

  std::shared_ptr<Process> process_;
  std::unique_ptr<MpiGroup> group_;
  int rank_ = 0;
  int world_size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  int most_per_host_ = 1;
  FlightRecorder::Channel* channel_ = nullptr;
};

}  // namespace mpzero::parallel
