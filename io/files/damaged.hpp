#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace mpzero::io {

// Remedy in messages about an unusable checkpoint.
inline constexpr const char* kChooseAnother =
    "choose another checkpoint (--resume_from_checkpoint DIR, or zero_to_fp32 -t TAG)";

// Throws Damaged: "FILE is damaged: WHAT; choose another checkpoint ...".
[[noreturn]] inline void throw_damaged(const std::filesystem::path& file, const std::string& what) {
  throw Damaged(fmt::format("{} is damaged: {}; {}", file.string(), what, kChooseAnother));
}

// Throws Damaged with a custom message, for a checkpoint that is incomplete or contains files of two saves.
template <typename... Args>
[[noreturn]] void throw_incomplete(fmt::format_string<Args...> format, Args&&... args) {
  throw Damaged(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace mpzero::io
