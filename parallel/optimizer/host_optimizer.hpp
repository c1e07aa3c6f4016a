#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "parallel/host/thread_team.hpp"
#include "parallel/optimizer/adamw.hpp"
#include "parallel/optimizer/host_memory_plan.hpp"
#include "parallel/optimizer/optimizer_shard.hpp"
#include "parallel/optimizer/spare_states.hpp"
#include "parallel/optimizer/state_hold.hpp"

namespace mpzero::parallel {

// AdamW in host memory, beside what the caller and the GPU do. A thread of its own takes the units one after the other
// through a pipeline of pieces: the gradient comes down from the GPU, a team of threads updates the states, the rounded
// parameters go up. Only the buffers of a few pieces on their way are pinned.
//
// It can go ahead of the norm: between expect() and finish() units are updated as soon as their gradients are there,
// with the scalars that the caller expects, into spare states. finish() with these very scalars makes the spare states
// the units' own; with others, or after discard(), the spare ones are dropped and the old ones count. So what comes out
// has the same bits whether the expectation was right or not.
//
// States that somebody holds are never written to. An update of a held unit writes into spare states, too, and waits
// where there are none.
//
// All calls but those that say otherwise come from one thread. Once the work has failed every wait throws what it
// failed with.
class HostOptimizer {
 public:
  // What becomes of a unit's spare states. At most one job of a unit is under way at a time: an ordered update begins
  // when no spare states are left in use by the one before, and only then is it decided where it writes.
  //
  //   in          | event                                   | then
  //   ------------+-----------------------------------------+------------------------------------------------------------
  //   kNone       | a gradient arrives, scalars expected,   | takes spare states: kRunning
  //               |   spare states are there                |
  //   kNone       | an ordered update begins, not held      | updates in place: kNone
  //   kNone       | an ordered update begins, held          | takes spare states: kConfirmed; waits for some, or for
  //   the
  //               |                                         |   hold's end, where there are none
  //   kRunning    | finish(), as expected                   | kConfirmed
  //   kRunning    | finish() otherwise, discard()           | orders an update, or a publish(): kDropped
  //   kRunning    | last piece done                         | kComputed
  //   kComputed   | finish(), as expected                   | spare and own states change places: kNone
  //   kComputed   | finish() otherwise, discard()           | gives the spare states back, orders as above: kNone
  //   kConfirmed  | last piece done                         | spare and own states change places: kNone
  //   kConfirmed  | finish(): the next update, whose        | orders an update, which waits: kConfirmed
  //               |   gradient was not taken                |
  //   kConfirmed  | discard()                               | kConfirmed: the last step's, which is no part of this one
  //   kDropped    | last piece of those begun done          | gives the spare states back: kNone
  enum class Ahead : uint8_t { kNone, kRunning, kComputed, kConfirmed, kDropped };

  struct Options {
    at::Device device = at::kCPU;  // that trains
    bool pinned = false;
    at::ScalarType gradient_dtype = at::kFloat;
    at::ScalarType parameter_dtype = at::kFloat;
    HostMemoryPlan memory;  // of these units
  };
  // `shards`: by unit; null for those that are updated elsewhere. They and the team outlive the optimizer.
  HostOptimizer(ThreadTeam& team, std::vector<OptimizerShard*> shards, const Options& options);
  // Ends what it is at and leaves the rest undone.
  ~HostOptimizer();
  HostOptimizer(const HostOptimizer&) = delete;
  HostOptimizer& operator=(const HostOptimizer&) = delete;

  bool updates(size_t unit) const { return units_[unit].shard != nullptr; }

  // The scalars of the next finish(), probably.
  void expect(const AdamWUpdate& update);
  // The gradient [numel] of a unit is whole once the work queued on the current stream is done, and nothing behind that
  // work reads the unit's parameters before finish() or discard(). Both tensors, on the device that trains or in host
  // memory, stay where they are until the update that finish() orders is done; `parameter` [numel] receives the rounded
  // master weights.
  void take_gradient(size_t unit, const at::Tensor& gradient, const at::Tensor& parameter);
  // Updates all units, in their order, with the gradients that were taken since the last time.
  void finish(const AdamWUpdate& update);
  // Forgets these gradients. States and parameters are as they were before when it returns.
  void discard();
  // Writes the master weights, rounded, to `parameter` [numel], which nothing behind the work queued on the current
  // stream reads.
  void publish(size_t unit, const at::Tensor& parameter);

