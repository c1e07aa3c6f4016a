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

// Writer of shards that runs concurrently with the thread that uses the store.
class ShardWriter {
 public:
  virtual ~ShardWriter() = default;
  // Returns true if wait() would return immediately.
  virtual bool written(size_t unit) = 0;
  // Waits for the shard's new values. Later work on the current stream can read these values.
  virtual void wait(size_t unit) = 0;
};

// When a shard's new values become available. kNow: immediately, for work queued on the current stream from now on.
// kLater: after the ShardWriter has written them.
enum class Written { kNow, kLater };

struct ParameterStoreOptions {
  bool sharded = false;                      // ZeRO-3
  Placement placement = Placement::kDevice;  // shards; kHost for offload_param
  bool pinned = false;
  bool overlap = true;      // gathers overlap with earlier work; otherwise compute waits for them
  bool compressed = false;  // compress traffic between nodes; see ParameterExchange
  // Codec for ranges that are gathered in quantized form within the node. Requires sharded bf16 parameters on the
  // device.
  std::shared_ptr<const WeightCodec> codec = nullptr;
  WeightCodes codes = WeightCodes::kNone;  // format of quantized units; see FlatLayout::of_messages()
  GatherLimits limits;
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
};

// Parameters of the units in the compute dtype: this rank's shard of each unit, and the full parameters while a unit
// runs. ReplicatedParameters keeps full parameters on every rank (ZeRO 0 to 2). ShardedParameters gathers each unit on
// demand (ZeRO-3 and offloaded parameters). With several nodes, a node shard is gathered across nodes once per update,
// and units are gathered within the node.
//
//   publish (the optimizer)  ->  due  ->  started (pending)  ->  gather() waits  ->  views are valid  ->  release()
//
// Gathers start in the order in which they become due. This order is the same on every rank, because it depends only on
// the sequence of calls, not on the progress of each rank's host thread. A rank starts each gather after its own shard
// has been written, so ranks differ in timing but not in order. The order covers both levels: gathers of two NCCL
// communicators may wait for each other (for SMs, or in a CUDA queue), so ranks that start them in different orders
// could deadlock.
//
// A node shard that the host writes later therefore does not become due when it is published, because the gathers of
// all later units would wait for this write. The states of a unit's node shard, in stores that gather node shards:
//
//   in          | event                              | then
//   ------------+------------------------------------+-----------------------------------------------------------
//   -           | publish(kNow)                      | kDue: gathered long before the node shard is used
//   -           | publish(kLater)                    | kHeldBack
//   kHeldBack   | the gather of its unit within the  | kDue, before that gather and after all gathers that
//               |   node becomes due                 |   are already due
//   kHeldBack   | start_all()                        | kDue, in unit order
//   kDue        | all earlier gathers have started,  | kStarted
//               |   and the shard has been written,  |
//               |   or a caller waits for it         |
class ParameterStore {
 public:
  virtual ~ParameterStore() = default;
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  // Sets the upcoming gather() calls, in an order that must be the same on every rank. The order determines prefetching
  // and reuse. Allocates all missing buffers, so that gather() does not allocate. Must be called by all ranks.
  virtual void plan(std::vector<size_t> /*uses*/) {}
  // Replaces the configured limits: keeps as many units gathered as `bytes` of additional device memory allow. Must be
  // called by all ranks, with the same value, after plan() and between two steps.
  virtual void use_memory(int64_t /*bytes*/) {}
  // Permanently moves offloaded shards to the device, for as many units as fit into `bytes` of device memory. Host
  // updates of these units then write directly to the device, without a copy in host memory or a transfer at each use.
  // Returns the number of bytes of device memory used. Waits for started gathers. Must be called by all ranks, with the
  // same value, between two steps and when all units are released.
  virtual int64_t move_to_device(int64_t /*bytes*/) { return 0; }

  // Returns the unit's full parameters, for work queued on the current stream until the matching release(). Ranges that
  // a codec quantizes have the codec's dtype. The parameters of a quantized unit (UnitSpec::coded) are dequantized in
  // each call, and are valid until the next quantized unit is gathered.
  std::span<const at::Tensor> gather(size_t unit);
  virtual void release(size_t /*unit*/) {}
  // Returns a number that changes whenever the unit's values change, or std::nullopt if gather() may return different
  // tensors each time.
  virtual std::optional<uint64_t> version(size_t /*unit*/) const { return std::nullopt; }

  // Returns the maxima and dequantization factors of the ranges that a codec quantizes, fp32 [2, ranges] in unit order;
  // see WeightCodec. The scales remain valid as long as the result of gather(). For other units, returns an undefined
  // tensor.
  virtual at::Tensor scales(size_t /*unit*/) const { return {}; }

  // Drops gathered parameters. Must be called before the first publish() of an update.
  void invalidate();
  // Returns this rank's shard, which the optimizer writes and publish() sends to the other ranks. The shard is in host
  // memory if it is offloaded and has not been moved to the device. With compression, gathered parameters only
  // approximate the shard; later updates send the difference.
  const at::Tensor& shard(size_t unit) const { return states_[unit].shard; }
  // Sends the new values of the unit's shard to the other ranks. With kLater, gather() waits for the ShardWriter. All
  // ranks must pass the same `written`. Units are gathered in the order of the publish() calls or, with sharded
  // parameters, in the order of the plan.
  void publish(size_t unit, Written written = Written::kNow);

