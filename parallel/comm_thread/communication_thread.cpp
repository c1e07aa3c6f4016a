#include "parallel/comm_thread/communication_thread.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace mpzero::parallel {
namespace {

// The current HostOrder of this thread.
thread_local HostOrder* current_order = nullptr;

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an unknown error";
  }
}

class FunctionTask final : public HostTask {
 public:
  explicit FunctionTask(std::function<void()> work) : work_(std::move(work)) {}
  Progress advance() override {
    work_();
    return Progress::kDone;
  }

 private:
  std::function<void()> work_;
};

// Blocks all signals in the new thread, because the training thread handles them.
std::thread start_without_signals(std::function<void()> work) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(work));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

CommunicationThread::CommunicationThread(Runs runs) : functions_(std::make_unique<Lane>(*this)) {
  if (runs == Runs::kBeside) thread_ = start_without_signals([this] { run(); });
}

CommunicationThread::~CommunicationThread() {
  {
    const Lock lock(mutex_);
    ending_ = true;
    for (Lane* const lane : lanes_) abort(*lane);
  }
  work_.notify_one();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<CommunicationThread::Job> CommunicationThread::submit(Lane& lane, std::unique_ptr<HostTask> task) {
  const std::shared_ptr<Job> job(new Job(*this, lane, std::move(task)));
  if (current_order != nullptr) job->after_ = current_order->after_;
  Lock lock(mutex_);
  if (lane.aborted_ || lane.error_) {
    end(*job, lane.aborted_, lane.error_);
    return job;
  }
  lane.jobs_.push_back(job);
  pauses_.begin_anew();
  if (runs_beside()) {
    lock.unlock();
    work_.notify_one();
    return job;
  }
  while (!job->has_ended()) {
    if (!take_turn(lock).has_moved) idle(lock);
  }
  lock.unlock();
  if (job->error_) std::rethrow_exception(job->error_);
  return job;
}

void CommunicationThread::run() {
  // Linux delays a thread's timers by up to this slack, 50 us by default.
  prctl(PR_SET_TIMERSLACK, kTimerSlack.count(), 0, 0, 0);
  Lock lock(mutex_);
  while (!ending_) {
    const Turn turn = take_turn(lock);
    if (turn.has_moved || ending_) continue;
    // The set of runnable jobs changes only when a job ends (which is progress) or when other threads change it.
    turn.has_work ? idle(lock) : work_.wait(lock);
  }
}

CommunicationThread::Turn CommunicationThread::take_turn(Lock& lock) {
  Turn turn;
  // Lanes may be added or removed during a step.
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = *lanes_[i];
    const size_t left = lane.jobs_.size();
    if (may_run(lane)) {
      turn.has_work = true;
      const std::shared_ptr<Job> job = lane.jobs_.front();
      turn.has_moved = step(*job, lock) || turn.has_moved;
    } else if (lane.jobs_.size() != left) {
      turn.has_moved = true;
    }
  }
  if (turn.has_moved) pauses_.begin_anew();
  return turn;
}

bool CommunicationThread::may_run(Lane& lane) {
  if (lane.jobs_.empty()) return false;
  const std::shared_ptr<Job> job = lane.jobs_.front();
  for (const std::shared_ptr<Job>& before : job->after_) {
    if (!before->has_ended()) return false;
    if (!before->aborted_ && !before->error_) continue;
    end(*job, before->aborted_, before->error_);
    return false;
  }
  job->after_.clear();
  job->state_ = CollectiveState::kStarted;
  return true;
}

bool CommunicationThread::step(Job& job, Lock& lock) {
  stepping_ = job.lane_;
  lock.unlock();
  HostTask::Progress progress = HostTask::Progress::kNone;
  std::exception_ptr error;
  try {
    progress = job.task_->advance();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  stepping_ = nullptr;
  if (leaving_ > 0) ended_.notify_all();
  if (progress == HostTask::Progress::kNone && !error) return false;
  // The job may have been aborted meanwhile.
  if ((progress == HostTask::Progress::kDone || error) && !job.has_ended()) {
    end(job, /*aborted=*/false, error);
    // Free the task without the lock.
    std::unique_ptr<HostTask> task = std::move(job.task_);
    lock.unlock();
    task.reset();
    lock.lock();
  }
  return true;
}

void CommunicationThread::end(Job& job, bool aborted, std::exception_ptr error) {
  job.state_ = CollectiveState::kCompleted;
  job.aborted_ = aborted;
  job.error_ = error;
  job.after_.clear();
  Lane& lane = *std::exchange(job.lane_, nullptr);
  const auto found =
      std::find_if(lane.jobs_.begin(), lane.jobs_.end(), [&](const auto& one) { return one.get() == &job; });
  if (found != lane.jobs_.end()) lane.jobs_.erase(found);
  if (error && !lane.error_) {
    lane.error_ = error;
    while (!lane.jobs_.empty()) {
      const std::shared_ptr<Job> next = lane.jobs_.front();
      end(*next, /*aborted=*/false, error);
    }
  }
  ended_.notify_all();
}

void CommunicationThread::abort(Lane& lane) {
  lane.aborted_ = true;
  while (!lane.jobs_.empty()) {
    const std::shared_ptr<Job> job = lane.jobs_.front();
    end(*job, /*aborted=*/true, nullptr);
  }
}

void CommunicationThread::idle(Lock& lock) { work_.wait_for(lock, pauses_.next()); }

void CommunicationThread::Job::wait() {
  if (current_order != nullptr) {
    current_order->after_.push_back(shared_from_this());
    return;
  }
  Lock lock(owner_.mutex_);
  owner_.ended_.wait(lock, [this] { return has_ended(); });
  if (error_) std::rethrow_exception(error_);
}

CollectiveState CommunicationThread::Job::state() const {
  const Lock lock(owner_.mutex_);
  if (error_) std::rethrow_exception(error_);
  return state_;
}

CommunicationThread::Lane::Lane(CommunicationThread& thread) : thread_(thread) {
  const Lock lock(thread_.mutex_);
  thread_.lanes_.push_back(this);
}

CommunicationThread::Lane::~Lane() {
  finish();
  const Lock lock(thread_.mutex_);
  std::erase(thread_.lanes_, this);
}

void CommunicationThread::Lane::finish() {
  Lock lock(thread_.mutex_);
  if (unwinding_.now()) thread_.abort(*this);
  ++thread_.leaving_;
  thread_.ended_.wait(lock, [this] { return jobs_.empty() && thread_.stepping_ != this; });
  --thread_.leaving_;
}

bool CommunicationThread::Lane::was_cut_short() const {
  const Lock lock(thread_.mutex_);
  return aborted_ || error_;
}

std::string CommunicationThread::Lane::error() const {
  const Lock lock(thread_.mutex_);
  return error_ ? text_of(error_) : "";
}

HostOrder::HostOrder() { current_order = this; }

HostOrder::~HostOrder() { current_order = nullptr; }

void HostOrder::run(std::function<void()> work) {
  if (after_.empty()) return work();
  CommunicationThread& thread = after_.front()->owner_;
  after_.push_back(thread.functions_->submit(std::make_unique<FunctionTask>(std::move(work))));
}

}  // namespace mpzero::parallel
