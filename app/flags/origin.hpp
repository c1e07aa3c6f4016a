#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace mpzero {

// The source of a setting's effective value.
struct Origin {
  enum class Kind : uint8_t {
    kDefault,           // mpzero's own
    kDeepSpeedDefault,  // of a key missing from its section of the file
    kFile,
    kFlag,
    kComputed,  // from other values
  };

  Kind kind = Kind::kDefault;
  // The file's key, the flag without dashes, the inputs of a computed value, or the reason for a default: "optimizer is
  // missing". May be empty.
  std::string name;
};

// Origins of the values in RunConfig.
struct Origins {
  // Values set by no flag, or by several.
  Origin optimizer;
  Origin schedule, warmup, schedule_end;
  Origin communication_dtype, accumulation_dtype, moment_dtype;
  // All other values, by the flag's own name.
  std::map<std::string, Origin> of_flags;

  // Returns kDefault if no origin is recorded. Throws Failure if no such flag exists.
  Origin of(const std::string& flag) const;
  void set(const std::string& flag, const Origin& origin);
};

}  // namespace mpzero
