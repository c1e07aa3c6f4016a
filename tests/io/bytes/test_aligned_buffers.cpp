#include "io/bytes/aligned_buffers.hpp"
#include "tests/catch.hpp"

namespace mpzero::io {

TEST_CASE("sizes are rounded to pages") {
  CHECK(round_down_to_page(0) == 0);
  CHECK(round_down_to_page(4095) == 0);
  CHECK(round_down_to_page(4096) == 4096);
  CHECK(round_up_to_page(0) == 0);
  CHECK(round_up_to_page(1) == 4096);
  CHECK(round_up_to_page(4096) == 4096);
  CHECK(round_up_to_page(4097) == 8192);
}

TEST_CASE("buffers are aligned, disjoint and reused") {
  AlignedBuffers buffers(10'000);
  std::byte* first = nullptr;
  {
    const AlignedBuffers::Lease lease = buffers.take();
    first = lease.data();
    const AlignedBuffers::Lease other = buffers.take();
    CHECK(is_page_aligned(first));
    CHECK(is_page_aligned(other.data()));
    CHECK(std::abs(other.data() - first) >= 10'000);
    first[9'999] = std::byte{7};
    other.data()[0] = std::byte{8};
    CHECK(first[9'999] == std::byte{7});
  }
  // Leases end in the reverse order, so that the first one's buffer was returned last.
  CHECK(buffers.take().data() == first);
  CHECK_FALSE(is_page_aligned(first + 1));
}

TEST_CASE("a moved-from lease returns nothing") {
  AlignedBuffers buffers(4096);
  AlignedBuffers::Lease lease = buffers.take();
  const AlignedBuffers::Lease moved = std::move(lease);
  std::byte* const memory = moved.data();
  { const AlignedBuffers::Lease gone = std::move(lease); }
  CHECK(buffers.take().data() != memory);
}

}  // namespace mpzero::io
