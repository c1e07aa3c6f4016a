#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

// Memory for direct I/O, aligned to the largest logical block size of disks.
namespace mpzero::io {

inline constexpr int64_t kPageBytes = 4096;

constexpr int64_t round_down_to_page(int64_t bytes) { return bytes / kPageBytes * kPageBytes; }
constexpr int64_t round_up_to_page(int64_t bytes) { return round_down_to_page(bytes + kPageBytes - 1); }
inline bool is_page_aligned(const std::byte* memory) {
  return reinterpret_cast<uintptr_t>(memory) % static_cast<uintptr_t>(kPageBytes) == 0;
}

// A thread-safe pool of buffers of equal size.
class AlignedBuffers {
 public:
  explicit AlignedBuffers(int64_t bytes) : bytes_(bytes) {}

  // A buffer of the pool. The destructor returns the buffer to the pool.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&&) noexcept = default;
    ~Lease();
    std::byte* data() const { return memory_.get(); }

   private:
    friend class AlignedBuffers;
    struct Free {
      void operator()(std::byte* memory) const;
    };
    using Memory = std::unique_ptr<std::byte[], Free>;
    Lease(AlignedBuffers& owner, Memory memory) : owner_(&owner), memory_(std::move(memory)) {}

    AlignedBuffers* owner_ = nullptr;
    Memory memory_;
  };
  Lease take();

 private:
  int64_t bytes_;
  std::mutex mutex_;
  std::vector<Lease::Memory> free_;
};

}  // namespace mpzero::io
