#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <sys/resource.h>

#include <atomic>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "parallel/host/tensor_memory.hpp"
#include "tests/catch.hpp"
#include "tests/skip.hpp"

namespace mpzero::parallel {
namespace {

constexpr int64_t kMebi = int64_t{1} << 20;

// Tensors come from a TensorMemory for the duration of a test.
class InUse {
 public:
  InUse() : before_(c10::GetCPUAllocator()), memory_(use_tensor_memory()) {}
  ~InUse() { c10::SetCPUAllocator(before_, /*priority=*/UINT8_MAX); }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;
  TensorMemory& memory() { return memory_; }

 private:
  c10::Allocator* before_;
  TensorMemory& memory_;
};

at::Tensor tensor(int64_t bytes) { return at::empty({bytes}, at::kByte); }

int64_t faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// Whether the page at an address is of memory that asks for huge pages ("hg" among the flags of its mapping).
bool asks_for_huge_pages(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    const char* const last = line.data() + line.size();
    const auto first = std::from_chars(line.data(), last, begin, 16);
    if (first.ec == std::errc() && first.ptr != last && *first.ptr == '-' &&
        std::from_chars(first.ptr + 1, last, end, 16).ec == std::errc()) {
      inside = begin <= at && at < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      std::istringstream flags(line);
      for (std::string flag; flags >> flag;) {
        if (flag == "hg") return true;
      }
      return false;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("a large tensor reuses the memory of a freed tensor without page faults") {
  InUse in_use;
  const void* first = nullptr;
  {
    const at::Tensor one = tensor(64 * kMebi).fill_(1);
    first = one.data_ptr();
    CHECK(in_use.memory().used_bytes() == 64 * kMebi);
  }
  CHECK(in_use.memory().used_bytes() == 0);
  CHECK(in_use.memory().kept_bytes() >= 64 * kMebi);
  const int64_t before = faults();
  // Of nearly the same size.
  const at::Tensor next = tensor(63 * kMebi).fill_(2);
  CHECK(faults() - before < 16);
  CHECK(next.data_ptr() == first);
  CHECK(reinterpret_cast<uintptr_t>(first) % TensorMemory::kLarge == 0);
  // Another tensor in use has other memory.
  CHECK(tensor(64 * kMebi).data_ptr() != first);
}

TEST_CASE("a large tensor uses huge pages, except for the remainder", "[huge_pages]") {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled")) return skip_test("huge pages");
  InUse in_use;
  // Of a size that no other test uses, so that its memory is new: 13 huge pages.
  const at::Tensor one = tensor(26 * kMebi);
  const auto* const memory = static_cast<const char*>(one.data_ptr());
  CHECK(asks_for_huge_pages(memory));
  CHECK(asks_for_huge_pages(memory + 26 * kMebi - 1));
  // Two and a half.
  const at::Tensor odd = tensor(5 * kMebi);
  const auto* const start = static_cast<const char*>(odd.data_ptr());
  CHECK(asks_for_huge_pages(start + 4 * kMebi - 1));
  CHECK_FALSE(asks_for_huge_pages(start + 4 * kMebi));
}

TEST_CASE("used and cached memory exceeds the peak use by at most an eighth") {
  InUse in_use;
  // More than other tests use.
  constexpr int64_t kPeak = 320 * kMebi;
  { const at::Tensor peak = tensor(kPeak); }
  CHECK(in_use.memory().kept_bytes() >= kPeak);
  // Each of another size, more than the peak in all.
  for (int64_t bytes = 10 * kMebi; bytes <= 80 * kMebi; bytes += 10 * kMebi) {
    const at::Tensor one = tensor(bytes), two = tensor(bytes + 5 * kMebi);
    CHECK(in_use.memory().used_bytes() + in_use.memory().kept_bytes() <= kPeak / 8 * 9);
  }
}

TEST_CASE("small tensors, and tensors from before the installation, use PyTorch's allocator") {
  const at::Tensor before = tensor(8 * kMebi);
  at::Tensor inside, small;
  {
    InUse in_use;
    inside = at::arange(kMebi);
    const size_t used = in_use.memory().used_bytes();
    CHECK(used == 8 * kMebi);
    small = tensor(kMebi);
    CHECK(tensor(0).numel() == 0);
    CHECK(in_use.memory().used_bytes() == used);
  }
  // Freed while another allocator is in use.
  CHECK(inside[kMebi - 1].item<int64_t>() == kMebi - 1);
}

TEST_CASE("threads allocate and free tensors concurrently") {
  InUse in_use;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([thread, &wrong] {
      for (int i = 0; i < 50; ++i) {
        const at::Tensor own = tensor((2 + i % 3) * kMebi).fill_(thread);
        if (own[0].item<uint8_t>() != thread || own[-1].item<uint8_t>() != thread) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(in_use.memory().used_bytes() == 0);
}

TEST_CASE("the peak of tensor memory includes large and small tensors") {
  InUse in_use;
  const int64_t before = in_use.memory().peak_bytes();
  // More than anything before, so that it is the peak.
  const at::Tensor large = tensor(before + 5 * kMebi);
  const int64_t with_large = in_use.memory().peak_bytes();
  CHECK(with_large >= before + 5 * kMebi);
  std::vector<at::Tensor> small;
  for (int i = 0; i < 100; ++i) small.push_back(tensor(10'000));
  const int64_t added = in_use.memory().peak_bytes() - with_large;
  CHECK(added >= 100 * 10'000);
  CHECK(added < 100 * 10'200);
  small.clear();
  small.push_back(tensor(10'000));
  CHECK(in_use.memory().peak_bytes() == with_large + added);
  CHECK(tensor_memory().peak_bytes() == in_use.memory().peak_bytes());
}

}  // namespace mpzero::parallel
