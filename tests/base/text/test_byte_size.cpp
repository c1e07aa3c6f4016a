#include "base/text/byte_size.hpp"
#include "tests/catch.hpp"

using mpzero::bytes_text;

TEST_CASE("a size is shown in the largest unit of which it has at least one") {
  CHECK(bytes_text(0) == "0 KiB");
  CHECK(bytes_text(64 << 10) == "64 KiB");
  CHECK(bytes_text((int64_t{1} << 20) - 1) == "1024 KiB");
  CHECK(bytes_text(512 << 20) == "512 MiB");
  CHECK(bytes_text(int64_t{3277} << 20) == "3.2 GiB");
}
