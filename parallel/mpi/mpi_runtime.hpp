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

// Thread support requested from MPI.
enum class MpiThreads : uint8_t {
  kOne,      // MPI_THREAD_FUNNELED: only for the control plane, not for tensors
  kSeveral,  // MPI_THREAD_MULTIPLE: also for tensors, concurrently with compute and the control plane
};

// Initializes MPI for the lifetime of the program, and provides the rendezvous and the control plane. The public
// constructor may be called only once per process.
class MpiRuntime final : public ProcessGroup {
 public:
  // Must be called by all ranks. Only one thread uses MPI if MPI does not provide MPI_THREAD_MULTIPLE or if any rank
  // requests kOne (see communication_thread()).
  MpiRuntime(int* argc, char*** argv, MpiThreads threads);
  ~MpiRuntime() override;
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  // Return this rank's index among the ranks of this machine, and the number of these ranks.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  // Returns the maximum local_size() over all ranks.
  int most_per_host() const { return most_per_host_; }

  // Returns the ranks of this machine as a separate group, in the same order. Must be called by all ranks. The group
  // must not outlive this object.
  std::unique_ptr<MpiRuntime> this_machine() const;
  // Returns the ranks that pass the same `color` [>= 0] as a separate group, in the same order. Must be called by all
  // ranks. The group must not outlive this object.
  std::unique_ptr<MpiRuntime> split(int color) const;
  // Returns true if only one thread uses MPI although all ranks requested kSeveral, because MPI does not support
  // several threads. The result is the same on all ranks.
  bool lacks_threads() const;
  // Returns the thread that moves this process's tensors over MPI. If only one thread may use MPI, each job runs on the
  // thread that submits it. The first call creates the thread. Must be called on the thread that uses this object.
  CommunicationThread& communication_thread() const;
  // Waits for all ranks of the group without occupying a core, so that the next blocking MPI call, which polls, waits
  // only for its messages. No-op if only one thread uses MPI. Must be called by all ranks of the group.
  void meet() const;
  const MpiGroup& group() const { return *group_; }

  void barrier() override;
  std::vector<std::string> all_gather(const std::string& text) override;

  // Records later calls in a flight recorder. A null `channel` stops recording. `channel` must stay valid while calls
  // are recorded.
  void record_in(FlightRecorder::Channel* channel) { channel_ = channel; }

  // Ends all ranks immediately with `exit_code`.
  [[noreturn]] void abort(int exit_code);

 private:
  struct Process;

  MpiRuntime(std::unique_ptr<MpiGroup> group, std::shared_ptr<Process> process);
  // Sets the members for ranks and sizes from the communicator group_.
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
