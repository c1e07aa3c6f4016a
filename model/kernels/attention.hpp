#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/device/sequence_exchange.hpp"

namespace mpzero::model {

// Documents packed into one sequence of N tokens. Tokens attend only within their document, and positions restart at 0
// in each document.
struct Documents {
  std::vector<int32_t> ends;  // 0, then the end of each document; strictly ascending up to N
  int64_t seq_length = 0;     // maximum length of a document
  int64_t longest = 0;
  at::Tensor ends_on_device;  // [documents + 1] int32
  at::Tensor positions;       // [N] int64, on the device
};
// Returns Documents with tensors on `device`. Throws Failure if `ends` violates the conditions of Documents::ends or a
// document is longer than seq_length.
std::shared_ptr<const Documents> documents_on(at::Device device, std::vector<int32_t> ends, int64_t seq_length);

// A query attends to the keys of its document. If `causal` is true, later keys are masked.
struct AttentionMask {
  bool causal = true;
  std::shared_ptr<const Documents> documents = nullptr;  // null: each sequence is one document
  // Exchange for sequence parallelism in a layer. If `ranks` is not null, `documents` describes whole sequences.
  std::shared_ptr<const SequenceExchange> ranks = nullptr;
};

enum class AttentionKernel : uint8_t {
  kMath,       // ATen operators; any dtype and device, allocates [B, heads, T, T]
  kCpuBlocks,  // fp32 and bf16 on CPUs, if cpu::has_attention
  kCpuFlash,   // fp32 and bf16 on other CPUs
  kCudnn,      // bf16 on the GPU
  kFlash,      // bf16 on the GPU; supports packed documents and deterministic algorithms
  kEfficient,  // fp32 on the GPU
};

// Returns the fastest attention kernel that supports this device, dtype and head size, packed documents (if `packed` is
// true), and deterministic algorithms (if at::globalContext().deterministicAlgorithms() is true).
AttentionKernel choose_attention_kernel(at::Device device, at::ScalarType type, int64_t head_dim, bool packed = false);
AttentionKernel choose_attention_kernel(const at::Tensor& q, const AttentionMask& mask = {});

// Returns the size of AttentionOutput::saved in bytes.
int64_t attention_saved_bytes(AttentionKernel kernel, int64_t batch, int64_t heads, int64_t length);
// Returns the number of bytes that attention_backward allocates in addition to its results. Values for third-party
// kernels are derived from their source code. `documents`: number of documents in the packed sequence, or 0.
int64_t attention_backward_bytes(AttentionKernel kernel, int64_t batch, int64_t heads, int64_t key_value_heads,
                                 int64_t length, int64_t head_dim, at::ScalarType type, int64_t documents = 0);

struct AttentionOutput {
  at::Tensor out;                 // [B, T, heads, D]
  std::vector<at::Tensor> saved;  // tensors for the backward pass of the same kernel
};

struct AttentionGradients {
  at::Tensor dq, dk, dv;  // same shapes as q, k, v
};

// Computes softmax(q k^T / sqrt(D)) v over the keys that `mask` allows, for q [B, T, heads, D] and k, v [B, T,
// kv_heads, D]. Each head of k and v is shared by heads / kv_heads adjacent query heads (Ainslie et al., 2023,
// arXiv:2305.13245). Accepts strided views of a packed projection. Packed documents require B = 1. The backward pass
// must use the same kernel and mask as the forward pass.
AttentionOutput attention_forward(AttentionKernel kernel, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const AttentionMask& mask = {});
AttentionGradients attention_backward(AttentionKernel kernel, const at::Tensor& dout, const at::Tensor& q,
                                      const at::Tensor& k, const at::Tensor& v, const AttentionOutput& forward,
                                      const AttentionMask& mask = {});

}  // namespace mpzero::model
