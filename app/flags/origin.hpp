#pragma once

#include <cstdint>
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

// Of the values in RunConfig that decide what is trained.
struct Origins {
  Origin optimizer;
  Origin lr, beta1, beta2, eps, weight_decay;
  Origin schedule, warmup, schedule_end;
  Origin gradient_clipping;
  Origin micro_batch, accumulation, train_batch;
  Origin dtype, communication_dtype, accumulation_dtype, moment_dtype;
  Origin max_steps;
};

}  // namespace mpzero
