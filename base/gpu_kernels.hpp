#pragma once

#include <string>

namespace mpzero {

// Whether this build has mpzero's kernels for GPUs: not with -DMPZERO_GPU_ARCHITECTURES=none, which the scripts choose
// on a machine that has no GPU to run them on.
bool built_with_gpu_kernels();

// What is missing and how to get it, for a build without them: a clause, "this build of mpzero has no GPU kernels;
// ...".
std::string no_gpu_kernels();

// Takes the place of a kernel in such a build. Throws UserError.
[[noreturn]] void throw_no_gpu_kernels();

}  // namespace mpzero
