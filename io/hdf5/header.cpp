#include "io/hdf5/header.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io::hdf5 {
namespace {

constexpr std::string_view kDamaged = "the object's header is damaged";
constexpr size_t kMaxBlocks = 1024;  // of one header: more indicate a loop

struct Block {
  uint64_t offset = 0, size = 0;
};

// How the messages of a header are stored in its blocks.
struct HeaderFormat {
  bool is_version_2 = false;
  bool has_creation_order = false;
};

// The header's first block. Its prefix holds its length.
Block first_block(const FileBytes& bytes, uint64_t header, HeaderFormat& format) {
  constexpr uint64_t kLongestPrefix = 64;
  const auto prefix = bytes.read(header, std::min(kLongestPrefix, bytes.left(header)), kDamaged);
  Cursor cursor(prefix, kDamaged);
  Block block;
  if (prefix.size() >= 4 && std::memcmp(prefix.data(), "OHDR", 4) == 0) {
    cursor.bytes(5);  // signature and version
    const auto flags = cursor.value<uint8_t>();
    if ((flags & 0x20) != 0) cursor.bytes(16);  // times
    if ((flags & 0x10) != 0) cursor.bytes(4);   // thresholds for dense attributes
    format = {.is_version_2 = true, .has_creation_order = (flags & 0x04) != 0};
    block.size = cursor.value_of(size_t{1} << (flags & 0x03));
  } else {
    cursor.bytes(8);  // version, number of messages, references
    block.size = cursor.value<uint32_t>();
    cursor.bytes(4);  // padding
  }
  block.offset = header + prefix.size() - cursor.left();
  return block;
}

void read_block(Cursor cursor, const HeaderFormat& format, std::vector<Message>& messages, std::vector<Block>& blocks) {
  const size_t prefix = !format.is_version_2 ? 8 : format.has_creation_order ? 6 : 4;
  while (cursor.left() >= prefix) {
    Cursor start(cursor.bytes(prefix), kDamaged);
    const uint16_t type = format.is_version_2 ? start.value<uint8_t>() : start.value<uint16_t>();
    const auto size = start.value<uint16_t>();
    constexpr uint8_t kShared = 0x02;
    const bool is_shared = (start.value<uint8_t>() & kShared) != 0;
    const auto body = cursor.bytes(size);
    if (type == Message::kContinuation) {
      Cursor place(body, kDamaged);
      const auto offset = place.value<uint64_t>();
      blocks.push_back({offset, place.value<uint64_t>()});
    } else if (!is_shared) {
      messages.push_back({type, {body.begin(), body.end()}});
    }
  }
}

}  // namespace

FileBytes::FileBytes(const ObjectPlace& place, const std::filesystem::path& file)
    : descriptor_(place.descriptor), image_(place.image), base_(place.base), file_(file) {
  if (descriptor_ < 0) {
    size_ = image_.size();
    return;
  }
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) throw_system_error("read the size of", file, errno);
  size_ = static_cast<uint64_t>(status.st_size);
}

uint64_t FileBytes::left(uint64_t offset) const {
  const uint64_t begin = base_ + offset;
  return begin < base_ || begin > size_ ? 0 : size_ - begin;
}

std::vector<std::byte> FileBytes::read(uint64_t offset, uint64_t size, std::string_view what) const {
  // Far more than is needed here: a damaged size must not exhaust the machine's memory.
  constexpr uint64_t kMaxBytes = 64 << 20;
  if (size > left(offset) || size > kMaxBytes) throw Malformed{what};
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  if (descriptor_ < 0) {
    std::copy_n(image_.begin() + static_cast<std::ptrdiff_t>(base_ + offset), bytes.size(), bytes.begin());
    return bytes;
  }
  for (size_t done = 0; done < bytes.size();) {
    const auto at = static_cast<off_t>(base_ + offset + done);
    const ssize_t count = ::pread(descriptor_, bytes.data() + done, bytes.size() - done, at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_system_error("read", file_, errno);
    if (count == 0) throw Malformed{what};
    done += static_cast<size_t>(count);
  }
  return bytes;
}

std::vector<Message> read_messages(const FileBytes& bytes, uint64_t header) {
  HeaderFormat format;
  std::vector<Block> blocks = {first_block(bytes, header, format)};
  std::vector<Message> messages;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i == kMaxBlocks) throw Malformed{kDamaged};
    const auto block = bytes.read(blocks[i].offset, blocks[i].size, kDamaged);
    Cursor cursor(block, kDamaged);
    if (format.is_version_2 && i > 0) {
      constexpr size_t kChecksumBytes = 4;
      cursor.expect("OCHK");
      cursor = Cursor(cursor.bytes(cursor.left() - std::min(cursor.left(), kChecksumBytes)), kDamaged);
    }
    read_block(cursor, format, messages, blocks);
  }
  return messages;
}

}  // namespace mpzero::io::hdf5
