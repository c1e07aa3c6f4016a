#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string_view>

namespace mpzero::io {

// A longer line is no line of a run.
inline constexpr size_t kLongestLine = size_t{4} << 20;

// Calls `use` with each line of a text file that a run or a launcher writes, and whether the line has its end. What was
// appended since the call is left out, and so is the rest of a line beyond kLongestLine. Throws as
// File::open_for_reading: it never waits for a FIFO and reads no device.
void read_lines(const std::filesystem::path& path, const std::function<void(std::string_view line, bool has_end)>& use);

}  // namespace mpzero::io
