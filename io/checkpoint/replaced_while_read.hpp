#pragma once

#include <fmt/format.h>

#include <filesystem>

#include "base/error.hpp"
#include "io/files/open_folder.hpp"

namespace mpzero::io {

// The checkpoint was replaced, removed or rewritten by another process before it was read in full.
class ReplacedWhileRead final : public Error {
 public:
  ReplacedWhileRead(const std::filesystem::path& folder, OpenFolder::Fate fate)
      : Error(fmt::format("{} {} by another process while it was being read: start again", folder.string(),
                          name_of(fate))),
        fate_(fate) {}
  OpenFolder::Fate fate() const { return fate_; }
  int exit_code() const override { return kFailureExitCode; }

 private:
  OpenFolder::Fate fate_;
};

}  // namespace mpzero::io
