#include "base/collectives.hpp"

#include <cstdint>

#include "base/error.hpp"

namespace mpzero::collectives {

void Message::refuse(const std::string& what) const {
  const std::string_view path = site.file;
  throw_failure("{} ({}:{}): rank {} sent {}", call, path.substr(path.rfind('/') + 1), site.line, rank, what);
}

void Message::check_size(size_t size) const {
  if (bytes.size() != size) refuse(fmt::format("{} bytes, expected {}", bytes.size(), size));
}

// A field consists of its size (8 bytes) and its data.
Message Message::take_field() {
  uint64_t size = 0;
  if (bytes.size() < sizeof size) refuse(fmt::format("{} bytes, too few for a field", bytes.size()));
  std::memcpy(&size, bytes.data(), sizeof size);
  bytes.remove_prefix(sizeof size);
  if (bytes.size() < size) refuse(fmt::format("{} bytes of a field of {} bytes", bytes.size(), size));
  Message field = *this;
  field.bytes = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return field;
}

void append_field(std::string& message, const std::string& field) {
  const uint64_t size = field.size();
  message.append(reinterpret_cast<const char*>(&size), sizeof size).append(field);
}

}  // namespace mpzero::collectives
