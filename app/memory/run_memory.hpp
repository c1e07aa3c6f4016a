#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"
#include "app/memory/gpu_memory.hpp"
#include "app/memory/memory_estimate.hpp"
#include "app/memory/memory_plan.hpp"
#include "base/error.hpp"
#include "model/decoder.hpp"
#include "parallel/host/memory_use.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero {

// The peak memory of a rank, in bytes.
struct PeakMemory {
  int64_t total = 0;  // from the GPU, by PyTorch's allocator and in NCCL's buffers; from the host on a CPU
  std::optional<int64_t> allocated;  // of that, held by tensors; on a GPU
};

// Plans a run's GPU memory, describes the plan, compares it with measurements, and suggests changes if memory is short.
// On the CPU there is no plan: `auto` keeps all activations, since it is unknown how much host memory a process may use
// (other processes, caches and swapping share it), and recomputation costs the most where compute is slow.
class RunMemory {
 public:
  // Call before anything large is allocated on `device`.
  RunMemory(const RunSetup& setup, at::Device device, const parallel::MpiRuntime& mpi);

  // Call before the data are read. Checks that a micro-batch fits at all: its tokens on the host and the minimum of its
  // activations on the device. Collective; throws UserError on all ranks if it does not fit.
  void check_micro_batch(ProcessGroup& group) const;

  // Call before the training state is allocated. Returns how much host memory may be used to update states ahead of the
  // norm; std::nullopt: no limit. Collective; throws UserError on all ranks if the state does not fit even without that
  // memory.
  std::optional<int64_t> host_extra_bytes(ProcessGroup& group) const;

  // Chooses what each layer recomputes, by layer, once the training state is allocated (`states`). Collective: every
  // rank gets the same levels, which fit the GPU with the least memory available. Throws UserError on all ranks if
  // --recompute auto finds none that fit.
  std::vector<model::Recompute> plan(const parallel::MemoryUse& states, ProcessGroup& group);

  // After plan(): what the layers recompute, as "selective", or "none x 20, full x 8" where they differ.
  std::string recompute() const;
  // After plan(): the layers that keep the casts of their weights to FP8, for Decoder::keep_casts.
  int64_t kept_casts() const { return estimate_.decoder().kept_casts(); }
  // After plan(): the bytes that no part of the plan needs, the same on all ranks.
  int64_t spare() const;
  // The memory that is left on the GPU with the least, according to the run's measured peak until now. Collective.
  int64_t measured_spare(ProcessGroup& group) const;
  // Records that the training state has grown.
  void states_have_grown(const parallel::MemoryUse& states);
  // Records that states have moved between host and GPU.
  void states_have_moved(const parallel::MemoryUse& states) { plan_->states = states; }

  // After plan(): the lines for the log, and a warning if --recompute keeps more than fits according to the plan. None
  // on the CPU.
  std::vector<std::string> breakdown() const;
  std::optional<std::string> warning() const;

  // The planned peak of a rank, in tensors; std::nullopt on the CPU.
  std::optional<int64_t> planned() const;
  // The peak on this rank until now.
  PeakMemory peak() const;
  // Compares the plan with the measurements until now, on this rank. After plan(); std::nullopt on the CPU.
  std::optional<std::string> comparison() const;

  // The message for an error for which is_out_of_gpu_memory() is true.
  std::string explain_out_of_memory(const std::exception& error) const;

 private:
  struct Plan {
    parallel::MemoryUse states;
    LayerLevels levels;
    int64_t registered = 0;  // of the states, in memory that NCCL allocated
    int64_t context = 0;     // used by CUDA and NCCL
    int64_t available = 0;   // for states and activations, on the GPU with the least memory
  };

  std::vector<MemoryChange> changes(int64_t device_limit) const;
  // Those of the plan, or of what would be planned: states, activations and workspace.
  parallel::MemoryUse states() const;
  LayerLevels levels() const;
  int64_t planned_bytes() const;
  std::string parts() const;

  RunConfig config_;
  at::Device device_;
  int world_size_;
  MemoryEstimate estimate_;
  int local_size_;
  int64_t host_available_ = 0;  // to this rank
  GpuMemory at_start_;
  std::optional<RefusedAllocations> refused_;
  std::optional<Plan> plan_;
};

// What each rank of a run can have, estimated before its GPUs are used. Collective.
MemoryNeed memory_limit(at::Device device, parallel::MpiRuntime& mpi);

}  // namespace mpzero
