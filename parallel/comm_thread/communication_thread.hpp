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

// A task that runs in steps. A step never waits for another rank.
class HostTask {
 public:
  enum class Progress : uint8_t { kNone, kSome, kDone };

  // A task may be destroyed before advance() returns kDone. The memory of unfinished transfers must then stay
  // allocated.
  virtual ~HostTask() = default;
  // Makes as much progress as possible without waiting. advance() is not called again after it returns kDone or throws.
  virtual Progress advance() = 0;
};

// The only thread of the process that moves tensors over MPI, concurrently with compute. MPI 4 libraries make progress
// only inside MPI calls, so a thread must call MPI regularly.
//
// Each communicator submits its jobs to its own lane. The jobs of a lane run one at a time, in submission order. Lanes
// run concurrently, one step of each lane in turn. A HostOrder makes a job depend on jobs of other lanes. The states of
// a job:
//
//   in        | event                                           | then
//   ----------+-------------------------------------------------+------------------------------------------------------
//   -         | submit() to a lane without failed jobs          | kQueued
//   -         | submit() to a lane with a failed job            | kFailed, with that error
//   -         | submit() to an aborted lane                     | kAborted
//   kQueued   | first of its lane, all its dependencies have    | kRunning
//             |   completed                                     |
//   kQueued   | first of its lane, a dependency has failed or   | kFailed with that error, or kAborted: its input is
//             |   was aborted                                   |   undefined
//   kQueued   | a job of its lane fails                         | kFailed, with that error: the ranks no longer agree
//             |                                                 |   on the lane's next job
//   kRunning  | advance() returns kDone                         | kCompleted
//   kRunning  | advance() throws                                | kFailed
//   kQueued,  | the lane ends during stack unwinding, or the    | kAborted
//   kRunning  |   thread ends                                   |
//
// If all ranks submit the same jobs in the same order, the ranks cannot deadlock: a job depends only on earlier jobs,
// so the first unfinished job can always proceed.
//
// The thread sleeps between steps without progress (see Pauses), so it competes with compute threads for a core only
// while data is moving.
class CommunicationThread {
 public:
  enum class Runs : uint8_t {
    kBeside,   // on a separate thread
    kInCaller  // on the thread that calls submit(), which returns after the job; required if only one thread may call
               // MPI
  };
  class Job;
  class Lane;

  explicit CommunicationThread(Runs runs);
  // Ends the thread and aborts unfinished jobs.
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
  // Runs one step of each lane's first job if that job is ready. Returns a Turn that reports whether any job was ready
  // and whether any job made progress.
  struct Turn {
    bool has_work = false, has_moved = false;
  };
  Turn take_turn(Lock& lock);
  // Runs one step of the job, with the lock released. Returns true if the job made progress.
  bool step(Job& job, Lock& lock);
  // Returns true if the lane's first job may run a step. Ends the job if it can never run.
  bool may_run(Lane& lane);
  // `error` is passed by value because its job may be destroyed during the call.
  // NOLINTNEXTLINE(performance-unnecessary-value-param)
  void end(Job& job, bool aborted, std::exception_ptr error);
  void abort(Lane& lane);
  void idle(Lock& lock);

  std::mutex mutex_;               // guards the members below, lanes and jobs
  std::condition_variable work_;   // wakes the thread for new work
  std::condition_variable ended_;  // wakes waiters after a job, or a step that a lane waits for, has ended
  std::vector<Lane*> lanes_;
  const Lane* stepping_ = nullptr;  // lane whose job is running a step
  int leaving_ = 0;                 // number of lanes that wait for the end of a step
  bool ending_ = false;
  Pauses pauses_;                    // after steps without progress
  std::unique_ptr<Lane> functions_;  // lane of HostOrder::run()
  std::thread thread_;
};

// A submitted task. Thread-safe.
class CommunicationThread::Job final : public DeviceWork, public std::enable_shared_from_this<Job> {
 public:
  // Waits until the job has ended. Within a HostOrder, does not block: later jobs depend on this job instead. Rethrows
  // the job's exception. If the job was aborted, its results are undefined.
  void wait();
  // Returns the job's state without blocking. Rethrows the job's exception.
  CollectiveState state() const override;

 private:
  friend class CommunicationThread;
  friend class HostOrder;
  Job(CommunicationThread& owner, Lane& lane, std::unique_ptr<HostTask> task)
      : owner_(owner), lane_(&lane), task_(std::move(task)) {}
  bool has_ended() const { return state_ == CollectiveState::kCompleted; }

  CommunicationThread& owner_;
  Lane* lane_;  // null once the job has ended
  std::unique_ptr<HostTask> task_;
  std::vector<std::shared_ptr<Job>> after_;
  CollectiveState state_ = CollectiveState::kQueued;  // kCompleted: the job has ended
  bool aborted_ = false;
  std::exception_ptr error_;
};

class CommunicationThread::Lane {
 public:
  // The lane must be destroyed before `thread`.
  explicit Lane(CommunicationThread& thread);
  // Calls finish().
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Waits for the lane's jobs. During stack unwinding, aborts these jobs because other ranks may no longer participate.
  void finish();
  // Submits a task to the lane. With kInCaller, rethrows the task's exception, like Job::wait().
  std::shared_ptr<Job> submit(std::unique_ptr<HostTask> task) { return thread_.submit(*this, std::move(task)); }
  // Returns true if a job of the lane has failed or was aborted, so some of its operations may be unfinished.
  // Thread-safe.
  bool was_cut_short() const;
  // Returns the error message of the lane's first failed job, or an empty string. Thread-safe.
  std::string error() const;

 private:
  friend class CommunicationThread;
  CommunicationThread& thread_;
  Unwinding unwinding_;
  std::deque<std::shared_ptr<Job>> jobs_;  // unfinished
  bool aborted_ = false;
  std::exception_ptr error_;
};

// Scope in which Job::wait() does not block the calling thread. Jobs that the thread submits later, and work passed to
// run(), begin after the awaited jobs, as on a device's stream. At most one HostOrder per thread.
class HostOrder {
 public:
  HostOrder();
  ~HostOrder();
  HostOrder(const HostOrder&) = delete;
  HostOrder& operator=(const HostOrder&) = delete;

  // Calls `work` immediately if the scope has awaited no jobs, otherwise on the communication thread after the awaited
  // jobs. Work submitted later starts after `work` has finished. `work` must own its data and must not start threads.
  void run(std::function<void()> work);

 private:
  friend class CommunicationThread;
  std::vector<std::shared_ptr<CommunicationThread::Job>> after_;
};

}  // namespace mpzero::parallel
