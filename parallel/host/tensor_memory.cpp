#include "parallel/host/tensor_memory.hpp"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "parallel/host/host_memory.hpp"

namespace mpzero::parallel {
namespace {

constexpr size_t kParts = 8;  // sizes between two powers of two

// Rounds up to one of eight sizes between powers of two. Untouched pages of a tensor do not use memory.
size_t rounded_up(size_t bytes) {
  const size_t step = std::bit_floor(bytes) / kParts;
  return (bytes + step - 1) / step * step;
}

// Maps memory aligned to huge pages. Returns null if the system is out of memory.
void* map(size_t bytes) {
  void* const start = mmap(nullptr, bytes + kLargePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(start);
  const size_t before = (kLargePage - address % kLargePage) % kLargePage;
  char* const memory = static_cast<char*>(start) + before;
  if (before > 0) munmap(start, before);
  munmap(memory + bytes, kLargePage - before);
  // Advise only whole huge pages, because the tensor may leave the rest untouched.
  madvise(memory, bytes / kLargePage * kLargePage, MADV_HUGEPAGE);
  return memory;
}

TensorMemory& instance() {
  // Never deleted, because tensors of static objects are freed after main().
  static auto* const memory = new TensorMemory;
  return *memory;
}

}  // namespace

void TensorMemory::count(int64_t bytes) {
  const int64_t now = bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t most = peak_bytes_.load(std::memory_order_relaxed);
  while (now > most && !peak_bytes_.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

void* TensorMemory::take(size_t bytes) {
  const size_t size = rounded_up(bytes);
  const std::lock_guard lock(mutex_);
  void* memory = nullptr;
  if (const auto found = kept_.find(size); found != kept_.end()) {
    memory = found->second;
    kept_.erase(found);
    kept_bytes_ -= size;
  } else {
    const size_t allowed = std::max(peak_, used_bytes_ + size) / kParts * (kParts + 1);
    keep_at_most(allowed - std::min(allowed, used_bytes_ + size));
    memory = map(size);
    if (memory == nullptr) {
      keep_at_most(0);
      memory = map(size);
    }
  }
  if (memory == nullptr) return nullptr;
  used_.emplace(memory, Block{.size = size, .asked = bytes});
  count(static_cast<int64_t>(bytes));
  used_bytes_ += size;
  peak_ = std::max(peak_, used_bytes_);
  return memory;
}

bool TensorMemory::put_back(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(memory);
  if (found == used_.end()) return false;
  const auto [size, asked] = found->second;
  kept_.emplace(size, memory);
  kept_bytes_ += size;
  used_bytes_ -= size;
  count(-static_cast<int64_t>(asked));
  used_.erase(found);
  return true;
}

void TensorMemory::keep_at_most(size_t bytes) {
  while (kept_bytes_ > bytes) {
    // Unmap the largest block first, which minimizes the number of calls.
    const auto last = std::prev(kept_.end());
    munmap(last->second, last->first);
    kept_bytes_ -= last->first;
    kept_.erase(last);
  }
}

size_t TensorMemory::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

size_t TensorMemory::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

c10::DataPtr TensorMemory::allocate(size_t bytes) {
  void* memory = bytes < kLarge ? nullptr : take(bytes);
  // PyTorch's allocator serves small tensors and reports out-of-memory errors.
  if (memory == nullptr) {
    memory = c10::alloc_cpu(bytes);
    count(static_cast<int64_t>(malloc_usable_size(memory)));
  }
  return {memory, memory, raw_deleter(), c10::Device(c10::DeviceType::CPU)};
}

c10::DeleterFnPtr TensorMemory::raw_deleter() const {
  return [](void* memory) {
    const bool maybe_large = reinterpret_cast<uintptr_t>(memory) % kLargePage == 0;
    if (memory != nullptr && maybe_large && instance().put_back(memory)) return;
    instance().count(-static_cast<int64_t>(malloc_usable_size(memory)));
    c10::free_cpu(memory);
  };
}

const TensorMemory& tensor_memory() { return instance(); }

TensorMemory& use_tensor_memory() {
  constexpr uint8_t kBeforeOthers = UINT8_MAX;
  c10::SetCPUAllocator(&instance(), kBeforeOthers);
  // The heap, which serves only small tensors, should also keep freed memory.
  constexpr int kMappedFrom = 32 << 20, kTrimmedFrom = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kMappedFrom);
  mallopt(M_TRIM_THRESHOLD, kTrimmedFrom);
  return instance();
}

}  // namespace mpzero::parallel
