#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace mpzero::model {

enum class AttentionKernel : uint8_t {
  kMath,       // ATen operators; any type and device, [B, heads, T, T] in memory
  kCpuBlocks,  // fp32 and bf16 on CPUs that cpu::has_attention names
  kCpuFlash,   // fp32 and bf16 on other CPUs
  kCudnn,      // bf16 on the GPU
  kFlash,      // bf16 on the GPU; reproducible under at::globalContext().setDeterministicAlgorithms
  kEfficient,  // fp32 on the GPU
};

// The fastest kernel for these types, this device and head size D that honours
// at::globalContext().deterministicAlgorithms().
AttentionKernel choose_attention_kernel(at::Device device, at::ScalarType type, int64_t head_dim);
AttentionKernel choose_attention_kernel(const at::Tensor& q);

// Bytes of AttentionOutput::saved.
int64_t attention_saved_bytes(AttentionKernel kernel, int64_t batch, int64_t heads, int64_t length);
// Bytes that attention_backward uses in addition to its results; for third-party kernels, taken from their sources.
int64_t attention_backward_bytes(AttentionKernel kernel, int64_t batch, int64_t heads, int64_t key_value_heads,
                                 int64_t length, int64_t head_dim, at::ScalarType type);

struct AttentionOutput {
  at::Tensor out;                 // [B, T, heads, D]
  std::vector<at::Tensor> saved;  // for the backward of the same kernel
};

struct AttentionGradients {
  at::Tensor dq, dk, dv;  // as q, k, v
};

// Causal attention softmax(q k^T / sqrt(D)) v: q [B, T, heads, D]; k, v [B, T, kv_heads, D], each shared by heads /
// kv_heads neighbouring query heads (Ainslie et al., 2023, arXiv:2305.13245). Accepts strided views of a packed
// projection.
AttentionOutput attention_forward(AttentionKernel kernel, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v);
AttentionGradients attention_backward(AttentionKernel kernel, const at::Tensor& dout, const at::Tensor& q,
                                      const at::Tensor& k, const at::Tensor& v, const AttentionOutput& forward);

}  // namespace mpzero::model
