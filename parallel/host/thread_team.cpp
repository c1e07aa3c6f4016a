#include "parallel/host/thread_team.hpp"

#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <utility>

namespace mpzero::parallel {
namespace {

// Polling time of an idle thread before it sleeps, about as long as a wake-up.
constexpr std::chrono::microseconds kLookForWork{50};

// Calls `look` until it returns true or the time is up. Returns the last result.
template <typename Look>
bool look_for_a_while(const Look& look) {
  const auto end = std::chrono::steady_clock::now() + kLookForWork;
  while (!look()) {
    if (std::chrono::steady_clock::now() >= end) return look();
    std::this_thread::yield();
  }
  return true;
}

void bind_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(core), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace

void ThreadTeam::Task::work_through() {
  for (int64_t block = next_.fetch_add(1); block < blocks_; block = next_.fetch_add(1)) {
    try {
      work_(block);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_all();
  }
}

void ThreadTeam::Task::wait() {
  if (!look_for_a_while([this] { return done(); })) {
    for (int64_t left = left_.load(); left != 0; left = left_.load()) left_.wait(left);
  }
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

ThreadTeam::ThreadTeam(int threads, const std::vector<int>& cores) {
  for (int i = 0; i < threads; ++i) {
    const int core = static_cast<size_t>(i) < cores.size() ? cores[static_cast<size_t>(i)] : -1;
    threads_.emplace_back([this, core] { serve(core); });
  }
}

ThreadTeam::~ThreadTeam() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    ++handed_in_;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::shared_ptr<ThreadTeam::Task> ThreadTeam::start(int64_t blocks, Work work) {
  std::shared_ptr<Task> task(new Task(blocks, std::move(work)));
  if (blocks == 0) return task;
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(task);
    ++handed_in_;
  }
  changed_.notify_all();
  return task;
}

std::shared_ptr<ThreadTeam::Task> ThreadTeam::next_task() {
  while (true) {
    int64_t seen = 0;
    {
      const std::lock_guard lock(mutex_);
      while (!tasks_.empty() && tasks_.front()->next_.load() >= tasks_.front()->blocks_) tasks_.pop_front();
      if (!tasks_.empty()) return tasks_.front();
      if (ending_) return nullptr;
      seen = handed_in_.load();
    }
    if (look_for_a_while([&] { return handed_in_.load() != seen; })) continue;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return handed_in_.load() != seen; });
  }
}

void ThreadTeam::serve(int core) {
  if (core >= 0) bind_to(core);
  while (const std::shared_ptr<Task> task = next_task()) task->work_through();
}

}  // namespace mpzero::parallel
