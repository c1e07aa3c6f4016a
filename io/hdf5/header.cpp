#include "io/hdf5/header.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/error.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io::hdf5 {
namespace {

constexpr std::string_view kDamaged = "the object header is damaged";
constexpr size_t kMaxBlocks = 1024;  // per header; a larger number indicates a loop

struct Block {
  uint64_t offset = 0, size = 0;
};

// Encoding of messages in the blocks of a header.
struct HeaderFormat {
  bool is_version_2 = false;
  bool has_creation_order = false;
};

// The first block of a header. The prefix contains the block's length.
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
  // Limits the allocation if a size is damaged. Valid reads are much smaller.
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

namespace {

constexpr uint64_t padded(uint64_t size) { return (size + 7) / 8 * 8; }

// Reference to a string in a heap, as stored in an attribute.
struct HeapText {
  uint32_t length = 0;
  uint64_t collection = 0;
  uint32_t index = 0;
};

std::string_view up_to_zero(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.substr(0, text.find('\0'));
}

// Returns std::nullopt if the message belongs to another attribute or is not a variable-length string.
std::optional<HeapText> heap_text(const Message& message, std::string_view wanted) {
  Cursor attribute(message.body, "the attribute is damaged");
  const auto version = attribute.value<uint8_t>();
  attribute.bytes(1);
  const auto name_size = attribute.value<uint16_t>(), type_size = attribute.value<uint16_t>(),
             space_size = attribute.value<uint16_t>();
  if (version == 3) attribute.bytes(1);  // character set of the name
  const auto part = [&](uint64_t size) { return attribute.bytes(version == 1 ? padded(size) : size); };
  if (up_to_zero(part(name_size)) != wanted) return std::nullopt;
  const auto type = part(type_size);
  constexpr uint8_t kClassMask = 0x0F, kVariableLength = 9;
  if (type.empty() || (std::to_integer<uint8_t>(type[0]) & kClassMask) != kVariableLength) return std::nullopt;
  part(space_size);
  HeapText found;
  found.length = attribute.value<uint32_t>();
  found.collection = attribute.value<uint64_t>();
  found.index = attribute.value<uint32_t>();
  return found;
}

std::string text_in_heap(const FileBytes& bytes, const HeapText& wanted) {
  constexpr std::string_view kWhat = "the string heap is damaged";
  constexpr uint64_t kPrefixBytes = 16;
  if (wanted.length == 0) return "";
  const auto prefix = bytes.read(wanted.collection, kPrefixBytes, kWhat);
  Cursor start(prefix, kWhat);
  start.expect("GCOL");
  start.bytes(4);  // version
  const auto collection = bytes.read(wanted.collection, start.value<uint64_t>(), kWhat);
  Cursor cursor(collection, kWhat);
  cursor.bytes(kPrefixBytes);
  while (true) {
    const auto index = cursor.value<uint16_t>();
    cursor.bytes(6);  // references
    const auto size = cursor.value<uint64_t>();
    if (index == 0 || size > cursor.left()) throw Malformed{kWhat};  // index 0 is the free space at the end of the heap
    if (index == wanted.index) {
      if (wanted.length > size) throw Malformed{kWhat};
      return std::string(up_to_zero(cursor.bytes(wanted.length)));
    }
    cursor.bytes(padded(size));
  }
}

const Message& only(const std::vector<Message>& messages, Message::Type type, std::string_view what) {
  const Message* found = nullptr;
  for (const Message& message : messages) {
    if (message.type != type) continue;
    if (found != nullptr) throw Malformed{what};
    found = &message;
  }
  if (found == nullptr) throw Malformed{what};
  return *found;
}

// Returns the extents of a chunk, followed by the element size. The index address precedes the extents in version 3.
std::vector<uint64_t> chunk_extents(Cursor layout, uint8_t version) {
  std::vector<uint64_t> extents;
  if (version == 4) layout.bytes(1);  // flags
  extents.resize(layout.value<uint8_t>());
  if (version == 3) layout.bytes(8);  // address
  const size_t bytes_each = version == 3 ? 4 : layout.value<uint8_t>();
  for (uint64_t& extent : extents) extent = layout.value_of(bytes_each);
  return extents;
}

}  // namespace

std::string read_variable_text(const ObjectPlace& place, const std::filesystem::path& file, const std::string& name) {
  try {
    const FileBytes bytes(place, file);
    for (const Message& message : read_messages(bytes, place.header)) {
      if (message.type != Message::kAttribute) continue;
      if (const auto found = heap_text(message, name)) return text_in_heap(bytes, *found);
    }
    throw Malformed{
        "variable-length strings in dense storage are not supported; rewrite the file with app/prepare_data.py "
        "--rewrite FILE"};
  } catch (const Malformed& malformed) {
    throw_user_error("cannot read attribute '{}' of {}: {}", name, file.string(), malformed.what);
  }
}

void check_layout(const ObjectPlace& place, const std::filesystem::path& file, const std::string& name) {
  constexpr std::string_view kWhat = "the dataset's layout is damaged or not supported (HDF5 1.6 to 1.14)";
  constexpr uint64_t kMaxChunkBytes = 1 << 30;
  constexpr uint8_t kChunked = 2;
  try {
    const std::vector<Message> messages = read_messages(FileBytes(place, file), place.header);
    Cursor space(only(messages, Message::kDataspace, kWhat).body, kWhat);
    space.bytes(1);  // version
    const auto rank = space.value<uint8_t>();
    Cursor layout(only(messages, Message::kLayout, kWhat).body, kWhat);
    const auto version = layout.value<uint8_t>();
    if (version != 3 && version != 4) throw Malformed{kWhat};
    if (layout.value<uint8_t>() != kChunked) return;
    const std::vector<uint64_t> extents = chunk_extents(layout, version);
    if (extents.size() != size_t{rank} + 1) throw Malformed{kWhat};
    uint64_t chunk_bytes = 1;
    for (const uint64_t extent : extents) {
      if (extent == 0 || extent > kMaxChunkBytes / chunk_bytes) {
        throw Malformed{"the dataset's chunks are empty or larger than 1 GiB"};
      }
      chunk_bytes *= extent;
    }
  } catch (const Malformed& malformed) {
    throw_user_error("cannot open {} of {}: {}", name, file.string(), malformed.what);
  }
}

}  // namespace mpzero::io::hdf5
