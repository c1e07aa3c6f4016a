#include "io/files/damaged.hpp"

namespace mpzero::io {

void throw_damaged(const std::filesystem::path& file, const std::string& what) {
  throw Damaged(fmt::format("{} is damaged: {}; {}", file.string(), what, kChooseAnother));
}

}  // namespace mpzero::io
