#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace mpzero {

// The source of a setting's effective value.
struct Origin {
  enum class Kind : uint8_t {
    kDefault,           // mpzero's default
    kDeepSpeedDefault,  // DeepSpeed's default for a key that is missing from an existing section
    kFile,
    kFlag,
    kComputed,  // computed from other values
  };

  Kind kind = Kind::kDefault;
  // Key of ds_config.json, flag without leading dashes, inputs of a computed value, or reason for a default ("optimizer
  // is missing"). May be empty.
  std::string name;
};

// Origins of the values of RunConfig.
struct Origins {
  // Origins of values that have no flag or several flags.
  Origin optimizer, zero_stage;
  Origin schedule, warmup, schedule_end;
  Origin communication_dtype, accumulation_dtype, moment_dtype;
  // Origins of all other values, by flag name.
  std::map<std::string, Origin> of_flags;

  // Returns the flag's origin; kDefault if the origin is not recorded. Throws Failure if no such flag exists.
  Origin of(const std::string& flag) const;
  void set(const std::string& flag, const Origin& origin);
};

}  // namespace mpzero
