#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <utility>

#include "base/error.hpp"

// What is said of a checkpoint's file that is not what was written.
namespace mpzero::io {

// What a user does about a checkpoint that cannot be used.
inline constexpr const char* kChooseAnother =
    "choose another checkpoint (--resume_from_checkpoint DIR, or -t TAG of zero_to_fp32)";

// Throws Damaged: "FILE is damaged: WHAT; choose an older checkpoint ...".
[[noreturn]] void throw_damaged(const std::filesystem::path& file, const std::string& what);

// Throws Damaged in other words: of a checkpoint that is not complete, or holds files of two saves.
template <typename... Args>
[[noreturn]] void throw_not_whole(fmt::format_string<Args...> format, Args&&... args) {
  throw Damaged(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace mpzero::io
