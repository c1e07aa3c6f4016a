#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <map>
#include <vector>

namespace mpzero::parallel {

// Flat buffers that are used again and again, kept by length. Memory is handed back in the order of the current stream,
// so a buffer may be put back as soon as its last use has been queued there.
class BufferPool {
 public:
  explicit BufferPool(at::TensorOptions options) : options_(options) {}

  at::Tensor take(int64_t numel) {
    std::vector<at::Tensor>& free = free_[numel];
    if (free.empty()) return at::empty({numel}, options_);
    at::Tensor buffer = std::move(free.back());
    free.pop_back();
    return buffer;
  }
  const at::TensorOptions& options() const { return options_; }
  void put_back(at::Tensor buffer) { free_[buffer.numel()].push_back(std::move(buffer)); }

 private:
  at::TensorOptions options_;
  std::map<int64_t, std::vector<at::Tensor>> free_;
};

}  // namespace mpzero::parallel