  // Whether all that was ordered for the unit has been done, so that wait() returns at once.
  bool ready(size_t unit);
  // Until then; work queued on the current stream from now on finds the parameters that have gone up.
  void wait(size_t unit);
  void wait_for_all();
  // Until the unit's states are what was ordered; the parameters may still be on their way up. From any thread, while
  // nothing more is ordered.
  void wait_for_states(size_t unit);

  // The unit's states as they are after what was ordered. From any thread, while nothing more is ordered.
  StateHold hold(size_t unit);
  // Makes spare states for every unit, so that no update has to wait for the end of a hold as long as each unit is held
  // once. Takes as much memory as the states have. From any thread, once.
  void add_spares_for_holds();
  // Until nobody holds the unit's states.
  void wait_for_holds(size_t unit);

  // Hands the unit's states over to whoever updates it from now on. Waits until nobody holds them.
  void let_go(size_t unit);

  MemoryUse memory_use() const;
  // For tests, from any thread.
  Ahead ahead(size_t unit) const;

 private:
  struct Unit {
    OptimizerShard* shard = nullptr;
    at::Tensor gradient, parameter;
    at::cuda::CUDAEvent released;  // the gradient is whole and the parameters may be overwritten
    at::cuda::CUDAEvent uploaded;
    bool taken = false;  // since the last finish() or discard()
    Ahead ahead = Ahead::kNone;
    OptimizerStates next;       // spare states in use; none in kNone
    AdamWUpdate next_update{};  // in kRunning and kComputed: the scalars that are expected
    int64_t ordered = 0, done = 0;
    bool under_way = false;  // a job of it has begun and not ended
  };
  enum class Kind : uint8_t { kUpdate, kPublish };
  struct Job {
    size_t unit = 0;
    Kind kind = Kind::kUpdate;
    AdamWUpdate update{};
    bool beside = false;    // into the unit's spare states
    int64_t issued = 0;     // elements whose pieces are under way or done
    int64_t in_flight = 0;  // pieces
    bool closed = false;    // no further piece will be issued
  };
  // Buffers for a piece on its way, where the device that trains is a GPU.
  struct Slot {
    at::Tensor gradient, parameter;
    at::cuda::CUDAEvent arrived, uploaded;
  };
  struct Piece {
    std::shared_ptr<Job> job;
    int64_t begin = 0, count = 0;
    Slot* slot = nullptr;
    std::shared_ptr<ThreadTeam::Task> task;  // once the gradient has arrived
  };

  // The mutex is locked.
  void order(size_t unit, Kind kind, const AdamWUpdate& update);
  void give_spare_back(Unit& unit);
  void throw_if_failed() const;
  // Whether the first job that was ordered may begin, or, where there is none, a unit may go ahead.
  bool can_begin() const;
  std::shared_ptr<Job> begin_ordered();
  std::shared_ptr<Job> begin_ahead();

  // What follows runs in the optimizer's own thread.
  void run();
  bool issue_piece();
  std::shared_ptr<Job> next_job();
  bool is_dropped(const Job& job);
  void start_update(Piece& piece);
  void complete_oldest();
  void close(const std::shared_ptr<Job>& job);
  void finish_job(const Job& job);

  ThreadTeam& team_;
  Options options_;
  bool staged_;  // the device that trains is a GPU
  std::vector<Unit> units_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::optional<c10::cuda::CUDAStream> down_, up_;

  // Its mutex is that of all that both threads write: down to failure_, and in units_ from `ahead` on.
  const std::shared_ptr<HoldRegistry> holds_ = std::make_shared<HoldRegistry>();
  std::mutex& mutex_ = holds_->mutex;
  std::condition_variable& changed_ = holds_->changed;
  std::deque<std::shared_ptr<Job>> jobs_;
  std::optional<AdamWUpdate> expected_;
  std::deque<size_t> arrived_;  // units that could go ahead
  SpareStates spares_;
  bool ending_ = false;
  std::exception_ptr failure_;

  // The optimizer's own thread's.
  std::shared_ptr<Job> job_;
  std::deque<Piece> pieces_;
  size_t next_slot_ = 0;

  std::thread thread_;
};

}  // namespace mpzero::parallel
