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

// Threads that share out blocks of work. Tasks are begun in the order in which they were handed in, and a thread that
// finds no more blocks in one goes on to the next, so that none waits for another as long as there is work.
class ThreadTeam {
 public:
  // Work on the blocks 0, 1, … of one task, in any order, each once.
  using Work = std::function<void(int64_t block)>;

  class Task {
   public:
    // Until all blocks are done. Throws what a block threw.
    void wait();
    bool done() const { return left_.load(std::memory_order_acquire) == 0; }

   private:
    friend class ThreadTeam;
    Task(int64_t blocks, Work work) : blocks_(blocks), work_(std::move(work)), left_(blocks) {}
    // Takes blocks until none is left to begin.
    void work_through();

    const int64_t blocks_;
    const Work work_;
    std::atomic<int64_t> next_{0};
    std::atomic<int64_t> left_;
    std::mutex mutex_;  // of error_
    std::exception_ptr error_;
  };

  // `cores`: thread i runs on the i-th one alone, an operating system's number; none: where the system likes. A core
  // that the system refuses is as good as none.
  explicit ThreadTeam(int threads, const std::vector<int>& cores = {});
  // Finishes what has been handed in.
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return static_cast<int>(threads_.size()); }
  std::shared_ptr<Task> start(int64_t blocks, Work work);
  // start() and wait().
  void run(int64_t blocks, Work work) { start(blocks, std::move(work))->wait(); }

 private:
  void serve(int core);
  // The first task that still has blocks to begin; waits for one. Null: the team ends.
  std::shared_ptr<Task> next_task();

  std::mutex mutex_;  // of tasks_ and ending_
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> tasks_;
  std::atomic<int64_t> handed_in_{0};
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mpzero::parallel
