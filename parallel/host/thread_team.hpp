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

// Threads that share the blocks of tasks. Tasks are started in the order in which they were submitted. A thread that
// finds no more blocks in one task continues with the next, so no thread is idle while there is work.
class ThreadTeam {
 public:
  // Work on the blocks 0, 1, … of one task, in any order, each once.
  using Work = std::function<void(int64_t block)>;

  class Task {
   public:
    // Returns when all blocks are done. Rethrows the exception of a block.
    void wait();
    bool done() const { return left_.load(std::memory_order_acquire) == 0; }

   private:
    friend class ThreadTeam;
    Task(int64_t blocks, Work work) : blocks_(blocks), work_(std::move(work)), left_(blocks) {}
    // Processes blocks until none is left to start.
    void work_through();

    const int64_t blocks_;
    const Work work_;
    std::atomic<int64_t> next_{0};
    std::atomic<int64_t> left_;
    std::mutex mutex_;  // of error_
    std::exception_ptr error_;
  };

  // `cores`: thread i is bound to the i-th of these operating system numbers; empty: no binding. If the system refuses
  // a core, that thread is not bound.
  explicit ThreadTeam(int threads, const std::vector<int>& cores = {});
  // Finishes the submitted tasks.
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return static_cast<int>(threads_.size()); }
  std::shared_ptr<Task> start(int64_t blocks, Work work);
  // start() and wait().
  void run(int64_t blocks, Work work) { start(blocks, std::move(work))->wait(); }

 private:
  void serve(int core);
  // The first task that still has blocks to start; waits for one. Null when the team ends.
  std::shared_ptr<Task> next_task();

  std::mutex mutex_;  // of tasks_ and ending_
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> tasks_;
  std::atomic<int64_t> handed_in_{0};
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mpzero::parallel
