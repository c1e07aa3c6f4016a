#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

namespace mpzero::parallel {

// Caching allocator for CPU tensors. The memory of a freed large tensor is reused for the next tensor of similar size,
// in huge pages if available. A step allocates and frees tensors of hundreds of MiB. malloc would return this memory to
// the system, and the next step would fault in and zero every 4 KiB page again. Total memory exceeds the peak use of
// large tensors by at most an eighth. Thread-safe. The allocator must outlive its tensors.
class TensorMemory final : public c10::Allocator {
 public:
  // Minimum size of a large tensor, in bytes. Smaller tensors use PyTorch's own allocator.
  static constexpr size_t kLarge = size_t{2} << 20;

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  // Return the number of bytes in use by large tensors, and the number of bytes cached for reuse.
  size_t used_bytes() const;
  size_t kept_bytes() const;
  // Returns the peak number of bytes in use by all tensors, including small tensors.
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  struct Block {
    size_t size = 0;
    size_t asked = 0;  // size of the tensor
  };

  void count(int64_t bytes);
  void* take(size_t bytes);
  // Caches the memory of a freed tensor for reuse. Returns false if the memory was not allocated by this allocator.
  bool put_back(void* memory);
  // Returns cached memory to the system until at most `bytes` remain cached.
  void keep_at_most(size_t bytes);

  mutable std::mutex mutex_;
  std::unordered_map<void*, Block> used_;
  std::multimap<size_t, void*> kept_;  // keyed by size
  size_t used_bytes_ = 0, kept_bytes_ = 0, peak_ = 0;
  std::atomic<int64_t> bytes_ = 0, peak_bytes_ = 0;  // large and small tensors
};

// Returns the allocator of CPU tensors that use_tensor_memory() has installed.
const TensorMemory& tensor_memory();

// Installs a TensorMemory as the process's allocator of CPU tensors, and returns it.
TensorMemory& use_tensor_memory();

}  // namespace mpzero::parallel
