#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mpzero {

// Control plane over all ranks: blocking exchange of small messages in host memory. Parameters and gradients use
// parallel::Communicator instead.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual void barrier() = 0;
  // Returns the `text` of every rank, in rank order.
  virtual std::vector<std::string> all_gather(const std::string& text) = 0;
};

// Group of a single process.
class SingleProcess final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  void barrier() override {}
  std::vector<std::string> all_gather(const std::string& text) override { return {text}; }
};

// Position of this rank among the ranks that read different sequences of a global batch. Ranks that share sequences
// have the same `rank`.
struct DataParallel {
  int rank = 0;
  int size = 1;
};
// Position of this rank among the ranks that share sequences. Each rank reads a part of each sequence; the parts have
// equal length and are in rank order.
struct SequenceParallel {
  int rank = 0;
  int size = 1;
};

// Runs `work` on every rank and returns if all ranks succeed. Otherwise throws the error of the lowest failed rank on
// every rank. The message has the prefix "rank R: " unless all ranks failed with the same message. Errors of class
// Damaged or UserError keep their class, and every Error keeps its errno. All other exceptions are rethrown as Failure.
// Throws Damaged only if the errors of all failed ranks are Damaged. Must be called by all ranks. `work` must not wait
// for other ranks. Throws RankFailure if the hosts of some ranks may be at fault (EIO, ESTALE).
void run_on_all_ranks(ProcessGroup& group, const std::function<void()>& work);

}  // namespace mpzero
