#include "app/memory/memory_limit.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

TEST_CASE("the GPU limit excludes CUDA, NCCL, the margin and other processes") {
  // 80 - 3 for CUDA and NCCL, of which 1 in 25 is left free.
  CHECK(memory_room({.gpu = 80 * kGiB, .host = 9 * kGiB}).limit().device == 77 * kGiB - 77 * kGiB / 25);
  // A context alone is part of the 3; the rest is others'.
  const auto limit = [](int64_t used) {
    return memory_room({.gpu = 80 * kGiB, .gpu_used = used, .host = 9 * kGiB}).limit().device;
  };
  CHECK(limit(kContextAlone) == 77 * kGiB - 77 * kGiB / 25);
  CHECK(limit(kContextAlone + 10 * kGiB) == 67 * kGiB - 67 * kGiB / 25);
  CHECK(memory_room({.host = 9 * kGiB}).limit().device == tensors_within(8 * kGiB));
}

TEST_CASE("the ranks of a host share its memory, except for 1 GiB") {
  CHECK(memory_room({.host = 9 * kGiB, .ranks = 4}).limit().host == 2 * kGiB);
}

TEST_CASE("the smallest host ratio leaves no more states on the GPU than fit") {
  const parallel::MemoryUse use{.host_optimizer_states = 12'000'000'000};
  CHECK(smallest_host_ratio(use, 0) == 1);
  CHECK(smallest_host_ratio(use, 3'000'000'000) == 0.75);
  CHECK(smallest_host_ratio(use, 3'000'000'001) == 0.75);
  CHECK(smallest_host_ratio(use, 2'999'999'999) == 0.7501);
  CHECK(smallest_host_ratio(use, 12'000'000'000) == 0);
  CHECK(smallest_host_ratio(use, 99'000'000'000) == 0);
  CHECK(smallest_host_ratio({}, 5) == 0);
}

TEST_CASE("the tensor limit fills the process limit, up to rounding") {
  for (const int64_t process : {kGiB, 23 * kGiB + 5}) {
    const int64_t tensors = tensors_within(process);
    CHECK(process_bytes(tensors) <= process);
    CHECK(process_bytes(tensors + 18) > process);
  }
}

}  // namespace
}  // namespace mpzero
