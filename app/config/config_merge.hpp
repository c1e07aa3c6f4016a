#pragma once

#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <vector>

#include "app/flags/options.hpp"
#include "app/flags/origin.hpp"
#include "base/error.hpp"
#include "io/ds_config/ds_config.hpp"

namespace mpzero {

// Pairs each flag with its key in the file and collects those that disagree, so that the user sees them all at once.
// Notes where each value comes from.
class ConfigMerge {
 public:
  // Both outlive it.
  ConfigMerge(const CommandLine& line, const io::DsConfig& file) : line_(line), file_(file) {}

  // The value in force where one is given: the flag's or the file's, which must agree. `origin` is set where there is
  // one.
  template <typename T>
  std::optional<T> given(const char* flag, const std::optional<T>& from_flag, const char* key,
                         const io::Setting<T>& from_file, Origin& origin) {
    if (from_file.given()) {
      if (from_flag && *from_flag != from_file.value) disagree(flag, *from_flag, key, from_file.value);
      origin = {Origin::Kind::kFile, key};
      return from_file.value;
    }
    if (from_flag) origin = {Origin::Kind::kFlag, line_.name_of(flag)};
    return from_flag;
  }

  // The same with a default: the program's own where the file says "auto" or lacks the whole section, otherwise
  // DeepSpeed's.
  template <typename T>
  T value(const char* flag, const std::optional<T>& from_flag, const char* key, const io::Setting<T>& from_file,
          bool section_present, T own_default, Origin& origin) {
    if (const std::optional<T> value = given(flag, from_flag, key, from_file, origin)) return *value;
    if (section_present && from_file.missing()) {
      origin = {Origin::Kind::kDeepSpeedDefault, fmt::format("{} is missing", key)};
      return from_file.value;
    }
    origin = {Origin::Kind::kDefault, default_reason(key, from_file.is_auto())};
    return own_default;
  }

  // Why mpzero's own default holds.
  std::string default_reason(const std::string& key, bool is_auto) const {
    if (!file_.given()) return "";
    return is_auto ? key + " is \"auto\"" : key.substr(0, key.find('.')) + " is missing";
  }

  template <typename T, typename U>
  void disagree(const char* flag, const T& from_flag, const char* key, const U& from_file) {
    mismatches_.push_back(fmt::format("--{} {} but {} {}", line_.name_of(flag), from_flag, key, from_file));
  }

  // Throws UserError naming all that disagreed.
  void finish() const {
    if (mismatches_.empty()) return;
    throw_user_error("the command line and {} contradict each other: {}; change or remove one of {}.", file_.path,
                     fmt::join(mismatches_, ", "), mismatches_.size() == 1 ? "the two" : "each two");
  }

 private:
  const CommandLine& line_;
  const io::DsConfig& file_;
  std::vector<std::string> mismatches_;
};

}  // namespace mpzero
