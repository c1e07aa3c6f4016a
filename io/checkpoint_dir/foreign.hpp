#pragma once

#include "io/files/open_folder.hpp"

namespace mpzero::io {

// Throws UserError naming the kind of checkpoint and what to do if the folder holds one of another trainer, or of a
// kind of DeepSpeed's, that mpzero does not read.
void refuse_foreign(const OpenFolder& folder);

}  // namespace mpzero::io
