#include "io/files/text_lines.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "io/files/atomic_file.hpp"

namespace mpzero::io {

void read_lines(const std::filesystem::path& path,
                const std::function<void(std::string_view line, bool has_end)>& use) {
  const File file = File::open_for_reading(path);
  const int64_t size = file.size();
  std::vector<char> block(size_t{64} << 10);
  std::string line;
  for (int64_t offset = 0; offset < size;) {
    const auto wanted = std::min(static_cast<int64_t>(block.size()), size - offset);
    const ssize_t got = ::pread(file.descriptor(), block.data(), static_cast<size_t>(wanted), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system_error("read", path, errno);
    if (got == 0) break;  // it was cut meanwhile
    offset += got;
    std::string_view rest(block.data(), static_cast<size_t>(got));
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      line += rest.substr(0, std::min(end, kLongestLine - line.size()));
      if (end == std::string_view::npos) break;
      use(line, /*has_end=*/true);
      line.clear();
      rest.remove_prefix(end + 1);
    }
  }
  if (!line.empty()) use(line, /*has_end=*/false);
}

}  // namespace mpzero::io
