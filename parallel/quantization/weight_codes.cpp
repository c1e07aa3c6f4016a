#include "parallel/quantization/weight_codes.hpp"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "parallel/optimizer/adamw_kernels.hpp"
#include "parallel/quantization/nf4.hpp"
#include "parallel/quantization/quantize.hpp"

namespace mpzero::parallel {
namespace {

static_assert(kCodedGroup % kNf4Group == 0 && kCodedGroup % kInt8.block == 0);

void check(WeightCodes codes, const at::Tensor& values, const at::Tensor& message) {
  TORCH_CHECK(values.is_contiguous() && values.numel() % kCodedGroup == 0,
              "quantized weights must be contiguous, and their number must be a multiple of ", kCodedGroup);
  TORCH_CHECK(message.scalar_type() == at::kByte && message.is_contiguous() &&
                  message.numel() == code_bytes(codes, values.numel()),
              "the buffer for the codes of ", values.numel(), " weights must have ", code_bytes(codes, values.numel()),
              " bytes");
  TORCH_CHECK(values.device() == message.device(),
              "the weights and the buffer of their codes must be on the same device");
}

}  // namespace

int64_t code_bytes(WeightCodes codes, int64_t count) {
  if (codes == WeightCodes::kInt8) return kInt8.message_bytes(count);
  constexpr int64_t kAlignment = 16;
  const int64_t bytes = count / 2 + count / kNf4Block + count / kNf4Group * 2 * static_cast<int64_t>(sizeof(float));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void encode_weights(WeightCodes codes, const at::Tensor& values, const at::Tensor& message) {
  check(codes, values, message);
  TORCH_CHECK(values.is_cpu() && values.scalar_type() == at::kFloat, "weights to quantize must be fp32 in host memory");
  if (codes == WeightCodes::kInt8) {
    quantize_difference(values, at::zeros(values.sizes(), at::kBFloat16), message, kInt8);
  } else {
    encode_nf4(values.const_data_ptr<float>(), values.numel(), message.data_ptr<uint8_t>());
  }
}

void decode_weights(WeightCodes codes, const at::Tensor& message, const at::Tensor& values) {
  check(codes, values, message);
  if (is_simulated_kernel(message, message.nbytes() + values.nbytes())) return;
  if (codes == WeightCodes::kInt8) {
    // own_row = -1 does not replace a message.
    return sum_messages(message.unsqueeze(0), /*own_row=*/-1, values, values, kInt8);
  }
  TORCH_CHECK(values.scalar_type() == at::kFloat || values.scalar_type() == at::kBFloat16,
              "dequantized weights must be fp32 or bf16");
  const Nf4Spans spans{.message = message.const_data_ptr<uint8_t>(),
                       .values = values.data_ptr(),
                       .values_are_bf16 = values.scalar_type() == at::kBFloat16,
                       .count = values.numel()};
  (message.is_cuda() ? decode_nf4_cuda : decode_nf4_host)(spans);
}

}  // namespace mpzero::parallel
