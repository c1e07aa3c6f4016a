#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/parameter_spec.hpp"
#include "parallel/codes/weight_codec.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/host/memory_use.hpp"
#include "parallel/optimizer/optimizer_shard.hpp"
#include "parallel/trace/timeline.hpp"
#include "parallel/zero/exchange.hpp"
#include "parallel/zero/flat_unit.hpp"
#include "parallel/zero/gather_schedule.hpp"
#include "parallel/zero/levels.hpp"

namespace mpzero::parallel {

// Writes shards concurrently with the thread that uses the store.
class ShardWriter {
 public:
  virtual ~ShardWriter() = default;
  // Whether wait() would return immediately.
  virtual bool written(size_t unit) = 0;
  // Waits for the shard's new values, for work queued on the current stream from now on.
  virtual void wait(size_t unit) = 0;
};

// When a shard has its new values: for work queued on the current stream from now on, or once its ShardWriter has
// written it.
enum class Written { kNow, kLater };

struct ParameterStoreOptions {
  bool sharded = false;                      // ZeRO-3
  Placement placement = Placement::kDevice;  // of the shards; kHost is offload_param
  bool pinned = false;
  bool overlap = true;      // gathers overlap with earlier work; otherwise compute waits for them
  bool compressed = false;  // between nodes: see ParameterExchange
  // Quantizes its ranges, which are then gathered quantized within the node: for sharded bf16 parameters on the device.
  std::shared_ptr<const WeightCodec> codec = nullptr;
  WeightCodes codes = WeightCodes::kNone;  // of quantized units, whose shards are messages: see FlatLayout::of_messages
  GatherLimits limits;
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
};

// The units' parameters in the compute dtype: this rank's shard of each, and the full parameters while a unit runs.
// ReplicatedParameters keeps full parameters on every rank (ZeRO 0 to 2); ShardedParameters gathers each unit on demand
// (ZeRO-3 and offloaded parameters). With several nodes, a node shard is gathered between nodes once per update, and
// units are gathered within the node.
//
//   publish (the optimizer)  ->  due  ->  started (pending)  ->  gather() waits  ->  views are valid  ->  release()
//
// Gathers start in the order in which they become due, which is the same on every rank: it depends only on the calls,
// never on the progress of a rank's host. Each starts once its rank's shard has been written, so ranks differ in timing
// but not in order. The order covers both levels: gathers of two NCCL communicators may wait for each other (for
// multiprocessors, or in one of CUDA's queues), so two ranks that started them in different orders could deadlock.
//
// Therefore, a node shard whose own shard is written later is not due when published: the gathers of all units behind
// it would wait for its host. The states of a unit's node shard, in stores that gather node shards:
//
//   in          | event                              | then
//   ------------+------------------------------------+-----------------------------------------------------------
//   -           | publish(kNow)                      | kDue: all nodes have it long before it is used
//   -           | publish(kLater)                    | kHeldBack
//   kHeldBack   | its unit becomes due in the node   | kDue, before its unit and after everything already due
//   kHeldBack   | start_all()                        | kDue, in the order of the units
//   kDue        | all due before it have started,    | kStarted
//               |   and its shard has been written,  |
//               |   or a caller must wait for it     |
class ParameterStore {
 public:
  virtual ~ParameterStore() = default;
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  // Sets the upcoming gather() calls, in order, the same on every rank; prefetching and reuse follow from it. Allocates
  // the buffers that earlier plans lack; gather() allocates none. Collective.
  virtual void plan(std::vector<size_t> /*uses*/) {}
  // Keeps as many units gathered as `bytes` of additional device memory allow, in place of the configured limits. Call
  // after plan(), between two steps. Collective; all ranks pass the same value.
  virtual void use_memory(int64_t /*bytes*/) {}
  // Moves offloaded shards of as many units as fit into `bytes` of device memory to the device, permanently: host
  // updates then go directly to the device, without a copy in host memory and a transfer over the bus at each use.
  // Returns the bytes used. Call between two steps, when no unit is in use: waits for started gathers. Collective; all
  // ranks pass the same value.
  virtual int64_t move_to_device(int64_t /*bytes*/) { return 0; }

  // The unit's full parameters, for work queued on the current stream until the matching release(). Ranges that a codec
  // quantizes have the codec's dtype. A quantized unit (UnitSpec::coded) is dequantized by each call, and is valid
  // until the next one is gathered.
  std::span<const at::Tensor> gather(size_t unit);
  virtual void release(size_t /*unit*/) {}
  // If gather() always returns the same tensors: a number that changes whenever their values do. Otherwise
  // std::nullopt.
  virtual std::optional<uint64_t> version(size_t /*unit*/) const { return std::nullopt; }

  // For a unit that a codec quantizes: fp32 [2, ranges], the ranges' maxima and dequantization factors, in the unit's
  // order of ranges; see WeightCodec. Valid as long as gather()'s result. Undefined for other units.
  virtual at::Tensor scales(size_t /*unit*/) const { return {}; }

  // Call before the first publish() of an update: drops gathered parameters.
  void invalidate();
  // This rank's shard, written by the optimizer and then sent to the other ranks by publish(). In host memory if
  // offloaded and not moved. Compressed parameters only approximate it; later updates send the difference.
  const at::Tensor& shard(size_t unit) const { return states_[unit].shard; }
  // With kLater, gather() waits for the shard's writer; all ranks pass the same value. Units are gathered in the order
  // of these calls or, if sharded, of the plan.
  void publish(size_t unit, Written written = Written::kNow);

