#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <utility>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/files/input_file.hpp"
#include "io/files/output_file.hpp"
#include "tests/io/checkpoint_fixture.hpp"
#include "tests/io/faulty_disk.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

std::vector<std::byte> random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace

TEST_CASE("pieces of any size and alignment are written one after another, with block checksums") {
  const bool direct = GENERATE(true, false);
  const int threads = GENERATE(1, 3);
  constexpr size_t kBlock = kChecksumBlockBytes;
  constexpr size_t kChunk = OutputFile::kChunkBytes;
  const size_t sizes[] = {0, 1, 4095, 4096, 4097, kBlock - 1, kBlock, 2 * kChunk + 12345, 3, kChunk, 100, 0};
  const TemporaryFolder folder;
  const fs::path path = folder / "file";
  std::string expected;
  std::vector<std::vector<std::byte>> contents;
  std::vector<std::vector<uint64_t>> sums;
  for (const size_t size : sizes) {
    contents.push_back(random_bytes(size, static_cast<uint32_t>(size)));
    sums.emplace_back((size + kBlock - 1) / kBlock);
    expected.append(reinterpret_cast<const char*>(contents.back().data()), size);
  }
  OutputFile file(path, {.expected_size = static_cast<int64_t>(expected.size()), .threads = threads, .direct = direct});
  // Three in one call, then three separately, and so on.
  for (size_t i = 0; i < contents.size(); i += 3) {
    std::vector<OutputFile::Piece> pieces;
    for (size_t k = i; k < i + 3; ++k) pieces.push_back({contents[k], sums[k]});
    if (i % 2 == 0) {
      file.append(pieces);
    } else {
      for (const OutputFile::Piece& piece : pieces) file.append(std::span(&piece, 1));
    }
  }
  CHECK(file.size() == static_cast<int64_t>(expected.size()));
  file.finish();
  REQUIRE(read_file(path) == expected);
  for (size_t i = 0; i < contents.size(); ++i) {
    for (size_t block = 0; block < sums[i].size(); ++block) {
      const std::span<const std::byte> bytes = contents[i];
      const size_t begin = block * kBlock;
      CAPTURE(i, block);
      REQUIRE(sums[i][block] == checksum(bytes.subspan(begin, std::min(kBlock, bytes.size() - begin))));
    }
  }
}

namespace {

// Records the memory that is passed to the system.
class WatchedDisk final : public UnsyncedDisk {
 public:
  int write(int descriptor, int64_t offset, std::span<const std::byte> bytes, size_t& written) override {
    {
      const std::scoped_lock lock(mutex_);
      handed_.push_back(bytes);
    }
    return UnsyncedDisk::write(descriptor, offset, bytes, written);
  }
  // The number of bytes from `memory`, and of others.
  std::pair<size_t, size_t> bytes_from(std::span<const std::byte> memory) const {
    std::pair<size_t, size_t> counts;
    for (const auto& bytes : handed_) {
      const bool inside = bytes.data() >= memory.data() && bytes.data() < memory.data() + memory.size();
      (inside ? counts.first : counts.second) += bytes.size();
    }
    return counts;
  }

 private:
  std::mutex mutex_;
  std::vector<std::span<const std::byte>> handed_;
};

}  // namespace

