#pragma once

#include <string>

namespace mpzero {

// False with -DMPZERO_GPU_ARCHITECTURES=none, the scripts' default on a machine without a GPU.
bool built_with_gpu_kernels();

// Cause and remedy for a build without GPU kernels, as a clause: "this build has no GPU kernels ...; rebuild ...".
std::string no_gpu_kernels();

// Replaces a kernel in such a build. Throws UserError.
[[noreturn]] void throw_no_gpu_kernels();

}  // namespace mpzero
