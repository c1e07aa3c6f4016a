#include "io/files/output_file.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/bytes/parallel_blocks.hpp"
#include "io/files/atomic_file.hpp"

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
  // EINVAL means that the file system does not support O_DIRECT.
  while (error == EINVAL || error == EINTR) {
    error = files.open(path_, kFlags, descriptor_);
    if (error == EINVAL) break;
  }
  if (error != 0) throw_system_error("create", path_, error);
  if (options.expected_size > 0) {
    do {
      error = files.reserve(descriptor_, options.expected_size);
    } while (error == EINTR);
    // Ignores errors of unsupported calls because many network file systems cannot allocate space in advance.
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
      // A full disk, a file size limit or a signal can end an O_DIRECT write within a page. That page is written again.
      const int64_t again = static_cast<int64_t>(written) % kAlignment;
      bytes = {bytes.data() - again, bytes.size() + static_cast<size_t>(again)};
      offset -= again;
      if (static_cast<int64_t>(written) < kAlignment) return write_through_cache(offset, bytes);
    }
  }
}

void OutputFile::write_through_cache(int64_t offset, std::span<const std::byte> bytes) {
  File file = File::open_for_update(path_, files_);
  file.write(offset, bytes);
  // Syncs these pages now because other threads may write adjacent pages with O_DIRECT.
  file.sync();
}

struct OutputFile::Parts {
  std::vector<Piece> pieces;
  std::vector<int64_t> starts;  // file offset of each piece, followed by the end of the last piece

  size_t at(int64_t offset) const {
    return static_cast<size_t>(std::upper_bound(starts.begin(), starts.end() - 1, offset) - starts.begin()) - 1;
  }
  const std::byte* memory(size_t part, int64_t offset) const {
    return pieces[part].bytes.data() + (offset - starts[part]);
  }
  void copy(int64_t from, int64_t to, std::byte* out) const {
    for (size_t i = at(from); from < to; ++i) {
      const int64_t stop = std::min(to, starts[i + 1]);
      if (stop <= from) continue;
      std::memcpy(out, memory(i, from), static_cast<size_t>(stop - from));
      out += stop - from;
      from = stop;
    }
  }
};

// A task for one thread: either the whole pages of one block of a piece, including its checksum, or pages that several
// pieces share.
struct OutputFile::Task {
  int64_t from = 0, to = 0;  // page-aligned range in the file; may be empty
  std::optional<size_t> part;
  int64_t block = 0;
};

void OutputFile::append(std::span<const std::byte> bytes) {
  const Piece piece{bytes, {}};
  append(std::span(&piece, 1));
}

void OutputFile::append(std::span<const Piece> pieces) {
  // Starts with the remaining bytes of the previous call.
  const std::vector<std::byte> carried = std::exchange(carry_, {});
  Parts parts;
  parts.pieces.reserve(pieces.size() + 1);
  parts.pieces.push_back({carried, {}});
  parts.pieces.insert(parts.pieces.end(), pieces.begin(), pieces.end());
  parts.starts = {size_ - length(carried)};
  for (const Piece& part : parts.pieces) parts.starts.push_back(parts.starts.back() + length(part.bytes));
  const int64_t begin = parts.starts.front();
  size_ = parts.starts.back();
  const int64_t end = std::max(begin, round_down_to_page(size_));

  const std::vector<Task> tasks = divide(parts, begin, end);
  const int threads = end - begin <= kChunkBytes ? 1 : options_.threads > 0 ? options_.threads : io_threads();
  parallel_for(static_cast<int64_t>(tasks.size()), threads, [&](int64_t i) {
    const Task& task = tasks[static_cast<size_t>(i)];
    if (task.part) {
      write_block(parts, task);
    } else {
      check_stop();
      write_pages(parts, task.from, task.to, /*in_place=*/false);
    }
  });
  carry_.resize(static_cast<size_t>(size_ - end));
  parts.copy(end, size_, carry_.data());
}

std::vector<OutputFile::Task> OutputFile::divide(const Parts& parts, int64_t begin, int64_t end) {
  std::vector<Task> tasks;
  int64_t done = begin;
  const auto share_pages_up_to = [&](int64_t stop) {
    for (; done < stop; done = std::min(stop, done + kChunkBytes)) {
      tasks.push_back({.from = done, .to = std::min(stop, done + kChunkBytes), .part = std::nullopt});
    }
  };
  for (size_t i = 0; i < parts.pieces.size(); ++i) {
    const int64_t start = parts.starts[i];
    int64_t from = round_up_to_page(start);
    const int64_t last = round_down_to_page(std::min(parts.starts[i + 1], end));
    const bool has_pages = from < last;
    if (!has_pages && parts.pieces[i].checksums.empty()) continue;
    if (has_pages) share_pages_up_to(from);
    const int64_t blocks = (length(parts.pieces[i].bytes) + kChecksumBlockBytes - 1) / kChecksumBlockBytes;
    for (int64_t block = 0; block < blocks; ++block) {
      Task task{.from = from, .to = from, .part = i, .block = block};
      if (has_pages) {
        const int64_t border = round_down_to_page(start + (block + 1) * kChecksumBlockBytes);
        task.to = block + 1 == blocks ? last : std::clamp(border, from, last);
      }
      tasks.push_back(task);
      from = task.to;
    }
    if (has_pages) done = last;
  }
  share_pages_up_to(end);
  return tasks;
}

void OutputFile::check_stop() const {
  if (options_.stop.stop_requested()) throw_failure("writing {} was aborted", path_.string());
}

void OutputFile::write_pages(const Parts& parts, int64_t from, int64_t to, bool in_place) {
  if (from >= to) return;
  const auto count = static_cast<size_t>(to - from);
  if (in_place) {
    write_all(from, {parts.memory(parts.at(from), from), count});
  } else {
    const AlignedBuffers::Lease buffer = buffers_.take();
    parts.copy(from, to, buffer.data());
    write_all(from, {buffer.data(), count});
  }
}

void OutputFile::write_block(const Parts& parts, const Task& task) {
  const Piece& piece = parts.pieces[*task.part];
  const int64_t start = parts.starts[*task.part];
  const int64_t first = task.block * kChecksumBlockBytes;
  const int64_t last = std::min(first + kChecksumBlockBytes, length(piece.bytes));
  const bool in_place = !direct_ || task.from == task.to || is_page_aligned(parts.memory(*task.part, task.from));
  // Writes each chunk while it is in the CPU cache after the checksum.
  StreamingChecksum sum;
  int64_t written = task.from;
  for (int64_t at = first; at < last;) {
    const int64_t stop = std::min(at + kChunkBytes, last);
    check_stop();
    if (options_.pace != nullptr) options_.pace->wait(stop - at, options_.stop);
    if (!piece.checksums.empty()) {
      sum.add(piece.bytes.subspan(static_cast<size_t>(at), static_cast<size_t>(stop - at)));
    }
    const int64_t to = stop == last ? task.to : std::clamp(round_down_to_page(start + stop), written, task.to);
    write_pages(parts, written, to, in_place);
    if (options_.pace != nullptr) options_.pace->written(stop - at, direct_);
    written = to;
    at = stop;
  }
  if (!piece.checksums.empty()) piece.checksums[static_cast<size_t>(task.block)] = sum.value();
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
  if (const int error = files_.sync(descriptor_); error != 0) throw_system_error("sync", path_, error);
  files_.close(std::exchange(descriptor_, -1));
}

}  // namespace mpzero::io
