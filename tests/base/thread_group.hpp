#pragma once

#include <barrier>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/process_group.hpp"

namespace mpzero {

// Several ranks that run as threads of one process.
class ThreadGroup {
 public:
  explicit ThreadGroup(int world_size) : barrier_(world_size), texts_(static_cast<size_t>(world_size)) {}

  // Runs `work` on each rank. Returns one error message per rank; empty if `work` succeeded.
  std::vector<std::string> run(const std::function<void(ProcessGroup&)>& work) {
    std::vector<std::string> errors(texts_.size());
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < static_cast<int>(texts_.size()); ++rank) {
      threads.emplace_back([&, rank] {
        Member member(*this, rank);
        try {
          work(member);
        } catch (const std::exception& error) {
          errors[static_cast<size_t>(rank)] = error.what();
        }
      });
    }
    threads.clear();
    return errors;
  }

 private:
  class Member final : public ProcessGroup {
   public:
    Member(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}
    int rank() const override { return rank_; }
    int world_size() const override { return static_cast<int>(group_.texts_.size()); }
    void barrier() override { group_.barrier_.arrive_and_wait(); }
    std::vector<std::string> all_gather(const std::string& text) override {
      group_.texts_[static_cast<size_t>(rank_)] = text;
      barrier();
      std::vector<std::string> all = group_.texts_;
      barrier();
      return all;
    }

   private:
    ThreadGroup& group_;
    int rank_;
  };

  std::barrier<> barrier_;
  std::vector<std::string> texts_;
};

}  // namespace mpzero