TEST_CASE("page-aligned data is written without a copy, except pages that pieces share") {
  constexpr size_t kPage = OutputFile::kAlignment;
  constexpr size_t kSize = 3 * kChecksumBlockBytes + kPage + 100;
  const TemporaryFolder folder;
  // Three pieces that are page-aligned in memory and in the file, with filling up to the next page between them.
  const std::vector<std::byte> bytes = random_bytes(4 * (kSize + kPage), 1);
  const size_t past_page = reinterpret_cast<uintptr_t>(bytes.data()) % kPage;
  const std::span<const std::byte> memory = std::span(bytes).subspan((kPage - past_page) % kPage);
  const std::vector<std::byte> filling = random_bytes(kPage - 100, 2);
  const size_t stride = kSize / kPage * kPage + kPage;
  std::string expected;
  std::vector<std::vector<uint64_t>> sums(3, std::vector<uint64_t>(4));
  std::vector<OutputFile::Piece> pieces;
  for (size_t i = 0; i < 3; ++i) {
    pieces.push_back({memory.subspan(i * stride, kSize), sums[i]});
    pieces.push_back({filling, {}});
    for (const OutputFile::Piece& piece : {pieces[2 * i], pieces[2 * i + 1]}) {
      expected.append(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
    }
  }
  const bool aligned = GENERATE(true, false);
  if (!aligned) {
    // Nothing is aligned any more.
    pieces.insert(pieces.begin(), {std::span(filling).first(1), {}});
    expected.insert(0, 1, static_cast<char>(filling[0]));
  }
  WatchedDisk disk;
  OutputFile file(folder / "file", {.threads = 2}, disk);
  file.append(pieces);
  file.finish();
  CHECK(read_file(folder / "file") == expected);
  const auto [in_place, copied] = disk.bytes_from(bytes);
  CHECK(in_place == (aligned ? 3 * (kSize / kPage * kPage) : 0));
  CHECK(copied == (expected.size() + kPage - 1) / kPage * kPage - in_place);
  for (const std::vector<uint64_t>& of_piece : sums) {
    const size_t i = static_cast<size_t>(&of_piece - sums.data());
    for (size_t block = 0; block < 4; ++block) {
      const std::span<const std::byte> piece = memory.subspan(i * stride, kSize);
      const size_t begin = block * kChecksumBlockBytes;
      CHECK(of_piece[block] == checksum(piece.subspan(begin, std::min<size_t>(kChecksumBlockBytes, kSize - begin))));
    }
  }
}

TEST_CASE("writes a file of unknown size byte by byte") {
  const TemporaryFolder folder;
  const std::vector<std::byte> bytes = random_bytes(10'000, 1);
  OutputFile file(folder / "file", {});
  for (const std::byte& byte : bytes) file.append(std::span(&byte, 1));
  file.finish();
  CHECK(read_file(folder / "file") == std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

TEST_CASE("a failing write in any chunk, or a stop, is thrown, and no data is reported as written") {
  const TemporaryFolder folder;
  const std::vector<std::byte> bytes = random_bytes(5 * OutputFile::kChunkBytes, 1);
  int failed = 0;
  for (int call = 1;; ++call) {
    FaultyDisk disk(folder.path());
    disk.fail_at(call, ENOSPC, false);
    const std::string message = message_of([&] {
      OutputFile file(folder / "file", {.expected_size = static_cast<int64_t>(bytes.size()), .threads = 2}, disk);
      file.append(bytes);
      file.finish();
    });
    if (disk.calls() < call) break;
    CHECK_THAT(message, Contains("file: No space left on device"));
    ++failed;
  }
  CHECK(failed >= 8);  // open, reserve, five chunks, resize, sync

  std::stop_source stop;
  OutputFile file(folder / "file", {.stop = stop.get_token()});
  file.append(bytes);
  stop.request_stop();
  CHECK_THROWS_WITH(file.append(bytes), Contains("aborted"));
}

namespace {

// Ends direct writes beyond `limit` within a page, once or, with an errno, each time.
class ShortDisk final : public UnsyncedDisk {
 public:
  ShortDisk(int64_t limit, int error) : limit_(limit), error_(error) {}
  int open(const fs::path& path, int flags, int& descriptor) override {
    const int error = UnsyncedDisk::open(path, flags, descriptor);
    if (error == 0 && (flags & O_DIRECT) != 0) direct_ = descriptor;
    return error;
  }
  int write(int descriptor, int64_t offset, std::span<const std::byte> bytes, size_t& written) override {
    const int64_t end = offset + static_cast<int64_t>(bytes.size());
    if (limit_ > 0 && offset <= limit_ && end > limit_) {
      if (offset == limit_) return error_;
      const bool passes = error_ == 0;
      const int error =
          UnsyncedDisk::write(descriptor, offset, bytes.first(static_cast<size_t>(limit_ - offset)), written);
      if (passes) limit_ = 0;
      return error;
    }
    if (descriptor != direct_) ++unsynced_[descriptor];
    through_cache += descriptor != direct_;
    return UnsyncedDisk::write(descriptor, offset, bytes, written);
  }
  int sync(int descriptor) override {
    unsynced_.erase(descriptor);
    return UnsyncedDisk::sync(descriptor);
  }
  void close(int descriptor) noexcept override {
    closed_unsynced += static_cast<int>(unsynced_.erase(descriptor));
    UnsyncedDisk::close(descriptor);
  }
  int through_cache = 0;
  int closed_unsynced = 0;  // descriptors closed with unsynced writes through the cache

 private:
  int64_t limit_;
  int error_;
  int direct_ = -1;
  std::map<int, int> unsynced_;  // writes through the cache, by descriptor
};

}  // namespace

TEST_CASE("a direct write that ends within its first page is retried, and the system's own error is reported") {
  const TemporaryFolder folder;
  const std::vector<std::byte> bytes = random_bytes(3 * OutputFile::kChunkBytes, 1);
  const auto write = [&](FileSystem& files) {
    OutputFile file(folder / "file", {.threads = 1}, files);
    file.append(bytes);
    file.finish();
  };
  // After the first 100 bytes of the second chunk.
  const int64_t limit = OutputFile::kChunkBytes + 100;
  ShortDisk interrupted(limit, 0);
  write(interrupted);
  CHECK(interrupted.through_cache > 0);
  CHECK(interrupted.closed_unsynced == 0);
  CHECK(read_file(folder / "file") == std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  for (const auto& [error, words] : std::vector<std::pair<int, std::string>>{
           {EDQUOT, "Disk quota exceeded"}, {EFBIG, "File too large"}, {EIO, "Input/output error"}}) {
    ShortDisk failing(limit, error);
    CHECK_THAT(message_of([&] { write(failing); }), Contains("cannot write") && Contains(words));
  }
}

TEST_CASE("ranges of any size and alignment are read as they were written, directly or through the cache") {
  const TemporaryFolder folder;
  const std::vector<std::byte> bytes = random_bytes(9 * (1 << 20) + 77, 3);
  write_file(folder / "file", std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  const InputFile file(folder / "file");
  std::mt19937 random(2);
  std::vector<std::byte> memory(bytes.size() + 4096);
  for (int i = 0; i < 200; ++i) {
    const size_t begin = i % 3 == 0 ? random() % 100 * 4096 : random() % bytes.size();
    const size_t size = i % 4 == 0 ? bytes.size() - begin : random() % (bytes.size() - begin + 1);
    const size_t shift = i % 2 == 0 ? 0 : random() % 4096;
    const std::span<std::byte> out(memory.data() + shift, size);
    file.read(static_cast<int64_t>(begin), out);
    CAPTURE(i, begin, size, shift);
    REQUIRE(std::memcmp(out.data(), bytes.data() + begin, size) == 0);
  }
  const auto beyond = [&](size_t begin, size_t size) {
    file.read(static_cast<int64_t>(begin), std::span(memory.data(), size));
  };
  CHECK_THROWS_WITH(beyond(bytes.size() - 10, 11), Contains("truncated"));
  CHECK_THROWS_WITH(beyond(1 << 20, bytes.size()), Contains("truncated"));
  CHECK_THROWS_WITH(beyond(bytes.size() + 4096, 1 << 20), Contains("truncated"));
}

}  // namespace mpzero::io
