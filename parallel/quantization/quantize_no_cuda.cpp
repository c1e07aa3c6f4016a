// Replaces quantize_cuda.cu and nf4_cuda.cu in builds without GPU kernels.

#include "base/gpu_kernels.hpp"
#include "parallel/quantization/nf4.hpp"
#include "parallel/quantization/quantize_kernels.hpp"

namespace mpzero::parallel {

void quantize_with_residual_cuda(const QuantizedSpans&, RoundingKey, uint32_t) { throw_no_gpu_kernels(); }
void quantize_difference_cuda(const QuantizedSpans&) { throw_no_gpu_kernels(); }
void sum_messages_cuda(const SummedSpans&) { throw_no_gpu_kernels(); }
void decode_nf4_cuda(const Nf4Spans&) { throw_no_gpu_kernels(); }

}  // namespace mpzero::parallel
