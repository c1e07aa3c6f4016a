#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/device/sequence_exchange.hpp"

namespace mpzero::model {

// Documents packed into one sequence of N tokens: tokens attend within their document, and positions restart at 0 in
// each.
struct Documents {
  std::vector<int32_t> ends;  // 0, then the end of each document: strictly ascending up to N
  int64_t seq_length = 0;     // upper limit of document lengths
  int64_t longest = 0;
  at::Tensor ends_on_device;  // [documents + 1] int32
  at::Tensor positions;       // [N] int64, on the device
};
// Throws Failure if `ends` are not as above.
std::shared_ptr<const Documents> documents_on(at::Device device, std::vector<int32_t> ends, int64_t seq_length);

// A query attends to the keys of its document; with `causal`, only up to itself.
struct AttentionMask {
  bool causal = true;
  std::shared_ptr<const Documents> documents = nullptr;  // null: each sequence is one document
  // Sequence parallelism, for a layer; `documents` then refers to whole sequences. null: this rank alone.
  std::shared_ptr<const SequenceExchange> ranks = nullptr;
};

enum class AttentionKernel : uint8_t {
  kMath,       // ATen operators; any dtype and device, [B, heads, T, T] in memory
  kCpuBlocks,  // fp32 and bf16 on CPUs, if cpu::has_attention
  kCpuFlash,   // fp32 and bf16 on other CPUs
  kCudnn,      // bf16 on the GPU
  kFlash,      // bf16 on the GPU; reproducible under at::globalContext().setDeterministicAlgorithms; packed documents
  kEfficient,  // fp32 on the GPU
};

// The fastest kernel for this device, dtype and head size, with or without packed documents, that respects
// at::globalContext().deterministicAlgorithms().
AttentionKernel choose_attention_kernel(at::Device device, at::ScalarType type, int64_t head_dim, bool packed = false);
AttentionKernel choose_attention_kernel(const at::Tensor& q, const AttentionMask& mask = {});

// Bytes of AttentionOutput::saved.
int64_t attention_saved_bytes(AttentionKernel kernel, int64_t batch, int64_t heads, int64_t length);
// Bytes that attention_backward uses in addition to its results; for third-party kernels, taken from their sources.
// `documents`: number packed into the sequence; 0 without documents.
int64_t attention_backward_bytes(AttentionKernel kernel, int64_t batch, int64_t heads, int64_t key_value_heads,
                                 int64_t length, int64_t head_dim, at::ScalarType type, int64_t documents = 0);

struct AttentionOutput {
  at::Tensor out;                 // [B, T, heads, D]
  std::vector<at::Tensor> saved;  // for the backward of the same kernel
};

struct AttentionGradients {
  at::Tensor dq, dk, dv;  // as q, k, v
};

// softmax(q k^T / sqrt(D)) v over the keys that `mask` allows: q [B, T, heads, D]; k, v [B, T, kv_heads, D], each
// shared by heads / kv_heads neighbouring query heads (Ainslie et al., 2023, arXiv:2305.13245). Accepts strided views
// of a packed projection. Packed documents need B = 1. Pass the forward's kernel and mask to the backward.
AttentionOutput attention_forward(AttentionKernel kernel, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const AttentionMask& mask = {});
AttentionGradients attention_backward(AttentionKernel kernel, const at::Tensor& dout, const at::Tensor& q,
                                      const at::Tensor& k, const at::Tensor& v, const AttentionOutput& forward,
                                      const AttentionMask& mask = {});

}  // namespace mpzero::model
