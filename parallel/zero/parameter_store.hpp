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

// Writes shards while the thread that uses the store does something else.
class ShardWriter {
 public:
  virtual ~ShardWriter() = default;
  // Whether wait() would return immediately.
  virtual bool written(size_t unit) = 0;
  // Until the unit's shard has its new values, for work queued on the current stream from now on.
  virtual void wait(size_t unit) = 0;
};

// When a shard has its new values: for work queued on the current stream from now on, or once its writer says so.
enum class Written { kNow, kLater };

struct ParameterStoreOptions {
  bool sharded = false;                      // ZeRO-3
  Placement placement = Placement::kDevice;  // of the shards; kHost is offload_param
  bool pinned = false;
  bool overlap = true;      // gather while earlier work runs; else nothing runs during a gather
  bool compressed = false;  // between nodes: see ParameterExchange
  // Makes codes of what it names, which are gathered within the node in place of the parameters: of sharded bf16
  // parameters on the device.
  std::shared_ptr<const WeightCodec> codec = nullptr;
  WeightCodes codes = WeightCodes::kNone;  // of coded units, whose shards are messages: see FlatLayout::of_messages
  GatherLimits limits;
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
};

// The units' parameters in the compute dtype: this rank's shard of each, and the full parameters for as long as a unit
// runs. ReplicatedParameters keeps all of them full on every rank (ZeRO 0 to 2); ShardedParameters gathers each unit
// when it is needed (ZeRO-3 and offloaded parameters). With several nodes a node shard is gathered once per update from
// the nodes, and units are gathered from the ranks of the node.
//
//   publish (the optimizer)  ->  due  ->  started (pending)  ->  gather() waits  ->  views are valid  ->  release()
//
// All gathers are started in one order, that in which they become due, and it is the same on every rank: what is due
// follows from the calls only, never from how far a rank's host is. Each starts as soon as its rank's shard has been
// written, so ranks differ in when, but not in what comes next. That holds over both levels, not only within one:
// gathers of two NCCL communicators may wait for each other (for multiprocessors, or in one of CUDA's queues), so two
// ranks that started them in different orders could wait forever.
//
// That is why a node shard whose own shard is written later does not become due when it is published: the gathers of
// all units behind it would wait for its host. The states of a unit's node shard, of stores that gather them:
//
//   in          | event                              | then
//   ------------+------------------------------------+-----------------------------------------------------------
//   -           | publish(kNow)                      | kDue: all nodes have it long before it is used
//   -           | publish(kLater)                    | kHeldBack
//   kHeldBack   | its unit becomes due in the node   | kDue, in front of its unit and behind what is due already
//   kHeldBack   | start_all()                        | kDue, in the order of the units
//   kDue        | all due before it have started,    | kStarted
//               |   and its shard has been written,  |
//               |   or somebody must wait for it     |
class ParameterStore {
 public:
  virtual ~ParameterStore() = default;
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  // The units that gather() will be called with from now on, in this order, the same on every rank: what is gathered
  // ahead and what is kept follows from it. Makes the buffers that it needs in addition to those of earlier plans:
  // gather() makes none. Collective.
  virtual void plan(std::vector<size_t> /*uses*/) {}
  // Keeps as much gathered as `bytes` more of device memory allow, in place of the limits given. After plan(), between
  // two steps; collective, all ranks give the same.
  virtual void use_memory(int64_t /*bytes*/) {}
  // Offloaded shards move to the device for good, those of as many units as fit into `bytes` of its memory: what is
  // updated on the host then goes straight there, and neither waits in host memory nor crosses the bus at each use.
  // Returns the bytes taken. Between two steps, when no unit is in use: waits for gathers that have been started.
  // Collective, all ranks give the same.
  virtual int64_t move_to_device(int64_t /*bytes*/) { return 0; }

  // The unit's full parameters, for work queued on the current stream until the matching release(). What a codec has
  // made codes of has the codec's type. A coded unit is decoded by each call, and valid until that of the next one.
  std::span<const at::Tensor> gather(size_t unit);
  virtual void release(size_t /*unit*/) {}
  // A number that changes with the unit's parameters, where gather() returns the same tensors each time, with the same
  // values as long as the number is the same. Otherwise none.
  virtual std::optional<uint64_t> version(size_t /*unit*/) const { return std::nullopt; }

  // Of a unit that is gathered as codes, in the unit's order of ranges: fp32 [2, ranges], the maxima of the ranges and
  // what their codes are multiplied by; see WeightCodec. Valid as long as gather()'s result. Undefined for other units.
  virtual at::Tensor scales(size_t /*unit*/) const { return {}; }

