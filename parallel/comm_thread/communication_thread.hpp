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

// Work in steps that never wait for another rank.
class HostTask {
 public:
  enum class Progress : uint8_t { kNone, kSome, kDone };

  // May run before kDone. Memory that others may still write to must then stay allocated.
  virtual ~HostTask() = default;
  // Makes as much progress as possible without waiting. Not called again after kDone or an exception.
  virtual Progress advance() = 0;
};

// The process's only thread that moves tensors over MPI, while others compute: MPI 4 libraries move data only inside
// MPI calls, so a thread must make such calls.
//
// Jobs are submitted to lanes; each communicator has one. The jobs of a lane run one after another, in submission
// order; lanes run concurrently, one step of each in turn. A HostOrder makes a job depend on jobs of other lanes. The
// states of a job:
//
//   in        | event                                           | then
//   ----------+-------------------------------------------------+------------------------------------------------------
//   -         | submit(), no job of the lane has failed         | kQueued
//   -         | submit(), a job of the lane has failed          | kFailed, with that error
//   -         | submit(), the lane was aborted                  | kAborted
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
// No deadlock if all ranks submit the same jobs in the same order: a job depends only on jobs submitted before it, so
// the first unfinished job can always proceed.
//
// The thread sleeps between steps without progress (Pauses), so it takes a core from compute threads only while it has
// data to move.
class CommunicationThread {
 public:
  enum class Runs : uint8_t {
    kBeside,   // in a separate thread
    kInCaller  // without a thread: submit() returns once the job has ended. For an MPI that only one thread may use.
  };
  class Job;
  class Lane;

  explicit CommunicationThread(Runs runs);
  // Aborts unfinished jobs.
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
  // Runs a step of each lane's first job that may run. Returns whether there was one, and whether any made progress.
  struct Turn {
    bool has_work = false, has_moved = false;
  };
  Turn take_turn(Lock& lock);
  // Runs a step of the job, with the lock released. Returns whether it made progress.
  bool step(Job& job, Lock& lock);
  // Whether the lane's first job may run a step; ends a job that never will.
  bool may_run(Lane& lane);
  // By value: the error may belong to a job that is destroyed with the last job that depends on it.
  // NOLINTNEXTLINE(performance-unnecessary-value-param)
  void end(Job& job, bool aborted, std::exception_ptr error);
  void abort(Lane& lane);
  void idle(Lock& lock);

  std::mutex mutex_;               // guards the members below, lanes and jobs
  std::condition_variable work_;   // for the thread: there is work
  std::condition_variable ended_;  // for others: a job, or a step that a lane waits for, has ended
  std::vector<Lane*> lanes_;
  const Lane* stepping_ = nullptr;  // its job is running a step
  int leaving_ = 0;                 // lanes that wait for the end of a step
  bool ending_ = false;
  Pauses pauses_;                    // after steps without progress
  std::unique_ptr<Lane> functions_;  // of HostOrder::run()
  std::thread thread_;
};

// A submitted task. From any thread.
class CommunicationThread::Job final : public DeviceWork, public std::enable_shared_from_this<Job> {
 public:
  // Waits until the job has ended; within a HostOrder, only makes later jobs depend on it. Rethrows the job's
  // exception. The results of an aborted job are undefined.
  void wait();
  // Rethrows the job's exception.
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
  // Must be destroyed before the thread.
  explicit Lane(CommunicationThread& thread);
  // Calls finish().
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Waits for its jobs. During stack unwinding, aborts them instead, since other ranks may no longer participate.
  void finish();
  // With kInCaller, rethrows the task's exception, like Job::wait().
  std::shared_ptr<Job> submit(std::unique_ptr<HostTask> task) { return thread_.submit(*this, std::move(task)); }
  // Whether a job has failed or was aborted, so that operations it began may be unfinished. From any thread.
  bool was_cut_short() const;
  // The message of the first job that failed; empty if none has. From any thread.
  std::string error() const;

 private:
  friend class CommunicationThread;
  CommunicationThread& thread_;
  Unwinding unwinding_;
  std::deque<std::shared_ptr<Job>> jobs_;  // unfinished
  bool aborted_ = false;
  std::exception_ptr error_;
};

// While it exists, Job::wait() does not block this thread. Instead, jobs that the thread submits later, and work that
// it passes to run(), begin after those jobs, as on a device's stream. One at a time per thread.
class HostOrder {
 public:
  HostOrder();
  ~HostOrder();
  HostOrder(const HostOrder&) = delete;
  HostOrder& operator=(const HostOrder&) = delete;

  // Calls `work` now if no job was waited for, otherwise on the communication thread; later work then begins after it.
  // `work` must own its data and start no threads.
  void run(std::function<void()> work);

 private:
  friend class CommunicationThread;
  std::vector<std::shared_ptr<CommunicationThread::Job>> after_;
};

}  // namespace mpzero::parallel
