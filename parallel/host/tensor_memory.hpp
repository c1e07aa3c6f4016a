#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

namespace mpzero::parallel {

// Memory of CPU tensors. That of a large tensor is kept when the tensor is freed, for the next one of about its size,
// and is in huge pages where the system has them. A step makes and frees tensors of hundreds of MiB; malloc would give
// their memory back to the system, which zeroes every page of 4 KiB again, after a fault each, when the next step makes
// them. All memory of large tensors is at most an eighth more than they have needed at a time. Thread-safe. Outlives
// its tensors.
class TensorMemory final : public c10::Allocator {
 public:
  // Tensors of fewer bytes come from PyTorch's own allocator.
  static constexpr size_t kLarge = size_t{2} << 20;

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  // Of all large tensors, and of the memory that is kept for them.
  size_t used_bytes() const;
  size_t kept_bytes() const;
  // The most that all tensors, small ones too, have held at a time.
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  struct Block {
    size_t size = 0;
    size_t asked = 0;  // of it, by the tensor
  };

  void count(int64_t bytes);
  void* take(size_t bytes);
  // False: the memory is not from here.
  bool put_back(void* memory);
  // Returns kept memory to the system until no more than `bytes` are left.
  void keep_at_most(size_t bytes);

  mutable std::mutex mutex_;
  std::unordered_map<void*, Block> used_;
  std::multimap<size_t, void*> kept_;  // by size
  size_t used_bytes_ = 0, kept_bytes_ = 0, peak_ = 0;
  std::atomic<int64_t> bytes_ = 0, peak_bytes_ = 0;  // of all tensors
};

// What the process's CPU tensors come from once use_tensor_memory() was called.
const TensorMemory& tensor_memory();

// Has the process's CPU tensors from now on come from a TensorMemory, which it returns.
TensorMemory& use_tensor_memory();

}  // namespace mpzero::parallel
