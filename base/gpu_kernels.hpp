#pragma once

#include <string>

namespace mpzero {

// Returns false if mpzero was built with -DMPZERO_GPU_ARCHITECTURES=none, the scripts' default on a machine without a
// GPU.
bool built_with_gpu_kernels();

// Returns a clause that states why the build has no GPU kernels, and the remedy: "this build has no GPU kernels ...;
// rebuild ...".
std::string no_gpu_kernels();

// Throws UserError with no_gpu_kernels(). A build without GPU kernels calls this function in place of each kernel.
[[noreturn]] void throw_no_gpu_kernels();

}  // namespace mpzero
