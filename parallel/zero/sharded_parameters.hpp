#pragma once

#include <vector>

#include "parallel/codes/coded_gather.hpp"
#include "parallel/zero/buffer_pool.hpp"
#include "parallel/zero/gather_schedule.hpp"
#include "parallel/zero/parameter_store.hpp"

namespace mpzero::parallel {

// Whether shards are in host memory while a GPU trains.
bool is_offloaded(const ParameterStoreOptions& options);
// By unit, how a store of these options gathers codes; those that do not save anything stand for what is gathered as it
// is.
std::vector<CodedLayout> coded_layouts(const std::vector<FlatLayout>& layouts, const ParallelLayout& ranks,
                                       const ParameterStoreOptions& options);

// This rank's node shard of each unit, on the device or in host memory; full units are gathered on demand into buffers
// that are used again, as a GatherSchedule says: ZeRO-3, and offloaded parameters. A unit in codes counts there by its
// bytes: about half of its elements. Between nodes a node shard is gathered once after each update: at publish(),
// whether or not the unit is needed soon, or with the unit's first gather if the host writes it later.
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
  // The unit's node shard and shard are there from now on.
  void place(size_t unit, const at::Tensor& node_shard);
  // start_between_nodes() of a unit in host memory.
  void start_between_hosts(size_t unit);
  // Copies the node shard on copy_stream_ if needed, then gathers it there.
  void start_on_copy_stream(size_t unit);
  // Gathers codes, which copy_stream_ makes first.
  void start_in_codes(size_t unit);
  bool in_codes(size_t unit) const { return codes_ && codes_->has(unit); }
  void free_full(size_t unit);
  void reserve_buffers();
  // All buffers together, were these the schedule's limits.
  int64_t elements_of_buffers(const GatherLimits& limits) const;

  const bool offloaded_;                     // as far as shards have not moved to the device
  const std::vector<int64_t> buffer_sizes_;  // by unit, in elements of the parameters' type
  BufferPool pool_;
  std::optional<CodedGather> codes_;
  // With offloaded parameters and several nodes: the largest node shard on its way between host and network.
  at::Tensor inter_node_staging_;
  // With several nodes: what is gathered between them and is not there yet, is compressed, or comes from host memory.
  std::optional<c10::Stream> inter_node_stream_;
  GatherSchedule schedule_;
};

}  // namespace mpzero::parallel
