#include <optional>

#include "base/error.hpp"
#include "io/hdf5/header.hpp"

namespace mpzero::io::hdf5 {
namespace {

constexpr uint64_t padded(uint64_t size) { return (size + 7) / 8 * 8; }

// Reference to a text in a heap, stored in an attribute in place of the text.
struct HeapText {
  uint32_t length = 0;
  uint64_t collection = 0;
  uint32_t index = 0;
};

std::string_view up_to_zero(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.substr(0, text.find('\0'));
}

// std::nullopt if the message is another attribute, or not a text of variable length.
std::optional<HeapText> heap_text(const Message& message, std::string_view wanted) {
  Cursor attribute(message.body, "the attribute is damaged");
  const auto version = attribute.value<uint8_t>();
  attribute.bytes(1);
  const auto name_size = attribute.value<uint16_t>(), type_size = attribute.value<uint16_t>(),
             space_size = attribute.value<uint16_t>();
  if (version == 3) attribute.bytes(1);  // the name's character set
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
  constexpr std::string_view kWhat = "the heap that holds it is damaged";
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
    if (index == 0 || size > cursor.left()) throw Malformed{kWhat};  // 0: the rest of the heap is free
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

// The extents of a chunk; the last one is the size of an element. The address of the index comes after them or before.
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
        "it is in dense storage, where only texts of fixed length can be read; app/prepare_data.py --rewrite FILE "
        "writes such texts"};
  } catch (const Malformed& malformed) {
    throw_user_error("cannot read attribute '{}' of {}: {}", name, file.string(), malformed.what);
  }
}

void check_layout(const ObjectPlace& place, const std::filesystem::path& file, const std::string& name) {
  constexpr std::string_view kWhat = "its layout is damaged or not of HDF5 1.6 to 1.14";
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
        throw Malformed{"its chunks have no element or more than 1 GiB"};
      }
      chunk_bytes *= extent;
    }
  } catch (const Malformed& malformed) {
    throw_user_error("cannot open {} of {}: {}", name, file.string(), malformed.what);
  }
}

}  // namespace mpzero::io::hdf5
