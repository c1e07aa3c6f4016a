#pragma once

#include <string>

namespace mpzero {

// Returns false if mpzero was built with -DMPZERO_GPU_ARCHITECTURES=none, the scripts' default on a machine without a
// GPU.
bool built_with_gpu_kernels();

// Returns the cause and the remedy as a clause: "this build has no GPU kernels ...; rebuild ...".
std::string no_gpu_kernels();

// Throws UserError. Called in place of a kernel in a build without GPU kernels.
[[noreturn]] void throw_no_gpu_kernels();

}  // namespace mpzero
