#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/process_group.hpp"
#include "parallel/trace/flight_recorder.hpp"

namespace mpzero::parallel {

struct MpiGroup;

// MPI for the lifetime of the program: it starts the ranks and provides the rendezvous and the control plane. One per
// process.
class MpiRuntime final : public ProcessGroup {
 public:
  MpiRuntime(int* argc, char*** argv);
  ~MpiRuntime() override;
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  // This rank's index among the ranks of this machine, and their number.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }

  // The ranks of this machine as a separate group, in the same order. Collective. Must not outlive this object.
  std::unique_ptr<MpiRuntime> this_machine() const;
  // The ranks that give the same `color` [>= 0] as a separate group, in the same order. Collective. Must not outlive
  // this object.
  std::unique_ptr<MpiRuntime> split(int color) const;
  // MPI's handle of the group.
  const MpiGroup& group() const { return *group_; }

  void barrier() override;
  std::vector<std::string> all_gather(const std::string& text) override;

  // Records the following calls in a flight recorder, until another channel or null is set. `channel` outlives its use.
  void record_in(FlightRecorder::Channel* channel) { channel_ = channel; }

  // Ends all ranks immediately with `exit_code`.
  [[noreturn]] void abort(int exit_code);

 private:
  explicit MpiRuntime(std::unique_ptr<MpiGroup> group);
  // Sets the ranks from group_.
  void find_ranks();

  std::unique_ptr<MpiGroup> group_;
  int rank_ = 0;
  int world_size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  FlightRecorder::Channel* channel_ = nullptr;
};

}  // namespace mpzero::parallel
