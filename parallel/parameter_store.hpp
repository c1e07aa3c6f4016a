#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "parallel/buffer_pool.hpp"
#include "parallel/communicator.hpp"
#include "parallel/flat_unit.hpp"
#include "parallel/gather_schedule.hpp"
#include "parallel/memory_use.hpp"
#include "parallel/optimizer_shard.hpp"

namespace mpzero::parallel {

// The units' parameters in the compute dtype: whole on every rank (ZeRO 0-2), or only this rank's shard, on the device
// or in host memory, gathered for as long as a unit runs (ZeRO-3).
class ParameterStore {
 public:
  struct Options {
    bool sharded = false;                      // ZeRO-3
    Placement placement = Placement::kDevice;  // of the shards; kHost is offload_param
    bool pinned = false;
    bool overlap = true;  // gather while earlier work runs; else nothing runs beside a gather
    GatherLimits limits;
    at::Device device = at::kCPU;
    at::ScalarType dtype = at::kFloat;
  };
  // `units`, `layouts` and `communicator` outlive the store.
  ParameterStore(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts, int part,
                 Communicator& communicator, const Options& options);

  // Keeps as much gathered as `bytes` of device memory more allow, in place of the limits given. All ranks give the
  // same.
  void use_memory(int64_t bytes);
  // The units that gather() will be called with from now on, in this order, the same on every rank: what is gathered
  // ahead and what is kept follows from it.
  void plan(std::vector<size_t> uses);
  // The unit's parameters, whole, for work queued on the current stream until the matching release().
  std::span<const at::Tensor> gather(size_t unit);
  void release(size_t unit);

  // Before the first publish() of an update: what is gathered is of no more use.
  void invalidate();
  // This rank's part: written by the optimizer, then made known to the other ranks by publish(). In host memory if
  // offloaded.
  const at::Tensor& shard(size_t unit) const { return states_[unit].shard; }
  void publish(size_t unit);

  MemoryUse memory_use() const;

 private:
  struct UnitState {
    at::Tensor shard;
    at::Tensor whole;  // defined while gathered, or always
    std::vector<at::Tensor> views;
    std::unique_ptr<PendingCollective> pending;
  };

  void start_to_gather(const std::vector<size_t>& units);
  void start_to_gather(size_t unit);
  void let_go(size_t unit);
  void reserve_buffers();
  void follow(UnitState& state, std::unique_ptr<PendingCollective> pending);

  const std::vector<UnitSpec>& units_;
  const std::vector<FlatLayout>& layouts_;
  Communicator& communicator_;
  int part_;
  bool transient_;  // units are gathered on demand and freed
  bool on_host_;
  bool overlap_;
  BufferPool pool_;
  GatherSchedule schedule_;                           // of transient units
  std::optional<c10::cuda::CUDAStream> copy_stream_;  // host to device, beside compute
  std::vector<UnitState> states_;
};

}  // namespace mpzero::parallel
