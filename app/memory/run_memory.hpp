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
  int64_t total = 0;                 // from the GPU, by PyTorch's allocator and NCCL's buffers; on a CPU, from the host
  std::optional<int64_t> allocated;  // of that, in tensors
};

// Plans a run's GPU memory, describes the plan, compares it with measurements, and suggests changes if memory is short.
// On the CPU, memory is not planned: `auto` keeps all activations, since it is unknown how much host memory a process
// may use (other processes, caches and swapping share it), and recomputation costs most if compute is slow.
class RunMemory {
 public:
  // Call before anything large is allocated on `device`.
  RunMemory(const RunSetup& setup, at::Device device, const parallel::MpiRuntime& mpi);

  // Call before the data is read. Checks that a micro-batch fits at all: its tokens on the host, and the minimum of its
  // activations on the device. Collective; throws UserError on all ranks if it does not fit.
  void check_micro_batch(ProcessGroup& group) const;

  // Call before the training state is allocated. Returns the host memory available for updates before the norm is
  // known; std::nullopt: no limit. Collective; throws UserError on all ranks if the state, and layer inputs of
  // --recompute host, do not fit even without that memory.
  std::optional<int64_t> host_extra_bytes(ProcessGroup& group) const;

  // Chooses what each layer recomputes, by layer, once the training state is allocated (`states`). Collective: every
  // rank gets the same levels, which fit on the GPU with the least available memory. Throws UserError on all ranks if
  // --recompute auto finds no levels that fit.
  std::vector<model::Recompute> plan(const parallel::MemoryUse& states, ProcessGroup& group);

  // After plan(): the recompute level, e.g. "selective", or "none x 20, full x 8" if layers differ.
  std::string recompute() const;
  // After plan(): the number of layers that keep the FP8 casts of their weights, for Decoder::keep_casts.
  int64_t kept_casts() const { return estimate_.decoder().kept_casts(); }
  // After plan(): bytes that the plan does not use, without its margin; the same on all ranks.
  int64_t spare() const;
  // Memory left on the GPU with the least, by the run's measured peak so far. Collective.
  int64_t measured_spare(ProcessGroup& group) const;
  // Records that the training state has grown.
  void states_have_grown(const parallel::MemoryUse& states);
  // Records that states have moved between host and GPU.
  void states_have_moved(const parallel::MemoryUse& states) { plan_->states = states; }

  // After plan(): the log lines, and a warning if --recompute keeps more than fits. None on the CPU.
  std::vector<std::string> breakdown() const;
  std::optional<std::string> warning() const;

  // The planned peak of a rank, in tensors; std::nullopt on the CPU.
  std::optional<int64_t> planned() const;
  // This rank's peak so far.
  PeakMemory peak() const;
  // Compares the plan with this rank's measurements so far; std::nullopt before plan().
  std::optional<std::string> comparison() const;

  // The message for an error that satisfies is_out_of_gpu_memory().
  std::string explain_out_of_memory(const std::exception& error) const;

 private:
  struct Plan {
    parallel::MemoryUse states;
    LayerLevels levels;
    int64_t registered = 0;  // of the states, in NCCL's memory
    int64_t context = 0;     // used by CUDA and NCCL
    int64_t available = 0;   // for states and activations, on the GPU with the least memory
  };

  std::vector<MemoryChange> changes(int64_t device_limit) const;
  // The plan's values or, before plan(), the estimate's: states, activations and workspace.
  parallel::MemoryUse states() const;
  LayerLevels levels() const;
  // The levels that plan() will probably choose once `states` are allocated. Collective.
  LayerLevels expected_levels(const parallel::MemoryUse& states, ProcessGroup& group) const;
  // Host memory for layer inputs, in addition to `states`, on the rank with the least. Collective.
  int64_t host_budget(const parallel::MemoryUse& states, ProcessGroup& group) const;
  int64_t planned_bytes() const;
  std::string parts() const;

  RunConfig config_;
  at::Device device_;
  int world_size_;
  MemoryEstimate estimate_;
  int local_size_;
  int64_t host_available_ = 0;  // available to this rank
  GpuMemory at_start_;
  std::optional<RefusedAllocations> refused_;
  std::optional<Plan> plan_;
};

// Memory available to each rank of a run, estimated before its GPUs are used. Collective.
MemoryNeed memory_limit(at::Device device, parallel::MpiRuntime& mpi);

}  // namespace mpzero
