#pragma once

#include <vector>

#include "parallel/codes/coded_gather.hpp"
#include "parallel/zero/buffer_pool.hpp"
#include "parallel/zero/gather_schedule.hpp"
#include "parallel/zero/parameter_store.hpp"

namespace mpzero::parallel {

// Returns true if shards are in host memory and the training device is a GPU.
bool is_offloaded(const ParameterStoreOptions& options);
// Returns the layout of quantized gathers for each unit. Units whose layout does not save bytes are gathered
// without quantization.
std::vector<CodedLayout> coded_layouts(const std::vector<FlatLayout>& layouts, const ParallelLayout& ranks,
                                       const ParameterStoreOptions& options);

// ZeRO-3 and offloaded parameters: keeps this rank's node shard of each unit, on the device or in host memory, and
// gathers full units on demand into reused buffers, as decided by a GatherSchedule. For a quantized unit, the schedule
// counts two-byte elements, about half the number of weights. After each update, a node shard is gathered across nodes
// once: at publish(), even if the unit is not needed soon, or with the unit's first gather if the host writes the shard
// later.
class ShardedParameters final : public ParameterStore {
 public:
  ShardedParameters(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts, int shard_index,
                    const Levels& levels, const ParameterStoreOptions& options);

  void plan(std::vector<size_t> uses) override;
  void use_memory(int64_t bytes) override;
  int64_t move_to_device(int64_t bytes) override;
  void release(size_t unit) override;
  void keep(size_t unit) override { start_next(to_gather(schedule_.publish(unit))); }
  at::Tensor scales(size_t unit) const override;

  MemoryUse memory_use() const override;

 private:
  void about_to_use(size_t unit) override;
  void start(size_t unit) override;
  void start_between_nodes(size_t unit) override;
  std::vector<Due> due_after_publishing(size_t unit, Written written) override;
  void drop_gathered() override;

  static std::vector<Due> to_gather(const std::vector<size_t>& units);
  // Uses `node_shard` as the memory of the unit's node shard and shard.
  void place(size_t unit, const at::Tensor& node_shard);
  // Implements start_between_nodes() for a unit whose shards are in host memory.
  void start_between_hosts(size_t unit);
  // Copies the unit's node shard on copy_stream_ if needed, then gathers the unit on the same stream.
  void start_on_copy_stream(size_t unit);
  // Quantizes this rank's part of the unit on copy_stream_, then gathers the unit.
  void start_in_codes(size_t unit);
  bool in_codes(size_t unit) const { return codes_ && codes_->has(unit); }
  void free_full(size_t unit);
  void reserve_buffers();
  // Returns the total number of elements in all buffers under `limits`.
  int64_t elements_of_buffers(const GatherLimits& limits) const;

  const bool offloaded_;                     // shards are in host memory, except for those moved to the device
  const std::vector<int64_t> buffer_sizes_;  // one per unit, in elements of the parameters' dtype
  BufferPool pool_;
  std::optional<CodedGather> codes_;
  // Staging buffer for a node shard in transit between host memory and the network, with offloaded parameters and
  // several nodes.
  at::Tensor inter_node_staging_;
  // Stream for gathers between nodes if shards are written later, compressed or in host memory.
  std::optional<c10::Stream> inter_node_stream_;
  GatherSchedule schedule_;
};

}  // namespace mpzero::parallel
