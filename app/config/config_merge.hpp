#pragma once

#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "app/flags/flag.hpp"
#include "app/flags/origin.hpp"
#include "base/error.hpp"
#include "io/ds_config/ds_config.hpp"

namespace mpzero {

// Merges each flag with the corresponding key of ds_config.json and records the origin of each value. Reports all
// conflicts in a single error, or lets flags override keys if --deepspeed_config_yields is set.
class ConfigMerge {
 public:
  // `line` and `file` must outlive this object.
  ConfigMerge(const CommandLine& line, const io::DsConfig& file) : line_(line), file_(file) {}

  // Sets the flag's member of `settings`, which must already have the value from the command line, and records the
  // origin of the value.
  void merge(const Flag& flag, Settings& settings, Origins& origins) {
    origins.set(flag.name, line_.gives(flag.name) ? Origin{Origin::Kind::kFlag, line_.name_of(flag.name)} : Origin{});
    if (!flag.file) return;
    std::visit([&](const auto& value, const auto& read) { merge(flag, value, read, settings, origins); }, flag.value,
               flag.file->read);
  }

  // Returns the value of the flag or the key; std::nullopt if neither is set. Records a conflict if the flag and the
  // key have different values.
  template <typename T>
  std::optional<T> given(const char* flag, const std::optional<T>& from_flag, const char* key,
                         const io::Setting<T>& from_file, Origin& origin) {
    if (from_file.given()) {
      if (from_flag && *from_flag != from_file.value && flag_holds(flag, *from_flag, key, from_file.value)) {
        origin = {Origin::Kind::kFlag, line_.name_of(flag)};
        return from_flag;
      }
      origin = {Origin::Kind::kFile, key};
      return from_file.value;
    }
    if (from_flag) origin = {Origin::Kind::kFlag, line_.name_of(flag)};
    return from_flag;
  }

  // Like given(), but with a default: `own_default` if the key is "auto" or its section is missing, otherwise
  // DeepSpeed's default.
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

  // Returns the reason for using mpzero's default, e.g. "optimizer is missing".
  std::string default_reason(const std::string& key, bool is_auto) const {
    if (!file_.given()) return "";
    return is_auto ? key + " is \"auto\"" : key.substr(0, key.find('.')) + " is missing";
  }

  // Returns true if the flag overrides the key; otherwise, records a conflict between flag and key.
  template <typename T, typename U>
  bool flag_holds(const char* flag, const T& from_flag, const char* key, const U& from_file) {
    if (line_.deepspeed_config_yields) {
      replaced_.push_back(fmt::format("--{} {} ({} {})", line_.name_of(flag), from_flag, key, from_file));
    } else {
      disagree(flag, from_flag, key, from_file);
    }
    return line_.deepspeed_config_yields;
  }

  template <typename T, typename U>
  void disagree(const char* flag, const T& from_flag, const char* key, const U& from_file) {
    mismatches_.push_back(fmt::format("--{} {} but {} {}", line_.name_of(flag), from_flag, key, from_file));
  }

  // Returns the keys that flags override, formatted as "--FLAG VALUE (KEY VALUE)".
  const std::vector<std::string>& replaced() const { return replaced_; }

  // Throws UserError if there are conflicts. The message lists all conflicts.
  void finish() const {
    if (mismatches_.empty()) return;
    throw_user_error(
        "the command line and {} conflict: {}; change or remove one of {}, or let flags override "
        "the file with --deepspeed_config_yields true.",
        file_.path, fmt::join(mismatches_, ", "), mismatches_.size() == 1 ? "the two" : "each pair");
  }

 private:
  template <typename Value, typename T>
  void merge(const Flag& flag, const Value& value, FileKey::Reader<T> read, Settings& settings, Origins& origins) {
    if constexpr (requires(Value v, Field<T> field) { field = v.field; }) {
      merge(flag, value.field, read(file_), settings, origins);
    } else {
      throw_failure("--{} and {} have different types", flag.name, flag.file->name);
    }
  }

  // Does nothing, because a resolve_ function merges this key.
  template <typename Value>
  void merge(const Flag&, const Value&, std::monostate, Settings&, Origins&) {}

  template <typename T>
  void merge(const Flag& flag, const Field<T>& field, const io::Setting<T>& from_file, Settings& settings,
             Origins& origins) {
    const FileKey& key = *flag.file;
    const bool gives = line_.gives(flag.name);
    if (gives && key.conflict == FileKey::Conflict::kFlagHolds) return;
    const std::optional<T> from_flag = gives ? field.get(line_) : std::nullopt;
    Origin origin = origins.of(flag.name);
    if (key.has_section != nullptr) {
      field.set(settings, value(flag.name.c_str(), from_flag, key.name.c_str(), from_file, key.has_section(file_),
                                *field.get(Settings{}), origin));
    } else if (const auto in_force = given(flag.name.c_str(), from_flag, key.name.c_str(), from_file, origin)) {
      field.set(settings, *in_force);
    }
    origins.set(flag.name, origin);
  }

  const CommandLine& line_;
  const io::DsConfig& file_;
  std::vector<std::string> mismatches_;
  std::vector<std::string> replaced_;
};

}  // namespace mpzero
