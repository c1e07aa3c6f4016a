#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

namespace mpzero::parallel {

// Work that `stream` gets from now on follows what the current stream has.
inline void follow_current_stream(const c10::cuda::CUDAStream& stream) {
  at::cuda::CUDAEvent so_far;
  so_far.record(c10::cuda::getCurrentCUDAStream());
  so_far.block(stream);
}

}  // namespace mpzero::parallel