  // Call instead of publish() if no rank's shard has changed since.
  virtual void keep(size_t /*unit*/) {}

  // Whether parameters are compressed between nodes; the next three functions require this.
  bool is_compressed() const { return exchange_ != nullptr; }
  // Makes each unit's next publish() send uncompressed values.
  void begin_with_published() { exchange_->begin_with_wanted(); }
  // This rank's shard of the parameters as all ranks hold them [shard_numel], for work queued on the current stream.
  // Starts all due gathers, so all ranks call it in the same order.
  at::Tensor common_shard(size_t unit);
  // Sets common_shard(); the next publish() sends these values instead of shard(). Call between invalidate() and
  // publish().
  void set_common_shard(size_t unit, const at::Tensor& values);

  // `writer` must outlive the store. Required before the first publish() with kLater.
  void set_writer(ShardWriter& writer);

  // Records waits for shards that are written later on `timeline`, which must outlive the store.
  void measure_waits(Timeline& timeline) { timeline_ = &timeline; }
  // The stalls since the last call, in the timeline's order.
  std::vector<Stall> take_stalls() { return std::exchange(stalls_, {}); }

  virtual MemoryUse memory_use() const = 0;

 protected:
  struct UnitState {
    at::Tensor shard;
    at::Tensor node_shard;  // [node_shard_numel], the shard included
    at::Tensor full;        // [padded_numel]; defined while gathered, or always
    std::vector<at::Tensor> views;
    std::unique_ptr<PendingCollective> pending_node_shard;  // gather between nodes, until another stream waits
    std::unique_ptr<PendingCollective> pending;
    Written written = Written::kNow;
    uint64_t published = 0;           // calls of publish()
    bool due = false;                 // in due_, to be gathered
    bool node_shard_is_held = false;  // kHeldBack
  };
  // A gather to start.
  struct Due {
    size_t unit = 0;
    bool between_nodes = false;  // start_between_nodes(); otherwise start()
  };

  // `shard_index`: this rank's.
  ParameterStore(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts, int shard_index,
                 const Levels& levels, const ParameterStoreOptions& options);

  // Called before gather() waits for the unit.
  virtual void about_to_use(size_t /*unit*/) {}
  // Gathers the unit, once this rank's shard has been written.
  virtual void start(size_t unit) = 0;
  // Gathers the unit's node shard between nodes; only for stores that make it due.
  virtual void start_between_nodes(size_t /*unit*/) {}
  // The gathers that become due once a unit's shard has been published.
  virtual std::vector<Due> due_after_publishing(size_t unit, Written written) = 0;
  // Waits for gathers of the old parameters, and drops their results.
  virtual void drop_gathered() = 0;

  // Queues gathers, and starts those that need no waiting on any rank.
  void start_next(const std::vector<Due>& steps);
  void start_until(size_t unit);
  // Also starts node shards that were held back.
  void start_all();
  void follow(UnitState& state, std::unique_ptr<PendingCollective> pending);
  void follow_between_nodes(UnitState& state, std::unique_ptr<PendingCollective> pending);
  // Memory of compression and dequantized units.
  MemoryUse common_memory() const;
  // Views of the unit's parameters in its state's `full` or, for a quantized unit, in decoded_.
  std::vector<at::Tensor> views_of(size_t unit) const;
  // Gathers the unit's node shard, always on the same stream if compressed.
  std::unique_ptr<PendingCollective> gather_between_nodes(size_t unit);
  // Waits for the shard's writer if it is written later.
  void wait_for_writer(size_t unit);

  const std::vector<UnitSpec>& units_;
  const std::vector<FlatLayout>& layouts_;
  const Levels levels_;
  const int shard_index_;
  const at::TensorOptions tensor_options_;
  std::vector<UnitState> states_;
  std::unique_ptr<ParameterExchange> exchange_;  // if compressed
  std::optional<c10::Stream> copy_stream_;       // for shards that wait for the host while the device computes

 private:
  void decode(size_t unit);
  void let_go(size_t unit);
  void start_certain();
  void start_written();
  void start_oldest();

  const bool overlap_;
  const WeightCodes codes_;
  at::Tensor decoded_;   // the quantized unit gathered last, dequantized
  std::deque<Due> due_;  // node shards in kDue, and units to gather within the node, in starting order
  ShardWriter* writer_ = nullptr;
  Timeline* timeline_ = nullptr;
  std::vector<Stall> stalls_;
};

// `units`, `layouts` and the communicators must outlive the store. `shard_index`: this rank's.
std::unique_ptr<ParameterStore> make_parameter_store(const std::vector<UnitSpec>& units,
                                                     const std::vector<FlatLayout>& layouts, int shard_index,
                                                     const Levels& levels, const ParameterStoreOptions& options);

// By unit: whether such a store gathers it quantized; if that saves no bytes, it gathers the parameters.
std::vector<bool> units_in_codes(const std::vector<FlatLayout>& layouts, const ParallelLayout& ranks,
                                 const ParameterStoreOptions& options);

}  // namespace mpzero::parallel
