#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "parallel/host/thread_team.hpp"
#include "parallel/optimizer/host_updater.hpp"
#include "parallel/optimizer/state_hold.hpp"

namespace mpzero::parallel {

// AdamW in host memory, concurrent with the caller and the GPU. A separate thread runs a pipeline over pieces of the
// units: copy the gradient to the host, update the states with a team of threads, and copy the rounded parameters to
// the GPU. Only the buffers of a few pieces in transit are pinned.
//
// Units can be updated before the gradient norm is known. Between expect() and finish(), units are updated into spare
// states as soon as their gradients are available, with the scalars passed to expect(). If finish() receives the same
// scalars, the spare states become the units' own states. If finish() receives other scalars, or after discard(), the
// spare states are dropped and the old states remain valid. The results are bitwise identical in both cases.
//
// With HostMemoryPlan::keeps_gradients, take_gradient() starts the copy of the full gradient, so that the caller can
// reuse the gradient's memory while the update waits for the norm. The copy remains valid until the next
// take_gradient() of the unit, which waits for all updates of the unit.
//
// A unit's states do not change while a StateHold of the unit exists. An update of a held unit writes to spare states,
// and waits if all spare states are in use.
class HostOptimizer final : public HostUpdater {
 public:
  // State machine of a unit's spare states. At most one job per unit is in progress. A queued update begins when the
  // previous update has released its spare states, and only then chooses its destination.
  //
  //   in          | event                                   | then
  //   ------------+-----------------------------------------+----------------------------------------------------------
  //   kNone       | a gradient arrives, scalars expected,   | reserves spare states: kRunning
  //               |   spare states exist                    |
  //   kNone       | a queued update begins, not held        | updates in place: kNone
  //   kNone       | a queued update begins, held            | reserves spare states: kConfirmed; if all are in use,
  //               |                                         |   waits for spare states or for the end of the hold
  //   kRunning    | finish() with the expected scalars      | kConfirmed
  //   kRunning    | finish() with other scalars, discard()  | queues an update, or a publish(): kDropped
  //   kRunning    | last piece done                         | kComputed
  //   kComputed   | finish() with the expected scalars      | swaps spare and own states: kNone
  //   kComputed   | finish() with other scalars, discard()  | returns the spare states, queues as above: kNone
  //   kConfirmed  | last piece done                         | swaps spare and own states: kNone
  //   kConfirmed  | finish(): the next update, whose        | queues an update, which waits: kConfirmed
  //               |   gradient was not taken                |
  //   kConfirmed  | discard()                               | kConfirmed: the update belongs to the previous step
  //   kDropped    | last started piece done                 | returns the spare states: kNone
  enum class Ahead : uint8_t { kNone, kRunning, kComputed, kConfirmed, kDropped };

  // `shards`: one per unit; null for units that are updated elsewhere. The shards and the team must outlive the
  // optimizer.
  HostOptimizer(ThreadTeam& team, std::vector<OptimizerShard*> shards, const Options& options);
  // Completes the jobs in progress and drops all queued jobs.
  ~HostOptimizer() override;

  bool updates(size_t unit) const override { return units_[unit].shard != nullptr; }
  void expect(const AdamWUpdate& update) override;
  void take_gradient(size_t unit, const at::Tensor& gradient, const at::Tensor& parameter) override;
  void wait_for_copy(size_t unit) override;
  void finish(const AdamWUpdate& update) override;
  void discard() override;
  void publish(size_t unit, const at::Tensor& parameter) override;
  bool ready(size_t unit) override;
  void wait(size_t unit) override;
  void wait_for_all() override;
  void wait_for_states(size_t unit) override;
  StateHold hold(size_t unit) override;
  void add_spares_for_holds() override;
  void wait_for_holds(size_t unit) override;
  void release(size_t unit) override;
  MemoryUse memory_use() const override;
  // Returns the state of the unit's spare states, for tests. Can be called from any thread.
  Ahead ahead(size_t unit) const;

 private:
  struct Unit {
    OptimizerShard* shard = nullptr;
    at::Tensor gradient;  // the caller's tensor, or the copy in host memory if the plan keeps gradients
    at::Tensor parameter;
    c10::cuda::CUDAEvent released;  // the gradient is complete and the parameters may be overwritten
    c10::cuda::CUDAEvent copied;    // the copy of the gradient is complete
    c10::cuda::CUDAEvent uploaded;
    bool taken = false;  // gradient taken since the last finish() or discard()
    Ahead ahead = Ahead::kNone;
    OptimizerStates next;       // spare states in use; empty in kNone
    AdamWUpdate next_update{};  // expected scalars in kRunning and kComputed
    int64_t ordered = 0, done = 0;
    bool under_way = false;  // a job of this unit is in progress
  };
  enum class Kind : uint8_t { kUpdate, kPublish };
  struct Job {
    size_t unit = 0;
    Kind kind = Kind::kUpdate;
    AdamWUpdate update{};
    bool into_spare = false;  // writes to the unit's spare states
    int64_t issued = 0;       // elements in pieces that are in progress or done
    int64_t in_flight = 0;    // pieces in progress
    bool closed = false;      // no more pieces are issued
  };
  // Buffers for a piece in transit if the training device is a GPU.
  struct Slot {
    at::Tensor gradient, parameter;
    c10::cuda::CUDAEvent arrived, uploaded;
  };
  struct Piece {
    std::shared_ptr<Job> job;
    int64_t begin = 0, count = 0;
    Slot* slot = nullptr;
    std::shared_ptr<ThreadTeam::Task> task;  // set after the gradient has arrived
  };

  // Waits until `condition` is true and returns with the mutex locked. `condition` is evaluated with the mutex locked.
  // Throws if the optimizer's thread has failed.
  template <typename Condition>
  std::unique_lock<std::mutex> lock_when(const Condition& condition);

  // Requires the mutex to be locked.
  bool is_done(size_t unit) const { return units_[unit].done == units_[unit].ordered; }
  void order(size_t unit, Kind kind, const AdamWUpdate& update);
  void give_spare_back(Unit& unit);
  // Starts the copy of a gradient to host memory. On the CPU, the copy is complete on return.
  void copy_gradient(Unit& unit, const at::Tensor& gradient);
  void throw_if_failed() const;
  // Returns true if the first queued job may begin or, without queued jobs, a unit may be updated before the norm is
  // known.
  bool can_begin() const;
  std::shared_ptr<Job> begin_ordered();
  std::shared_ptr<Job> begin_ahead();

  // The following functions run in the optimizer's thread.
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
  bool staged_;           // the training device is a GPU
  bool keeps_gradients_;  // HostMemoryPlan::keeps_gradients
  std::vector<Unit> units_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::optional<c10::cuda::CUDAStream> down_, up_;

  // The registry's mutex protects all members that both threads write: the members down to failure_, and the fields of
  // Unit from `ahead` on.
  const std::shared_ptr<HoldRegistry> holds_ = std::make_shared<HoldRegistry>();
  std::mutex& mutex_ = holds_->mutex;
  std::condition_variable& changed_ = holds_->changed;
  std::deque<std::shared_ptr<Job>> jobs_;
  std::optional<AdamWUpdate> expected_;
  std::deque<size_t> arrived_;  // units that may be updated before the norm is known
  SpareStates spares_;
  bool ending_ = false;
  std::exception_ptr failure_;

  // Used only by the optimizer's thread.
  std::shared_ptr<Job> job_;
  std::deque<Piece> pieces_;
  size_t next_slot_ = 0;

  std::thread thread_;
};

}  // namespace mpzero::parallel
