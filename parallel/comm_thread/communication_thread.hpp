#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/unwinding.hpp"
#include "parallel/comm_thread/pauses.hpp"
#include "parallel/trace/flight_recorder.hpp"

namespace mpzero::parallel {

// Work in steps, none of which waits for another rank.
class HostTask {
 public:
  enum class Progress : uint8_t { kNone, kSome, kDone };

  // May come before kDone. What others may still write to must stay then.
  virtual ~HostTask() = default;
  // Does what can be done now. Not called again after kDone or an exception.
  virtual Progress advance() = 0;
};

// The one thread of a process that moves its tensors over MPI while the others compute: MPI 4's libraries move data
// only inside their own calls, so somebody must call them.
//
// Jobs are submitted to lanes. A communicator has a lane. The jobs of a lane run one after another, in the order of
// their submission; those of different lanes beside each other, a step of each in turn. A HostOrder lets a job begin
// only after jobs of other lanes. A job:
//
//   in        | event                                           | then
//   ----------+-------------------------------------------------+------------------------------------------------------
//   -         | submit(), the lane is in order                  | kQueued
//   -         | submit(), a job of the lane has failed          | kFailed, with that error
//   -         | submit(), the lane was aborted                  | kAborted
//   kQueued   | first of its lane, all before it in its order   | kRunning
//             |   have completed                                |
//   kQueued   | first of its lane, one before it in its order   | kFailed with that error, or kAborted: what it would
//             |   has failed or was aborted                     |   send is undefined
//   kQueued   | a job of its lane fails                         | kFailed, with that error: the ranks no longer agree
//   on
//             |                                                 |   what comes next in the lane
//   kRunning  | advance() returns kDone                         | kCompleted
//   kRunning  | advance() throws                                | kFailed
//   kQueued,  | the end of the lane during stack unwinding, or  | kAborted
//   kRunning  |   of the thread                                 |
//
// The ranks cannot wait for each other in a circle if all submit the same jobs in the same order: what a job waits for
// was submitted before it, so that the first one of all that have not ended can always go on.
//
// The thread takes no core from threads that compute for longer than it has something to move: it sleeps between steps
// without progress (Pauses).
class CommunicationThread {
 public:
  enum class Runs : uint8_t {
    kBeside,   // a thread of its own
    kInCaller  // none: submit() returns once the job has ended. For an MPI that only one thread may use.
  };
  class Job;
  class Lane;

  explicit CommunicationThread(Runs runs);
  // Aborts what is left in lanes.
  ~CommunicationThread();
  CommunicationThread(const CommunicationThread&) = delete;
  CommunicationThread& operator=(const CommunicationThread&) = delete;

  bool runs_beside() const { return thread_.joinable(); }

 private:
  friend class HostOrder;
  using Lock = std::unique_lock<std::mutex>;

  static constexpr std::chrono::nanoseconds kTimerSlack{1000};

  std::shared_ptr<Job> submit(Lane& lane, std::unique_ptr<HostTask> task);
  void run();
  // A step of each lane's first job that may run. Whether there was one, and whether one of them made progress.
  struct Turn {
    bool has_work = false, has_moved = false;
  };
  Turn take_turn(Lock& lock);
  // Whether the job's step made progress. Unlocks during the step.
  bool step(Job& job, Lock& lock);
  // Whether the lane's first job may take a step; ends it if it never will.
  bool may_run(Lane& lane);
  // By value: the error may be that of a job which goes with the last one that waits for it.
  // NOLINTNEXTLINE(performance-unnecessary-value-param)
  void end(Job& job, bool aborted, std::exception_ptr error);
  void abort(Lane& lane);
  void idle(Lock& lock);

  std::mutex mutex_;               // guards all below, and lanes and jobs
  std::condition_variable work_;   // for the thread: something to do
  std::condition_variable ended_;  // for others: a job has ended, or a step that somebody waits for
  std::vector<Lane*> lanes_;
  const Lane* stepping_ = nullptr;  // whose job takes a step
  int leaving_ = 0;                 // who wait for the end of a step
  bool ending_ = false;
  Pauses pauses_;                    // after steps without progress
  std::unique_ptr<Lane> functions_;  // of HostOrder::run()
  std::thread thread_;
};

// Work that was submitted. From any thread.
class CommunicationThread::Job final : public DeviceWork, public std::enable_shared_from_this<Job> {
 public:
  // Until it has ended; within a HostOrder it only orders what follows. Throws what the job threw. An aborted job has
  // undefined results.
  void wait();
  // Throws what the job threw.
  CollectiveState state() const override;

 private:
  friend class CommunicationThread;
  friend class HostOrder;
  Job(CommunicationThread& owner, Lane& lane, std::unique_ptr<HostTask> task)
      : owner_(owner), lane_(&lane), task_(std::move(task)) {}
  bool has_ended() const { return state_ == CollectiveState::kCompleted; }

  CommunicationThread& owner_;
  Lane* lane_;  // until it has ended
  std::unique_ptr<HostTask> task_;
  std::vector<std::shared_ptr<Job>> after_;
  CollectiveState state_ = CollectiveState::kQueued;  // kCompleted: it has ended
  bool aborted_ = false;
  std::exception_ptr error_;
};

class CommunicationThread::Lane {
 public:
  // Is destroyed before the thread.
  explicit Lane(CommunicationThread& thread);
  // finish()
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Waits for its jobs. During stack unwinding it aborts them instead, since other ranks may not take part any more.
  void finish();
  // Like Job::wait(), throws in kInCaller what the task throws.
  std::shared_ptr<Job> submit(std::unique_ptr<HostTask> task) { return thread_.submit(*this, std::move(task)); }
  // Whether a job has failed or was aborted, so that some of what it has begun may be left. From any thread.
  bool was_cut_short() const;
  // What the first job that failed threw, as text; empty: none has. From any thread.
  std::string error() const;

 private:
  friend class CommunicationThread;
  CommunicationThread& thread_;
  Unwinding unwinding_;
  std::deque<std::shared_ptr<Job>> jobs_;  // that have not ended
  bool aborted_ = false;
  std::exception_ptr error_;
};

// While it exists, wait() of jobs does not make this thread wait. Instead, jobs that it submits from then on, and what
// it gives to run(), begin after them: as a stream does on a device. One at a time in a thread.
class HostOrder {
 public:
  HostOrder();
  ~HostOrder();
  HostOrder(const HostOrder&) = delete;
  HostOrder& operator=(const HostOrder&) = delete;

  // Calls `work` now if nothing was waited for, otherwise on the communication thread, and lets what follows come
  // after it. `work` owns what it uses and starts no threads.
  void run(std::function<void()> work);

 private:
  friend class CommunicationThread;
  std::vector<std::shared_ptr<CommunicationThread::Job>> after_;
};

}  // namespace mpzero::parallel