  // Before the first publish() of an update: what is gathered is out of date.
  void invalidate();
  // This rank's shard: written by the optimizer, then made known to the other ranks by publish(). In host memory if
  // offloaded and not moved. Compressed parameters follow it, and what they lack follows in the next updates.
  const at::Tensor& shard(size_t unit) const { return states_[unit].shard; }
  // A shard written later is waited for in gather(); all ranks say the same. The units become known to the other ranks
  // in the order of these calls, or, if sharded, in that of the plan.
  void publish(size_t unit, Written written = Written::kNow);

  // In place of publish() where this rank's shard and those of all others have not changed since.
  virtual void keep(size_t /*unit*/) {}

  // Whether parameters are compressed between nodes; these three are for that case.
  bool is_compressed() const { return exchange_ != nullptr; }
  // The next publish() of each unit makes all parameters equal to what is published.
  void begin_with_published() { exchange_->begin_with_wanted(); }
  // This rank's shard of the parameters as all ranks have them [shard_numel], for work queued on the current stream.
  // Starts all gathers that are due, so all ranks call it in the same order.
  at::Tensor common_shard(size_t unit);
  // Sets it, and the next publish() makes it known instead of what is published. Between invalidate() and publish().
  void set_common_shard(size_t unit, const at::Tensor& values);

  // Outlives the store; needed before the first shard that is written later.
  void set_writer(ShardWriter& writer);

  // Records on `timeline`, which outlives the store, when it waits for shards that are written later.
  void measure_waits(Timeline& timeline) { timeline_ = &timeline; }
  // Since the last call, in the timeline's order.
  std::vector<Stall> take_stalls() { return std::exchange(stalls_, {}); }

  virtual MemoryUse memory_use() const = 0;

 protected:
  struct UnitState {
    at::Tensor shard;
    at::Tensor node_shard;  // [node_shard_numel], the shard included
    at::Tensor full;        // [padded_numel]; defined while gathered, or always
    std::vector<at::Tensor> views;
    std::unique_ptr<PendingCollective> pending_node_shard;  // its gather from the nodes, until another stream waits
    std::unique_ptr<PendingCollective> pending;
    Written written = Written::kNow;
    uint64_t published = 0;           // calls of publish()
    bool due = false;                 // in due_, to be gathered
    bool node_shard_is_held = false;  // kHeldBack
  };
  // A step towards gathered parameters.
  struct Due {
    size_t unit = 0;
    bool between_nodes = false;  // its node shard; otherwise start()
  };

  // `shard_index`: of this rank.
  ParameterStore(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts, int shard_index,
                 const Levels& levels, const ParameterStoreOptions& options);

  // Before gather() waits for the unit.
  virtual void about_to_use(size_t /*unit*/) {}
  // Gathers the unit's shards, whose own has been written or is waited for.
  virtual void start(size_t unit) = 0;
  // Gathers the unit's node shard from the nodes; only of stores that make it due.
  virtual void start_between_nodes(size_t /*unit*/) {}
  // What becomes due once a unit's shard has been published.
  virtual std::vector<Due> due_after_publishing(size_t unit, Written written) = 0;
  // Waits for gathers of the old parameters, and drops what they gathered.
  virtual void drop_gathered() = 0;

  // Notes what is to be gathered, and starts what needs no waiting for on any rank.
  void start_next(const std::vector<Due>& steps);
  void start_until(size_t unit);
  // Node shards that were held back, too.
  void start_all();
  void follow(UnitState& state, std::unique_ptr<PendingCollective> pending);
  void follow_between_nodes(UnitState& state, std::unique_ptr<PendingCollective> pending);
  // Of compression and decoded units.
  MemoryUse common_memory() const;
  // The unit's parameters in its state's `full`; of a coded unit in decoded_.
  std::vector<at::Tensor> views_of(size_t unit) const;
  // Gathers the unit's node shard, on one stream if compressed.
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
  std::optional<c10::Stream> copy_stream_;       // of shards that wait for the host, while the device computes

 private:
  void decode(size_t unit);
  void let_go(size_t unit);
  void start_certain();
  void start_written();
  void start_oldest();

  const bool overlap_;
  const WeightCodes codes_;
  at::Tensor decoded_;   // the coded unit that was gathered last
  std::deque<Due> due_;  // in kDue, or units that are to be gathered within the node: the order of all starts
  ShardWriter* writer_ = nullptr;
  Timeline* timeline_ = nullptr;
  std::vector<Stall> stalls_;
};

// `units`, `layouts` and the communicators outlive the store. `shard_index`: of this rank.
std::unique_ptr<ParameterStore> make_parameter_store(const std::vector<UnitSpec>& units,
                                                     const std::vector<FlatLayout>& layouts, int shard_index,
                                                     const Levels& levels, const ParameterStoreOptions& options);

// By unit: whether such a store gathers codes. Where they would take no fewer bytes it gathers the parameters.
std::vector<bool> units_in_codes(const std::vector<FlatLayout>& layouts, const ParallelLayout& ranks,
                                 const ParameterStoreOptions& options);

}  // namespace mpzero::parallel
