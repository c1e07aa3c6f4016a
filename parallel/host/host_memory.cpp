#include "parallel/host/host_memory.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.hpp"
#include "parallel/host/thread_team.hpp"

namespace mpzero::parallel {
namespace {

constexpr double kGibibyte = 1 << 30;
constexpr size_t kPage = 4096;
constexpr size_t kPinningThreads = 8;

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Memory mapping that is unmapped in the destructor. Mappings of at least a huge page are aligned to huge pages.
class Mapping {
 public:
  explicit Mapping(size_t bytes) : bytes_(rounded_up(bytes, kPage)) {
    const size_t slack = bytes >= kLargePage ? kLargePage : 0;
    void* const start = mmap(nullptr, bytes_ + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
      throw_failure("mmap of {:.2f} GiB of host memory failed: {}; use more ranks or a host with more memory",
                    static_cast<double>(bytes) / kGibibyte, std::strerror(errno));
    }
    memory_ = static_cast<char*>(start);
    if (slack > 0) {
      const auto address = reinterpret_cast<uintptr_t>(start);
      const size_t before = rounded_up(address, kLargePage) - address;
      memory_ += before;
      if (before > 0) munmap(start, before);
      if (before < slack) munmap(memory_ + bytes_, slack - before);
      madvise(memory_, bytes_, MADV_HUGEPAGE);
    }
  }
  ~Mapping() {
    if (pinned_) cudaHostUnregister(memory_);
    munmap(memory_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void* memory() const { return memory_; }

  void touch(ThreadTeam* team) {
    const auto large_pages = static_cast<int64_t>(rounded_up(bytes_, kLargePage) / kLargePage);
    const auto touch_one = [this](int64_t large_page) {
      const size_t begin = static_cast<size_t>(large_page) * kLargePage;
      for (size_t at = begin; at < std::min(begin + kLargePage, bytes_); at += kPage) {
        static_cast<volatile char*>(memory_)[at] = 0;
      }
    };
    if (team != nullptr) return team->run(large_pages, touch_one);
    at::parallel_for(0, large_pages, 1, [&](int64_t first, int64_t last) {
      for (int64_t page = first; page < last; ++page) touch_one(page);
    });
  }

  void pin() {
    const cudaError_t result = cudaHostRegister(memory_, bytes_, cudaHostRegisterDefault);
    if (result != cudaSuccess) {
      throw_failure(
          "cudaHostRegister of {:.2f} GiB failed: {}; use more ranks, set pin_memory to false, or pass --recompute "
          "full",
          static_cast<double>(bytes_) / kGibibyte, cudaGetErrorString(result));
    }
    pinned_ = true;
  }

 private:
  size_t bytes_;
  char* memory_ = nullptr;
  bool pinned_ = false;
};

// Registers memory with several threads.
void pin(const std::vector<Mapping*>& mappings) {
  if (mappings.empty()) return;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) device = 0;
  ThreadTeam threads(static_cast<int>(std::min(mappings.size(), kPinningThreads)));
  threads.run(static_cast<int64_t>(mappings.size()), [&](int64_t i) {
    // A new thread starts with device 0, where it would create a context.
    cudaSetDevice(device);
    mappings[static_cast<size_t>(i)]->pin();
  });
}

}  // namespace

at::Tensor host_tensor(int64_t numel, at::ScalarType dtype, bool pinned, ThreadTeam* team) {
  return host_tensors({numel}, dtype, pinned, team).front();
}

std::vector<at::Tensor> host_tensors(const std::vector<int64_t>& numel, at::ScalarType dtype, bool pinned,
                                     ThreadTeam* team) {
  const auto options = at::TensorOptions().dtype(dtype);
  std::vector<std::shared_ptr<Mapping>> mappings;
  std::vector<Mapping*> to_pin;
  for (const int64_t count : numel) {
    mappings.push_back(count == 0 ? nullptr
                                  : std::make_shared<Mapping>(static_cast<size_t>(count) * c10::elementSize(dtype)));
    if (count == 0) continue;
    // Touch the memory before registration, because registration would touch it with only one thread.
    mappings.back()->touch(team);
    if (pinned) to_pin.push_back(mappings.back().get());
  }
  pin(to_pin);
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < numel.size(); ++i) {
    // CUDA recognizes registered addresses, so copies of this CPU tensor are asynchronous.
    tensors.push_back(mappings[i] ? at::from_blob(
                                        mappings[i]->memory(), {numel[i]}, [m = mappings[i]](void*) {}, options)
                                  : at::zeros({0}, options));
  }
  return tensors;
}

at::Tensor host_tensor_without_memory(int64_t numel, at::ScalarType dtype) {
  return at::from_blob(nullptr, {numel}, at::TensorOptions().dtype(dtype));
}

}  // namespace mpzero::parallel
