#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mpzero {

// The control plane over all ranks: small, blocking, host memory only. Parameters and gradients use
// parallel::Communicator instead.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual void barrier() = 0;
  // Every rank's text, by rank.
  virtual std::vector<std::string> all_gather(const std::string& text) = 0;
};

// The group of a single process.
class SingleProcess final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  void barrier() override {}
  std::vector<std::string> all_gather(const std::string& text) override { return {text}; }
};

// This rank's position among ranks that read different sequences of a global batch. Ranks that share sequences have the
// same `rank` here.
struct DataParallel {
  int rank = 0;
  int size = 1;
};
// This rank's position among ranks that share sequences: each reads a part of equal length, in rank order.
struct SequenceParallel {
  int rank = 0;
  int size = 1;
};

// Runs `work` on every rank and returns only if it succeeded on all of them. Otherwise every rank throws the same
// error: that of the lowest rank that failed, prefixed with "rank R: " unless all ranks failed with the same message.
// Damaged and UserError keep their class, and every Error its errno; all other exceptions become Failure. Throws
// Damaged only if no rank failed for another reason. Collective: `work` itself must not wait for other ranks.
void run_on_all_ranks(ProcessGroup& group, const std::function<void()>& work);

}  // namespace mpzero
