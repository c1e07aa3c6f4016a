#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"
#include "app/memory/gpu_memory.hpp"
#include "app/memory/memory_plan.hpp"
#include "base/error.hpp"
#include "model/decoder.hpp"
#include "parallel/host/memory_use.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero {

// The most memory that a rank took, in bytes.
struct PeakMemory {
  int64_t total = 0;  // from the GPU, by PyTorch's allocator and in NCCL's buffers; from the host on a CPU
  std::optional<int64_t> allocated;  // of it, for tensors; on a GPU
};

// Plans a run's GPU memory, says what the plan is and how it came out, and what would help where memory is short. On
// the CPU it plans nothing: `auto` keeps all activations there, since how much host memory a process may take is not
// known (other processes, caches and swapping share it) and computing again costs most where compute is slow.
class RunMemory {
 public:
  // Before anything large is allocated on `device`.
  RunMemory(const RunSetup& setup, at::Device device, const parallel::MpiRuntime& mpi);

  // Before the data are read: that a micro-batch has room at all, on the host for its tokens and on the device for the
  // least of its activations. Collective; throws UserError on all ranks where it has none.
  void check_micro_batch(ProcessGroup& group) const;

  // Before the training state is allocated: how much of the host's memory it may take to update states ahead of the
  // norm; nothing where it may take what it likes. Collective; throws UserError on all ranks where the state does not
  // fit without any.
  std::optional<int64_t> host_extra_bytes(ProcessGroup& group) const;

  // Chooses what each layer recomputes, by layer, once the training state is allocated (`states`). Collective: every
  // rank gets the same levels, which fit the GPU that has the least to spare. Throws UserError on all ranks if
  // --recompute auto finds none that fit.
  std::vector<model::Recompute> plan(const parallel::MemoryUse& states, ProcessGroup& group);

  // After plan(): what no part of it asks for, in bytes, the same on all ranks; and that the training state has taken
  // some of it.
  int64_t spare() const;
  // What was left on the GPU with the least, by what the run has really taken until now. Collective.
  int64_t measured_spare(ProcessGroup& group) const;
  void states_have_grown(const parallel::MemoryUse& states);
  // States have moved between host and GPU.
  void states_have_moved(const parallel::MemoryUse& states) { plan_->states = states; }

  // After plan(): the lines for the log, and one of warning where --recompute names more than will fit by the plan.
  // None on the CPU.
  std::vector<std::string> breakdown() const;
  std::optional<std::string> warning() const;

  // On this rank, until now.
  PeakMemory peak() const;
  // How the plan compares with what was measured until now, on this rank; after plan(), none on the CPU.
  std::optional<std::string> comparison() const;

  // What to tell the user of an error for which is_out_of_gpu_memory holds.
  std::string explain_out_of_memory(const std::exception& error) const;

 private:
  struct Plan {
    parallel::MemoryUse states;
    LayerLevels levels;
    int64_t registered = 0;  // of the states, in memory that NCCL allocated
    int64_t context = 0;     // CUDA's and NCCL's own
    int64_t available = 0;   // for states and activations, on the GPU with the least
  };

  MemoryScenario scenario() const;
  ActivationSizes activation_sizes(int64_t micro_batch_size) const;
  parallel::MemoryUse states_of(const MemoryScenario& scenario,
                                std::optional<int64_t> host_extra_bytes = std::nullopt) const;
  MemoryNeed need(const MemoryScenario& scenario) const;
  std::vector<MemoryChange> changes(int64_t device_limit) const;
  // Of the plan, or of what would be planned: states, activations and workspace.
  parallel::MemoryUse states() const;
  LayerLevels levels() const;
  int64_t planned_bytes() const;
  std::string parts() const;

  RunConfig config_;
  at::Device device_;
  int world_size_;
  model::Decoder decoder_;
  int local_size_;
  int64_t host_available_ = 0;  // to this rank
  GpuMemory at_start_;
  std::optional<RefusedAllocations> refused_;
  std::optional<Plan> plan_;
};

}  // namespace mpzero
