#include "parallel/quantization/quantize.hpp"

#include <c10/util/Exception.h>

#include "parallel/optimizer/adamw_kernels.hpp"
#include "parallel/quantization/quantize_kernels.hpp"

namespace mpzero::parallel {
namespace {

bool is_bf16(const at::Tensor& tensor) { return tensor.scalar_type() == at::kBFloat16; }

void check_values(const at::Tensor& values, int64_t count, const at::Tensor& message) {
  TORCH_CHECK(is_bf16(values) || values.scalar_type() == at::kFloat, "values to quantize must be fp32 or bf16");
  TORCH_CHECK(values.is_contiguous() && values.numel() == count && count % kMessageAlignment == 0,
              "values to quantize must be contiguous, and their number must be a multiple of ", kMessageAlignment);
  TORCH_CHECK(values.device() == message.device(),
              "the values to quantize and the message buffer must be on the same device");
}

void check_message(const at::Tensor& message, int64_t count, const BlockFormat& format) {
  TORCH_CHECK(
      message.scalar_type() == at::kByte && message.is_contiguous() && message.size(-1) == format.message_bytes(count),
      "the message buffer for ", count, " elements must have ", format.message_bytes(count), " bytes");
}

QuantizedSpans spans_of(const at::Tensor& values, const at::Tensor& other, const at::Tensor& message,
                        const BlockFormat& format) {
  const int64_t count = values.numel();
  check_message(message, count, format);
  check_values(values, count, message);
  check_values(other, count, message);
  auto* const bytes = static_cast<int8_t*>(message.data_ptr());
  return {.values = values.const_data_ptr(),
          .values_are_bf16 = is_bf16(values),
          .residual = other.data_ptr(),
          .residual_is_bf16 = is_bf16(other),
          .codes = bytes,
          .scales = reinterpret_cast<float*>(bytes + format.code_bytes(count)),
          .count = count,
          .format = format};
}

}  // namespace

void quantize_with_residual(const at::Tensor& values, const at::Tensor& residual, const at::Tensor& message,
                            const BlockFormat& format, RoundingKey key, int64_t first) {
  if (is_simulated_kernel(message, values.nbytes() + 2 * residual.nbytes() + message.nbytes())) return;
  const QuantizedSpans spans = spans_of(values, residual, message, format);
  (message.is_cuda() ? quantize_with_residual_cuda : quantize_with_residual_host)(spans, key,
                                                                                  static_cast<uint32_t>(first));
}

void quantize_difference(const at::Tensor& wanted, const at::Tensor& current, const at::Tensor& message,
                         const BlockFormat& format) {
  if (is_simulated_kernel(message, wanted.nbytes() + current.nbytes() + message.nbytes())) return;
  const QuantizedSpans spans = spans_of(wanted, current, message, format);
  (message.is_cuda() ? quantize_difference_cuda : quantize_difference_host)(spans);
}

void sum_messages(const at::Tensor& messages, int64_t own_row, const at::Tensor& own, const at::Tensor& sum,
                  const BlockFormat& format) {
  if (is_simulated_kernel(messages, messages.nbytes() + own.nbytes() + sum.nbytes())) return;
  const int64_t count = sum.numel();
  check_message(messages, count, format);
  check_values(own, count, messages);
  check_values(sum, count, messages);
  const SummedSpans spans{.codes = static_cast<const int8_t*>(messages.const_data_ptr()),
                          .scales_offset = format.code_bytes(count),
                          .stride = messages.size(-1),
                          .rows = messages.size(0),
                          .own_row = own_row,
                          .own = own.const_data_ptr(),
                          .own_is_bf16 = is_bf16(own),
                          .sum = sum.data_ptr(),
                          .sum_is_bf16 = is_bf16(sum),
                          .count = count,
                          .format = format};
  (messages.is_cuda() ? sum_messages_cuda : sum_messages_host)(spans);
}

void add_message(const at::Tensor& message, const at::Tensor& values, const BlockFormat& format) {
  if (is_simulated_kernel(message, message.nbytes() + 2 * values.nbytes())) return;
  check_message(message, values.numel(), format);
  check_values(values, values.numel(), message);
  const SummedSpans spans{.codes = static_cast<const int8_t*>(message.const_data_ptr()),
                          .scales_offset = format.code_bytes(values.numel()),
                          .stride = message.size(-1),
                          .rows = 2,
                          .own_row = 1,
                          .own = values.const_data_ptr(),
                          .own_is_bf16 = is_bf16(values),
                          .sum = values.data_ptr(),
                          .sum_is_bf16 = is_bf16(values),
                          .count = values.numel(),
                          .format = format};
  (message.is_cuda() ? sum_messages_cuda : sum_messages_host)(spans);
}

}  // namespace mpzero::parallel
