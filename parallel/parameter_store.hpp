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
    at::Device device = at::kCPU;
    at::ScalarType dtype = at::kFloat;
  };
  // `units`, `layouts` and `communicator` outlive the store.
  ParameterStore(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts, int part,
                 Communicator& communicator, const Options& options);

  // Starts to gather a unit that is not there yet.
  void prefetch(size_t unit);
  // The unit's parameters, whole, for work queued on the current stream until the matching release().
  std::span<const at::Tensor> gather(size_t unit);
  void release(size_t unit);

  // This rank's part: written by the optimizer, then made known to the other ranks by publish(). In host memory if
  // offloaded.
  const at::Tensor& shard(size_t unit) const { return states_[unit].shard; }
  void publish(size_t unit);

 private:
  struct UnitState {
    at::Tensor shard;
    at::Tensor whole;  // defined while gathered, or always
    std::vector<at::Tensor> views;
    std::unique_ptr<PendingCollective> pending;
    int users = 0;
  };

  const std::vector<UnitSpec>& units_;
  const std::vector<FlatLayout>& layouts_;
  Communicator& communicator_;
  int part_;
  bool transient_;  // units are gathered on demand and freed
  bool on_host_;
  BufferPool pool_;
  std::optional<c10::cuda::CUDAStream> copy_stream_;  // host to device, beside compute
  std::vector<UnitState> states_;
};

}  // namespace mpzero::parallel
