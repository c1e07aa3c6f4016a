#pragma once

#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/ds_config.hpp"

namespace mpzero {

// Pairs each flag with its key in the file and collects those that disagree, so that the user sees them all at once.
class ConfigMerge {
 public:
  // `file` outlives it.
  explicit ConfigMerge(const io::DsConfig& file) : file_(file) {}

  // The value in force where one is given: the flag's or the file's, which must agree.
  template <typename T>
  std::optional<T> given(const char* flag, const std::optional<T>& from_flag, const char* key,
                         const io::Setting<T>& from_file) {
    if (from_file.given()) {
      if (from_flag && *from_flag != from_file.value) disagree(flag, *from_flag, key, from_file.value);
      return from_file.value;
    }
    return from_flag;
  }

  // The same with a default: the program's own where the file says "auto" or lacks the whole section, otherwise
  // DeepSpeed's.
  template <typename T>
  T value(const char* flag, const std::optional<T>& from_flag, const char* key, const io::Setting<T>& from_file,
          bool section_present, T own_default) {
    if (const std::optional<T> value = given(flag, from_flag, key, from_file)) return *value;
    return section_present && from_file.missing() ? from_file.value : own_default;
  }

  template <typename T, typename U>
  void disagree(const char* flag, const T& from_flag, const char* key, const U& from_file) {
    mismatches_.push_back(fmt::format("--{} {} but {} {}", flag, from_flag, key, from_file));
  }

  // Throws UserError naming all that disagreed.
  void finish() const {
    if (mismatches_.empty()) return;
    throw_user_error("the command line and {} contradict each other: {}; change or remove one of {}.", file_.path,
                     fmt::join(mismatches_, ", "), mismatches_.size() == 1 ? "the two" : "each two");
  }

 private:
  const io::DsConfig& file_;
  std::vector<std::string> mismatches_;
};

}  // namespace mpzero
