#include "io/bytes/aligned_buffers.hpp"

#include <new>
#include <utility>

namespace mpzero::io {
namespace {

constexpr std::align_val_t kAlignment{static_cast<size_t>(kPageBytes)};

}  // namespace

void AlignedBuffers::Lease::Free::operator()(std::byte* memory) const { ::operator delete[](memory, kAlignment); }

AlignedBuffers::Lease::~Lease() {
  if (!memory_) return;
  const std::scoped_lock lock(owner_->mutex_);
  owner_->free_.push_back(std::move(memory_));
}

AlignedBuffers::Lease AlignedBuffers::take() {
  {
    const std::scoped_lock lock(mutex_);
    if (!free_.empty()) {
      Lease::Memory memory = std::move(free_.back());
      free_.pop_back();
      return {*this, std::move(memory)};
    }
  }
  void* memory = ::operator new[](static_cast<size_t>(bytes_), kAlignment);
  return {*this, Lease::Memory(static_cast<std::byte*>(memory))};
}

}  // namespace mpzero::io
