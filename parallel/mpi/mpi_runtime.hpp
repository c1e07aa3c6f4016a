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

// Which threads may use MPI at a time.
enum class MpiThreads : uint8_t {
  kOne,      // MPI_THREAD_FUNNELED: the control plane only, tensors travel in another way
  kSeveral,  // MPI_THREAD_MULTIPLE: tensors travel over MPI beside compute and the control plane
};

// MPI for the lifetime of the program: it starts the ranks and provides the rendezvous and the control plane. One per
// process.
class MpiRuntime final : public ProcessGroup {
 public:
  // Collective. An MPI that does not let several threads use it gives less, without an error: see
  // communication_thread(). One thread uses MPI on all ranks if some rank asks for one: ranks need not see the same.
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
  // The ranks that give the same `color` [>= 0] as a separate group, in the same order. Collective. Must not outlive
  // this object.
  std::unique_ptr<MpiRuntime> split(int color) const;
  // Whether this MPI is used by one thread at a time because it can do no more, though all ranks have asked for more.
  // The same on all ranks.
  bool lacks_threads() const;
  // What moves tensors over MPI, in this process. It runs in its callers if MPI may be used by one thread at a time
  // only. Made by the first call; used by the thread that uses this object.
  CommunicationThread& communication_thread() const;
  // Collective. Where several threads use MPI, waits for all ranks of the group without holding a core, so that a
  // blocking call of MPI that follows takes no longer than its messages: it polls, and ranks may share cores with each
  // other and with what moves their tensors. Elsewhere it does nothing.
  void meet() const;
  // MPI's handle of the group.
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
