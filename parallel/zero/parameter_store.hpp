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

// Writes shards concurrently with the thread that uses the store.
class ShardWriter {
 public:
  virtual ~ShardWriter() = default;
  // Whether wait() would return immediately.
  virtual bool written(size_t unit) = 0;
  // Waits until the unit's shard has its new values, for work queued on the current stream from now on.
  virtual void wait(size_t unit) = 0;
};

// When a shard has its new values: for work queued on the current stream from now on, or once its writer reports it.
enum class Written { kNow, kLater };

// The units' parameters in the compute dtype: the full unit on every rank (ZeRO 0-2), or only this rank's shard, on the
// device or in host memory, gathered while a unit runs (ZeRO-3).
class ParameterStore {
 public:
  struct Options {
    bool sharded = false;                      // ZeRO-3
    Placement placement = Placement::kDevice;  // of the shards; kHost is offload_param
    bool pinned = false;
    bool overlap = true;  // gather while earlier work runs; otherwise nothing runs during a gather
    GatherLimits limits;
    at::Device device = at::kCPU;
    at::ScalarType dtype = at::kFloat;
  };
  // What a store allocates.
  struct Sizes {
    bool transient = false;       // units are gathered on demand and freed
    bool offloaded = false;       // shards are in host memory while a GPU trains
    std::vector<int64_t> kept{};  // elements of each unit: its shard, or all of it
  };
  static Sizes sizes(const std::vector<FlatLayout>& layouts, const Options& options);
  // memory_use() of such a store after plan(uses).
  static MemoryUse memory_use(const std::vector<FlatLayout>& layouts, const Options& options,
                              const std::vector<size_t>& uses);

  // `units`, `layouts` and `communicator` outlive the store.
  ParameterStore(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts, int part,
                 Communicator& communicator, const Options& options);

  // Keeps as much gathered as `bytes` of additional device memory allow, instead of the given limits. After plan(),
  // between two steps; collective, with the same value on all ranks.
  void use_memory(int64_t bytes);
  // Offloaded shards move to the device permanently, for as many units as fit into `bytes`: parameters updated on the
  // host are then written directly to the device; they neither wait in host memory nor cross the bus at each use.
  // Returns the bytes used. Between two steps, when no unit is in use: waits for started gathers. Collective, with the
  // same value on all ranks.
  int64_t move_to_device(int64_t bytes);
  // The units that gather() will be called with from now on, in this order, the same on every rank: it determines what
  // is gathered ahead and what is kept. Creates the buffers that it needs in addition to those of earlier plans;
  // gather() creates none. Collective.
  void plan(std::vector<size_t> uses);
  // The unit's full parameters, for work queued on the current stream until the matching release().
  std::span<const at::Tensor> gather(size_t unit);
  void release(size_t unit);

  // Before the first publish() of an update: the gathered parameters become outdated.
  void invalidate();
  // This rank's shard: written by the optimizer, then published to the other ranks by publish(). In host memory if
  // offloaded and not moved.
  const at::Tensor& shard(size_t unit) const { return states_[unit].shard; }
  // gather() waits for a shard that is written later; all ranks pass the same value. The units become known to the
  // other ranks in the order of these calls or, if sharded, in that of the plan.
  void publish(size_t unit, Written written = Written::kNow);
  // The writer outlives the store and must be set before the first shard that is written later.
  void set_writer(ShardWriter& writer);

  // Records on `timeline`, which outlives the store, when it is stalled by shards that are written later.
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

  // Records what to gather, and starts the gathers that need not wait on any rank.
  void gather_next(const std::vector<size_t>& units);
  void start_certain();
  void start_written();
  void start_until(size_t unit);
  void start_oldest();
  void start_to_gather(size_t unit);
  void start_whole(size_t unit);
  // Makes later work of copy_stream_ run after the work queued on the current stream.
  void follow_current_stream();
  void let_go(size_t unit);
  void reserve_buffers();
  // The total of all buffers, with these limits of the schedule.
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
  std::optional<c10::cuda::CUDAStream> copy_stream_;  // host to device, concurrent with compute
  std::vector<UnitState> states_;
  // Units to be gathered that have not been started: all ranks start them in this order, each as soon as it can.
  std::deque<size_t> due_;
  ShardWriter* writer_ = nullptr;
  Timeline* timeline_ = nullptr;
  std::vector<Stall> stalls_;
};

}  // namespace mpzero::parallel
