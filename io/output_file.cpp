#include "io/output_file.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "io/atomic_file.hpp"
#include "io/checksum.hpp"
#include "io/parallel_blocks.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

int64_t length(std::span<const std::byte> bytes) { return static_cast<int64_t>(bytes.size()); }

}  // namespace

OutputFile::OutputFile(fs::path path, const Options& options, FileSystem& files)
    : path_(std::move(path)), files_(files), options_(options) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_TRUNC;
  int error = EINVAL;
  if (options.direct) {
    do {
      error = files.open(path_, kFlags | O_DIRECT, descriptor_);
    } while (error == EINTR);
    direct_ = error == 0;
  }
  // What a file system without direct access says.
  while (error == EINVAL || error == EINTR) {
    error = files.open(path_, kFlags, descriptor_);
    if (error == EINVAL) break;
  }
  if (error != 0) throw_system_error("create", path_, error);
  if (options.expected_size > 0) {
    do {
      error = files.reserve(descriptor_, options.expected_size);
    } while (error == EINTR);
    // Many network file systems set nothing aside.
    if (error != 0 && error != EOPNOTSUPP && error != ENOSYS && error != EINVAL) {
      files.close(std::exchange(descriptor_, -1));
      throw_system_error("write", path_, error);
    }
  }
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) files_.close(descriptor_);
}

void OutputFile::write_all(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    size_t written = 0;
    const int error = files_.write(descriptor_, offset, bytes, written);
    if (error == EINTR) continue;
    if (error != 0) throw_system_error("write", path_, error);
    bytes = bytes.subspan(written);
    offset += static_cast<int64_t>(written);
    if (direct_ && written % static_cast<size_t>(kAlignment) != 0) {
      // A disk that is nearly full may end a direct write anywhere; the rest of the page is written again.
      const int64_t again = static_cast<int64_t>(written) % kAlignment;
      bytes = {bytes.data() - again, bytes.size() + static_cast<size_t>(again)};
      offset -= again;
      if (static_cast<int64_t>(written) < kAlignment) throw_system_error("write", path_, ENOSPC);
    }
  }
}

void OutputFile::append(std::span<const std::byte> bytes) {
  const Piece piece{bytes, {}};
  append(std::span(&piece, 1));
}

void OutputFile::append(std::span<const Piece> pieces) {
  // What was carried over comes first; `starts` are places in the file, with the end behind the last.
  const std::vector<std::byte> carried = std::exchange(carry_, {});
  std::vector<Piece> parts;
  parts.reserve(pieces.size() + 1);
  parts.push_back({carried, {}});
  parts.insert(parts.end(), pieces.begin(), pieces.end());
  std::vector<int64_t> starts = {size_ - length(carried)};
  for (const Piece& part : parts) starts.push_back(starts.back() + length(part.bytes));
  const int64_t begin = starts.front();
  size_ = starts.back();
  const int64_t end = size_ / kAlignment * kAlignment;

  const auto part_at = [&](int64_t offset) {
    return static_cast<size_t>(std::upper_bound(starts.begin(), starts.end() - 1, offset) - starts.begin()) - 1;
  };
  const auto copy_out = [&](int64_t from, int64_t to, std::byte* out) {
    for (size_t i = part_at(from); from < to; ++i) {
      const int64_t stop = std::min(to, starts[i + 1]);
      if (stop <= from) continue;
      std::memcpy(out, parts[i].bytes.data() + (from - starts[i]), static_cast<size_t>(stop - from));
      out += stop - from;
      from = stop;
    }
  };
  // The blocks of the parts that begin in [from, to) of the file.
  const auto hash = [&](int64_t from, int64_t to) {
    for (size_t i = part_at(from); i < parts.size() && starts[i] < to; ++i) {
      const std::span<uint64_t> sums = parts[i].checksums;
      const int64_t first = std::max<int64_t>(0, (from - starts[i] + kChecksumBlockBytes - 1) / kChecksumBlockBytes);
      for (auto block = static_cast<size_t>(first); block < sums.size(); ++block) {
        const size_t at = block * static_cast<size_t>(kChecksumBlockBytes);
        if (starts[i] + static_cast<int64_t>(at) >= to) break;
        sums[block] = checksum(
            parts[i].bytes.subspan(at, std::min(static_cast<size_t>(kChecksumBlockBytes), parts[i].bytes.size() - at)));
      }
    }
  };

  // Chunks begin at multiples of their size in the file; the last ends where the carry begins.
  const int64_t first_chunk = begin / kChunkBytes;
  const int64_t chunks = (size_ + kChunkBytes - 1) / kChunkBytes - first_chunk;
  const int threads = chunks < 2 ? 1 : options_.threads > 0 ? options_.threads : io_threads();
  parallel_for(chunks, threads, [&](int64_t i) {
    if (options_.stop.stop_requested()) throw_failure("writing {} was given up", path_.string());
    const int64_t from = std::max(begin, (first_chunk + i) * kChunkBytes);
    const int64_t to = std::min(size_, (first_chunk + i + 1) * kChunkBytes);
    hash(from, to);
    const int64_t stop = std::min(to, end);
    if (from >= stop) return;
    const size_t part = part_at(from);
    const std::byte* memory = parts[part].bytes.data() + (from - starts[part]);
    if (stop <= starts[part + 1] && (is_page_aligned(memory) || !direct_)) {
      write_all(from, {memory, static_cast<size_t>(stop - from)});
    } else {
      const AlignedBuffers::Lease buffer = buffers_.take();
      copy_out(from, stop, buffer.data());
      write_all(from, {buffer.data(), static_cast<size_t>(stop - from)});
    }
  });
  carry_.resize(static_cast<size_t>(size_ - std::max(begin, end)));
  copy_out(std::max(begin, end), size_, carry_.data());
}

void OutputFile::finish() {
  const int64_t aligned = size_ - length(carry_);
  if (!carry_.empty()) {
    const AlignedBuffers::Lease buffer = buffers_.take();
    std::memset(buffer.data(), 0, static_cast<size_t>(kAlignment));
    std::memcpy(buffer.data(), carry_.data(), carry_.size());
    write_all(aligned, {buffer.data(), static_cast<size_t>(kAlignment)});
  }
  if (const int error = files_.resize(descriptor_, size_); error != 0) {
    throw_system_error("set the size of", path_, error);
  }
  if (const int error = files_.sync(descriptor_); error != 0) throw_system_error("write to disk", path_, error);
  files_.close(std::exchange(descriptor_, -1));
}

}  // namespace mpzero::io
