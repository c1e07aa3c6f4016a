#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "parallel/host/memory_use.hpp"
#include "parallel/optimizer/optimizer_shard.hpp"
#include "parallel/trace/timeline.hpp"
#include "parallel/zero/buffer_pool.hpp"
#include "parallel/zero/flat_unit.hpp"
#include "parallel/zero/gather_schedule.hpp"

namespace mpzero::parallel {

// Whoever writes shards beside the thread that uses the store.
class ShardWriter {
 public:
  virtual ~ShardWriter() = default;
  // Whether wait() would return at once.
  virtual bool written(size_t unit) = 0;
  // Until the unit's shard has its new values, for work queued on the current stream from now on.
  virtual void wait(size_t unit) = 0;
};

// When a shard has its new values: for work queued on the current stream from now on, or once its writer says so.
enum class Written { kNow, kLater };

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
  // What a store makes.
  struct Sizes {
    bool transient = false;       // units are gathered on demand and freed
    bool offloaded = false;       // shards are in host memory while a GPU trains
    std::vector<int64_t> kept{};  // elements of each unit: its shard, or all of it
  };
  static Sizes sizes(const std::vector<FlatLayout>& layouts, const Options& options);
  // What memory_use() of such a store says after plan(uses).
  static MemoryUse memory_use(const std::vector<FlatLayout>& layouts, const Options& options,
                              const std::vector<size_t>& uses);

  // `units`, `layouts` and `communicator` outlive the store.
  ParameterStore(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts, int part,
                 Communicator& communicator, const Options& options);

  // Keeps as much gathered as `bytes` of device memory more allow, in place of the limits given. Behind plan(), between
  // two steps; collective, all ranks give the same.
  void use_memory(int64_t bytes);
  // Offloaded shards move to the device for good, those of as many units as `bytes` of its memory have room for: what
  // is updated on the host then goes straight there, and neither waits in host memory nor crosses the bus at each use.
  // Returns the bytes taken. Between two steps, when no unit is in use: waits for gathers that have been started.
  // Collective, all ranks give the same.
  int64_t move_to_device(int64_t bytes);
  // The units that gather() will be called with from now on, in this order, the same on every rank: what is gathered
  // ahead and what is kept follows from it. Makes the buffers that it needs beyond those of earlier plans: none are
  // made by gather(). Collective.
  void plan(std::vector<size_t> uses);
  // The unit's parameters, whole, for work queued on the current stream until the matching release().
  std::span<const at::Tensor> gather(size_t unit);
  void release(size_t unit);

  // Before the first publish() of an update: what is gathered is of no more use.
  void invalidate();
  // This rank's part: written by the optimizer, then made known to the other ranks by publish(). In host memory if
  // offloaded and not moved.
  const at::Tensor& shard(size_t unit) const { return states_[unit].shard; }
  // A shard written later is waited for in gather(); all ranks say the same. The units become known to the other ranks
  // in the order of these calls, or, if sharded, in that of the plan.
  void publish(size_t unit, Written written = Written::kNow);
  // Outlives the store; needed before the first shard that is written later.
  void set_writer(ShardWriter& writer);

  // Takes note on `timeline`, which outlives the store, of when it stands still for shards that are written later.
  void measure_waits(Timeline& timeline) { timeline_ = &timeline; }
  // Since the last call, in the timeline's order.
  std::vector<Stall> take_stalls() { return std::exchange(stalls_, {}); }

  MemoryUse memory_use() const;

 private:
  struct UnitState {
    at::Tensor shard;
    at::Tensor whole;  // defined while gathered, or always
    std::vector<at::Tensor> views;
    std::unique_ptr<PendingCollective> pending;
    Written written = Written::kNow;
    bool due = false;  // in due_
  };

  // Takes note of what is to be gathered, and begins with what needs no waiting for on any rank.
  void gather_next(const std::vector<size_t>& units);
  void start_certain();
  void start_written();
  void start_until(size_t unit);
  void start_oldest();
  void start_to_gather(size_t unit);
  void start_whole(size_t unit);
  // Work that copy_stream_ gets from now on comes behind what the current stream has.
  void follow_current_stream();
  void let_go(size_t unit);
  void reserve_buffers();
  // All buffers together, were these the schedule's limits.
  int64_t elements_of_buffers(const GatherLimits& limits) const;
  void follow(UnitState& state, std::unique_ptr<PendingCollective> pending);

  const std::vector<UnitSpec>& units_;
  const std::vector<FlatLayout>& layouts_;
  Communicator& communicator_;
  int part_;
  bool transient_ = false;  // see Sizes
  bool offloaded_ = false;  // as far as shards have not moved to the device
  bool overlap_;
  BufferPool pool_;
  GatherSchedule schedule_;                           // of transient units
  std::optional<c10::cuda::CUDAStream> copy_stream_;  // host to device, beside compute
  std::vector<UnitState> states_;
  // What is to be gathered and has not been started: all ranks start it in this order, each as soon as it can.
  std::deque<size_t> due_;
  ShardWriter* writer_ = nullptr;
  Timeline* timeline_ = nullptr;
  std::vector<Stall> stalls_;
};

}  // namespace mpzero::parallel
