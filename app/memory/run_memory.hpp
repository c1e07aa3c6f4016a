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

// Peak memory of a rank, in bytes.
struct PeakMemory {
  int64_t total = 0;  // GPU memory reserved by PyTorch and NCCL's buffers; on a CPU, memory of the process
  std::optional<int64_t> allocated;  // part of `total` in tensors
};

// Plans the memory of a run, compares the plan with measurements, and suggests changes if memory is scarce. On the CPU,
// exceeding the plan only causes a warning, because the available host memory is uncertain.
class RunMemory {
 public:
  // Must be constructed before large allocations on `device` and before NCCL starts: expected_limit() subtracts NCCL's
  // memory.
  RunMemory(const RunSetup& setup, at::Device device, const parallel::MpiRuntime& mpi);

  // Checks that a micro-batch fits: its tokens in host memory, and its minimum activations in device memory. Must be
  // called before the data is read. Collective. Throws UserError on all ranks if the micro-batch does not fit.
  void check_micro_batch(ProcessGroup& group) const;

  // Returns true if gradients are copied to host memory and released before the update. `preferred`: the faster choice,
  // identical on all ranks; std::nullopt: unknown. See MemoryEstimate::choose_release(). Must be called before
  // host_extra_bytes() and plan(). Collective.
  bool choose_release(ProcessGroup& group, std::optional<bool> preferred);

  // Returns the bytes of host memory available for optimizer updates that start before the gradient norm is known, or
  // std::nullopt for no limit. Must be called before the training state is allocated. Collective. Throws UserError on
  // all ranks if the training state and the activations of --recompute host or host_attention do not fit.
  std::optional<int64_t> host_extra_bytes(ProcessGroup& group) const;

  // Returns the recompute level of each layer, identical on all ranks. `states`: memory of the allocated training
  // state. With --recompute auto, the levels fit on the GPU with the least available memory. Collective. Throws
  // UserError on all ranks if no levels of --recompute auto fit.
  std::vector<model::Recompute> plan(const parallel::MemoryUse& states, ProcessGroup& group);

  // Returns the planned recompute level, e.g. "selective", or "none x 20, full x 8" if layers differ. Requires plan().
  std::string recompute() const;
  // Returns the number of layers that keep the FP8 casts of their weights, for Decoder::keep_casts(). Requires plan().
  int64_t kept_casts() const { return estimate_.decoder().kept_casts(); }
  // Returns the bytes of GPU memory that the plan leaves unused, excluding the margin; identical on all ranks. Requires
  // plan().
  int64_t spare() const;
  // Returns the bytes that were still unused at the peak measured so far, excluding the margin: the minimum over all
  // GPUs. Collective.
  int64_t measured_spare(ProcessGroup& group) const;
  // Records that the training state has grown.
  void states_have_grown(const parallel::MemoryUse& states);
  // Records that states have moved between host and GPU.
  void states_have_moved(const parallel::MemoryUse& states) { plan_->memory.states = states; }

  // Return the log lines of the plan (none on the CPU), and a warning if --recompute does not fit. Require plan().
  std::vector<std::string> breakdown() const;
  std::optional<std::string> warning() const;

  // Returns the memory of this host that was available before the run, in bytes.
  int64_t host_at_start() const { return host_at_start_; }
  // Returns the estimated peak memory of a rank's tensors, or std::nullopt on the CPU.
  std::optional<int64_t> planned() const;
  // Returns this rank's peak memory so far.
  PeakMemory peak() const;
  // Returns the bytes of host memory that remain free when all ranks of this host reach their estimated peaks; may be
  // negative.
  int64_t host_after_growth() const;
  // Returns a log line that compares the plan with the peak of this rank, or std::nullopt before plan().
  std::optional<std::string> comparison() const;

  // Returns the message, with suggested changes, for an error that satisfies is_out_of_gpu_memory().
  std::string explain_out_of_memory(const std::exception& error) const;

 private:
  struct Plan {
    PlannedMemory memory;
    MemoryRoom room;         // minimum over all ranks
    int64_t registered = 0;  // part of the states in NCCL's memory
  };

  std::vector<MemoryChange> changes(int64_t device_limit) const;
  // Simulates in advance all changes that an error message may suggest, so that other ranks do not wait for the
  // simulations.
  void prepare_changes() const;
  // Returns the planned memory or, before plan(), an estimate.
  PlannedMemory memory() const;
  // Returns the parts of the planned GPU memory, CUDA and NCCL last.
  std::vector<PlannedMemory::Part> device_parts() const;
  // Returns the expected memory limit per rank, as the minimum over all ranks. Collective.
  MemoryNeed expected_limit(ProcessGroup& group) const;
  int64_t planned_bytes() const { return memory().need().device; }

  RunConfig config_;
  at::Device device_;
  int world_size_;
  MemoryEstimate estimate_;
  int local_size_;
  int64_t host_at_start_;
  int64_t host_available_ = 0;  // to this rank, without the margin
  GpuMemory at_start_;
  std::optional<RefusedAllocations> refused_;
  std::optional<Plan> plan_;
};

// Estimates the memory available to each rank before the run uses its GPUs. Collective.
MemoryNeed memory_limit(at::Device device, parallel::MpiRuntime& mpi);

}  // namespace mpzero
