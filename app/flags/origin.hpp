#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace mpzero {

// Where a value in force comes from.
struct Origin {
  enum class Kind : uint8_t {
    kDefault,           // mpzero's own
    kDeepSpeedDefault,  // of a key that a section of the file lacks
    kFile,
    kFlag,
    kComputed,  // from other values
  };

  Kind kind = Kind::kDefault;
  // The key of the file, the flag without its dashes, what it is computed from, or why a default holds: "optimizer is
  // missing". May be empty.
  std::string name;
};

// Of the values in RunConfig.
struct Origins {
  // Of those that no flag sets, or more than one.
  Origin optimizer;
  Origin schedule, warmup, schedule_end;
  Origin communication_dtype, accumulation_dtype, moment_dtype;
  // Of the others, by the flag's own name.
  std::map<std::string, Origin> of_flags;

  // mpzero's own default where nothing else is known. Throws Failure where there is no such flag.
  Origin of(const std::string& flag) const;
  void set(const std::string& flag, const Origin& origin);
};

}  // namespace mpzero
