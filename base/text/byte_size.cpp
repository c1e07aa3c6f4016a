#include "base/text/byte_size.hpp"

#include <fmt/format.h>

namespace mpzero {

std::string bytes_text(int64_t bytes) {
  constexpr int64_t kKibi = 1024, kMebi = kKibi * 1024, kGibi = kMebi * 1024;
  const auto in = [&](int64_t unit) { return static_cast<double>(bytes) / static_cast<double>(unit); };
  if (bytes >= kGibi) return fmt::format("{:.1f} GiB", in(kGibi));
  if (bytes >= kMebi) return fmt::format("{:.0f} MiB", in(kMebi));
  return fmt::format("{:.0f} KiB", in(kKibi));
}

}  // namespace mpzero
