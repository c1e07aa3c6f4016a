#pragma once

#include <cstdint>
#include <string>

namespace mpzero {

// "3.2 GiB", "512 MiB", "64 KiB".
std::string bytes_text(int64_t bytes);

}  // namespace mpzero
