#pragma once

#include <fmt/format.h>

#include <filesystem>

#include "base/error.hpp"
#include "io/files/open_folder.hpp"

namespace mpzero::io {

// The checkpoint was replaced, removed or rewritten by another process before it was read in full.
class ReplacedWhileRead final : public Error {
 public:
  ReplacedWhileRead(const std::filesystem::path& folder, OpenFolder::Change change)
      : Error(fmt::format("{} {} by another process while it was being read: start again", folder.string(),
                          name_of(change))),
        change_(change) {}
  OpenFolder::Change change() const { return change_; }
  int exit_code() const override { return kFailureExitCode; }

 private:
  OpenFolder::Change change_;
};

}  // namespace mpzero::io
