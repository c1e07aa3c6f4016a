#include "io/damaged.hpp"

namespace mpzero::io {

void throw_damaged(const fs::path& file, const std::string& what) {
  throw Damaged(fmt::format("{} is damaged: {}; {}", file.string(), what, kChooseAnother));
}

}  // namespace mpzero::io
