#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace mpzero::parallel {

// Thread pool whose tasks are divided into blocks. Tasks start in submission order. A thread that finds no more blocks
// in a task continues with the next task, so that all threads stay busy while blocks remain.
class ThreadTeam {
 public:
  // Processes one block. Called once for each block 0, 1, ... of a task, in any order.
  using Work = std::function<void(int64_t block)>;

  class Task {
   public:
    // Waits until all blocks are done. Rethrows an exception that a block has thrown.
    void wait();
    bool done() const { return left_.load(std::memory_order_acquire) == 0; }

   private:
    friend class ThreadTeam;
    Task(int64_t blocks, Work work) : blocks_(blocks), work_(std::move(work)), left_(blocks) {}
    // Processes blocks of the task until all blocks have started.
    void work_through();

    const int64_t blocks_;
    const Work work_;
    std::atomic<int64_t> next_{0};
    std::atomic<int64_t> left_;
    std::mutex mutex_;  // protects error_
    std::exception_ptr error_;
  };

  // Binds thread i to cores[i], an OS index; threads are not bound if `cores` is empty. If the kernel rejects the
  // affinity, the thread is not bound.
  explicit ThreadTeam(int threads, const std::vector<int>& cores = {});
  // Waits until all submitted tasks are complete.
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return static_cast<int>(threads_.size()); }
  std::shared_ptr<Task> start(int64_t blocks, Work work);
  void run(int64_t blocks, Work work) { start(blocks, std::move(work))->wait(); }

 private:
  void serve(int core);
  // Waits for a task with blocks that have not started, and returns the first such task. Returns null when the
  // ThreadTeam is destroyed.
  std::shared_ptr<Task> next_task();

  std::mutex mutex_;  // protects tasks_ and ending_
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> tasks_;
  std::atomic<int64_t> handed_in_{0};
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mpzero::parallel
