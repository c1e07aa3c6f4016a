#include "base/collectives.hpp"

#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"

namespace mpzero::collectives {

void Message::refuse(const std::string& what) const {
  const std::string_view path = site.file;
  throw_failure("{} ({}:{}): rank {} sent {}", call, path.substr(path.rfind('/') + 1), site.line, rank, what);
}

void Message::check_size(size_t size) const {
  if (bytes.size() != size) refuse(fmt::format("{} bytes where {} were expected", bytes.size(), size));
}

// A field is its size, 8 bytes, and then its bytes.
Message Message::take_field() {
  uint64_t size = 0;
  if (bytes.size() < sizeof size) refuse(fmt::format("{} bytes where a field was expected", bytes.size()));
  std::memcpy(&size, bytes.data(), sizeof size);
  bytes.remove_prefix(sizeof size);
  if (bytes.size() < size) refuse(fmt::format("{} bytes of a field of {}", bytes.size(), size));
  Message field = *this;
  field.bytes = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return field;
}

void append_field(std::string& message, const std::string& field) {
  const uint64_t size = field.size();
  message.append(reinterpret_cast<const char*>(&size), sizeof size).append(field);
}

void Message::read_json(const std::function<void(const nlohmann::json&)>& read) const {
  try {
    read(parse_json(bytes, kLineLimits));
  } catch (const std::exception& error) {
    refuse(fmt::format("JSON that cannot be read: {}", error.what()));
  }
}

std::string write_json(const std::function<void(nlohmann::json&)>& write) {
  nlohmann::json json;
  write(json);
  return json.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

}  // namespace mpzero::collectives
