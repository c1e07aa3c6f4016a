#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "base/error.hpp"
#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// Pool of flat buffers, grouped by length, for a communicator's collectives. Reuse is ordered on the current stream, so
// a buffer may be put back once its last use is queued on this stream. reserve() creates all buffers in advance,
// because creating a buffer is collective and slow, and all buffers are part of the memory plan.
class BufferPool {
 public:
  // `communicator` must outlive the pool.
  BufferPool(Communicator& communicator, at::TensorOptions options) : communicator_(communicator), options_(options) {}

  // Creates buffers until `count` buffers of this length exist, in use or free. All ranks must call reserve() in the
  // same order.
  void reserve(int64_t numel, int64_t count) {
    Buffers& buffers = buffers_[numel];
    for (; buffers.made < count; ++buffers.made) buffers.free.push_back(communicator_.buffer(numel, options_));
  }
  bool has_free(int64_t numel) const {
    const auto found = buffers_.find(numel);
    return found != buffers_.end() && !found->second.free.empty();
  }
  // Returns a free buffer. Throws Failure if all reserved buffers are in use.
  at::Tensor take(int64_t numel) {
    Buffers& buffers = buffers_[numel];
    if (buffers.free.empty()) throw_failure("all {} buffers of {} elements are in use", buffers.made, numel);
    at::Tensor buffer = std::move(buffers.free.back());
    buffers.free.pop_back();
    return buffer;
  }
  void put_back(at::Tensor buffer) { buffers_[buffer.numel()].free.push_back(std::move(buffer)); }

  const at::TensorOptions& options() const { return options_; }
  // Returns the total size of all buffers, in bytes.
  int64_t bytes() const {
    int64_t sum = 0;
    for (const auto& [numel, buffers] : buffers_) sum += numel * buffers.made;
    return sum * static_cast<int64_t>(options_.dtype().itemsize());
  }

 private:
  struct Buffers {
    std::vector<at::Tensor> free;
    int64_t made = 0;
  };

  Communicator& communicator_;
  at::TensorOptions options_;
  std::map<int64_t, Buffers> buffers_;  // keyed by length
};

}  // namespace mpzero::parallel
