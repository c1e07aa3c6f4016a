#pragma once

#include "io/ds_config/ds_config.hpp"
#include "io/ds_config/reader.hpp"

namespace mpzero::io {

// Reads the section `zero_optimization` of the file, if it exists, and older names for parts of it. Throws UserError as
// read_ds_config does.
void read_zero(ObjectReader& root, ZeroSection& zero);

}  // namespace mpzero::io
