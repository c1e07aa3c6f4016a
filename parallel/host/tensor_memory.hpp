#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

namespace mpzero::parallel {

// Caching allocator for CPU tensors. The memory of a freed large tensor is kept for the next one of similar size, in
// huge pages if available. A step allocates and frees tensors of hundreds of MiB; malloc would return their memory to
// the system, which faults in and zeroes every 4 KiB page again in the next step. All memory of large tensors is at
// most an eighth above their peak use. Thread-safe. Must outlive its tensors.
class TensorMemory final : public c10::Allocator {
 public:
  // Smaller tensors come from PyTorch's own allocator.
  static constexpr size_t kLarge = size_t{2} << 20;

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  // Bytes in use by large tensors, and bytes kept for reuse.
  size_t used_bytes() const;
  size_t kept_bytes() const;
  // Peak use of all tensors, including small ones.
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  struct Block {
    size_t size = 0;
    size_t asked = 0;  // requested by the tensor
  };

  void count(int64_t bytes);
  void* take(size_t bytes);
  // Returns false if the memory is not from this allocator.
  bool put_back(void* memory);
  // Returns kept memory to the system until no more than `bytes` are left.
  void keep_at_most(size_t bytes);

  mutable std::mutex mutex_;
  std::unordered_map<void*, Block> used_;
  std::multimap<size_t, void*> kept_;  // by size
  size_t used_bytes_ = 0, kept_bytes_ = 0, peak_ = 0;
  std::atomic<int64_t> bytes_ = 0, peak_bytes_ = 0;  // of all tensors
};

// The allocator of the process's CPU tensors after use_tensor_memory().
const TensorMemory& tensor_memory();

// Makes a TensorMemory the allocator of the process's CPU tensors, and returns it.
TensorMemory& use_tensor_memory();

}  // namespace mpzero::parallel
