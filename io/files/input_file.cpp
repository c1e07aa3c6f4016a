#include "io/files/input_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace mpzero::io {
namespace {

// Smaller reads are faster through the page cache than with direct I/O.
constexpr size_t kWorthDirect = 256 << 10;
// Size of an O_DIRECT read into a buffer, in bytes.
constexpr int64_t kBufferBytes = 8 << 20;

}  // namespace

InputFile::InputFile(File file) : file_(std::move(file)), buffers_(std::make_unique<AlignedBuffers>(kBufferBytes)) {
  // Reopens the same file even if the path now refers to another file. If this fails because the file system does not
  // support O_DIRECT or /proc is missing, all reads use the page cache.
  const std::string same_file = "/proc/self/fd/" + std::to_string(file_.descriptor());
  direct_ = ::open(same_file.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
}

InputFile::~InputFile() {
  if (direct_ >= 0) ::close(direct_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : file_(std::move(other.file_)), direct_(std::exchange(other.direct_, -1)), buffers_(std::move(other.buffers_)) {}

bool InputFile::read_direct(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const int64_t begin = round_down_to_page(offset);
    const auto skipped = static_cast<size_t>(offset - begin);
    // Reads whole pages directly into `out`.
    const auto full_pages = static_cast<size_t>(round_down_to_page(static_cast<int64_t>(out.size())));
    const bool in_place = skipped == 0 && full_pages > 0 && is_page_aligned(out.data());
    AlignedBuffers::Lease buffer = in_place ? AlignedBuffers::Lease() : buffers_->take();
    std::byte* memory = in_place ? out.data() : buffer.data();
    const auto size = in_place ? static_cast<int64_t>(full_pages)
                               : std::min(kBufferBytes, round_up_to_page(static_cast<int64_t>(skipped + out.size())));
    const ssize_t n = ::pread(direct_, memory, static_cast<size_t>(size), begin);
    if (n < 0 && errno == EINTR) continue;
    // File::read() then handles the end of the file, retries failed O_DIRECT reads and reports errors.
    if (n <= static_cast<ssize_t>(skipped)) return false;
    const size_t got = std::min(static_cast<size_t>(n) - skipped, out.size());
    if (!in_place) std::memcpy(out.data(), memory + skipped, got);
    out = out.subspan(got);
    offset += static_cast<int64_t>(got);
  }
  return true;
}

void InputFile::read(int64_t offset, std::span<std::byte> out) const {
  if (direct_ >= 0 && out.size() >= kWorthDirect && read_direct(offset, out)) return;
  file_.read(offset, out);
}

}  // namespace mpzero::io
