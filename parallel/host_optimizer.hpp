#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "parallel/adamw.hpp"
#include "parallel/host_memory_plan.hpp"
#include "parallel/optimizer_shard.hpp"
#include "parallel/spare_states.hpp"
#include "parallel/thread_team.hpp"

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
// All calls come from one thread. Once the work has failed every wait throws what it failed with.
class HostOptimizer {
 public:
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

  // From now on states that somebody holds, by a tensor of theirs or of a part of one, are left to him as they are: the
  // next update writes beside them. Takes as much memory as the states have. From any thread, once.
  void keep_held_states();

  // Hands the unit's states over to whoever updates it from now on.
  void let_go(size_t unit);

  MemoryUse memory_use() const;

 private:
  enum class Ahead {
    kNone,
    kRunning,    // the expectation's outcome is open
    kComputed,   // so it is, and the spare states are complete
    kConfirmed,  // the expectation was right; the spare states are not complete yet
    kDropped     // it was wrong; pieces are still under way
  };
  struct Unit {
    OptimizerShard* shard = nullptr;
    at::Tensor gradient, parameter;
    at::cuda::CUDAEvent released;  // the gradient is whole and the parameters may be overwritten
    at::cuda::CUDAEvent uploaded;
    Ahead ahead = Ahead::kNone;
    OptimizerStates next;  // while going ahead
    int64_t ordered = 0, done = 0;
  };
  enum class Kind { kUpdate, kUpdateAhead, kPublish };
  struct Job {
    size_t unit = 0;
    Kind kind = Kind::kUpdate;
    AdamWUpdate update{};
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
  void order_update(size_t unit, const AdamWUpdate& update);
  void throw_if_failed() const;

  // What follows runs in the optimizer's own thread.
  void run();
  bool issue_piece();
  std::shared_ptr<Job> next_job();
  bool is_dropped(const Job& job);
  bool in_flight(size_t unit) const;
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

  mutable std::mutex
      mutex_;  // of all that both threads write: down to failure_, and in units_ ahead, next, ordered, done
  std::condition_variable changed_;
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
