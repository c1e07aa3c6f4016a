#pragma once

#include "io/ds_config/ds_config.hpp"
#include "io/ds_config/reader.hpp"

namespace mpzero::io {

// Reads the `zero_optimization` section and its deprecated keys. See read_ds_config() for errors.
void read_zero(ObjectReader& root, ZeroSection& zero);

}  // namespace mpzero::io