  // Must be called instead of publish() if the unit's shards have not changed on any rank.
  virtual void keep(size_t /*unit*/) {}

  // Returns true if parameters are compressed between nodes. begin_with_published(), common_shard() and
  // set_common_shard() require compression.
  bool is_compressed() const { return exchange_ != nullptr; }
  // Makes each unit's next publish() send uncompressed values.
  void begin_with_published() { exchange_->begin_with_wanted(); }
  // Returns this rank's shard [shard_numel] of the gathered (compressed) parameter values, which are identical on all
  // ranks, for work queued on the current stream. Starts all due gathers, so all ranks must call common_shard() in the
  // same order.
  at::Tensor common_shard(size_t unit);
  // Sets the values that common_shard() returns. The next publish() sends these values instead of shard(). Must be
  // called between invalidate() and publish().
  void set_common_shard(size_t unit, const at::Tensor& values);

  // Sets the ShardWriter, which must outlive the store. Must be called before the first publish() with kLater.
  void set_writer(ShardWriter& writer);

  // Records how long compute waits for the ShardWriter. `timeline` must outlive the store.
  void measure_waits(Timeline& timeline) { timeline_ = &timeline; }
  // Returns the stalls since the last call, in the order of the timeline.
  std::vector<Stall> take_stalls() { return std::exchange(stalls_, {}); }

  virtual MemoryUse memory_use() const = 0;

 protected:
  struct UnitState {
    at::Tensor shard;
    at::Tensor node_shard;  // [node_shard_numel], including the shard
    at::Tensor full;        // [padded_numel]; defined while gathered, or always
    std::vector<at::Tensor> views;
    std::unique_ptr<PendingCollective> pending_node_shard;  // gather between nodes; null after a stream waits for it
    std::unique_ptr<PendingCollective> pending;
    Written written = Written::kNow;
    uint64_t published = 0;           // number of publish() calls
    bool due = false;                 // queued in due_
    bool node_shard_is_held = false;  // kHeldBack
  };
  // A gather that is due but has not been started.
  struct Due {
    size_t unit = 0;
    bool between_nodes = false;  // start_between_nodes(); otherwise start()
  };

  // `shard_index`: index of this rank's shard.
  ParameterStore(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts, int shard_index,
                 const Levels& levels, const ParameterStoreOptions& options);

  // Called by gather() before it waits for the unit.
  virtual void about_to_use(size_t /*unit*/) {}
  // Starts the gather of the unit. Called after this rank's shard has been written.
  virtual void start(size_t unit) = 0;
  // All-gathers the unit's node shard across nodes. Must be overridden if due_after_publishing() returns gathers
  // between nodes.
  virtual void start_between_nodes(size_t /*unit*/) {}
  // Returns the gathers that become due when a unit's shard is published.
  virtual std::vector<Due> due_after_publishing(size_t unit, Written written) = 0;
  // Waits for gathers of the old parameters and drops their results.
  virtual void drop_gathered() = 0;

  // Queues gathers, and starts those for which no rank has to wait for its ShardWriter.
  void start_next(const std::vector<Due>& steps);
  void start_until(size_t unit);
  // Starts all queued gathers, and the gathers of all node shards that were held back.
  void start_all();
  void follow(UnitState& state, std::unique_ptr<PendingCollective> pending);
  void follow_between_nodes(UnitState& state, std::unique_ptr<PendingCollective> pending);
  // Returns the memory used by compression and by dequantized units.
  MemoryUse common_memory() const;
  // Returns views of the unit's parameters in `full` or, for a quantized unit, in decoded_.
  std::vector<at::Tensor> views_of(size_t unit) const;
  // All-gathers the unit's node shard across nodes. Compressed gathers always use the same stream.
  std::unique_ptr<PendingCollective> gather_between_nodes(size_t unit);
  // Waits for the ShardWriter if the unit's shard was published with Written::kLater.
  void wait_for_writer(size_t unit);

  const std::vector<UnitSpec>& units_;
  const std::vector<FlatLayout>& layouts_;
  const Levels levels_;
  const int shard_index_;
  const at::TensorOptions tensor_options_;
  std::vector<UnitState> states_;
  std::unique_ptr<ParameterExchange> exchange_;  // null without compression
  std::optional<c10::Stream> copy_stream_;       // stream for gathers that must not block compute

 private:
  void decode(size_t unit);
  void let_go(size_t unit);
  void start_certain();
  void start_written();
  void start_oldest();

  const bool overlap_;
  const WeightCodes codes_;
  at::Tensor decoded_;   // dequantized values of the last unit that was gathered in quantized form
  std::deque<Due> due_;  // node shards in kDue, and units to gather within the node, in start order
  ShardWriter* writer_ = nullptr;
  Timeline* timeline_ = nullptr;
  std::vector<Stall> stalls_;
};

// `units`, `layouts` and the communicators must outlive the store. `shard_index`: index of this rank's shard.
std::unique_ptr<ParameterStore> make_parameter_store(const std::vector<UnitSpec>& units,
                                                     const std::vector<FlatLayout>& layouts, int shard_index,
                                                     const Levels& levels, const ParameterStoreOptions& options);

// Returns true for each unit that the store gathers in quantized form. A unit is gathered without quantization if
// quantization saves no bytes.
std::vector<bool> units_in_codes(const std::vector<FlatLayout>& layouts, const ParallelLayout& ranks,
                                 const ParameterStoreOptions& options);

}  // namespace mpzero::parallel
