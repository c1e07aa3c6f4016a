#pragma once

#include <cstdint>
#include <string>

namespace mpzero {

inline constexpr int64_t kMebi = int64_t{1} << 20, kGibi = int64_t{1} << 30;

// Formats a size as "3.2 GiB", "512 MiB" or "64 KiB".
std::string bytes_text(int64_t bytes);

}  // namespace mpzero
