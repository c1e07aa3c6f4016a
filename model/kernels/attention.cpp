#include "model/kernels/attention.hpp"

#include <ATen/Context.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "model/kernels/cpu/attention.hpp"
#include "model/kernels/cpu/cpu.hpp"
#include "model/operation/accumulate_type.hpp"
#include "model/operation/launch.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::model {
namespace {

// Returns [B, heads, T, D], the layout that the kernels expect.
at::Tensor heads_first(const at::Tensor& x) { return x.transpose(1, 2); }

// Repeats each head of x [B, kv_heads, T, D] `group` times, so head h of the result is head h / group of x.
at::Tensor repeat_heads(const at::Tensor& x, int64_t group) {
  if (group == 1) return x;
  return x.unsqueeze(2)
      .expand({x.size(0), x.size(1), group, x.size(2), x.size(3)})
      .reshape({x.size(0), x.size(1) * group, x.size(2), x.size(3)});
}

// Transpose of repeat_heads: sums each group of heads.
at::Tensor sum_heads(const at::Tensor& dx, int64_t group) {
  if (group == 1) return dx;
  const at::Tensor grouped = dx.reshape({dx.size(0), dx.size(1) / group, group, dx.size(2), dx.size(3)});
  return grouped.sum(2, false, accumulate_type(dx.scalar_type())).to(dx.scalar_type());
}

// Returns softmax(q k^T / sqrt(D)), [B, heads, T, T], in at least fp32.
at::Tensor probabilities(const at::Tensor& q, const at::Tensor& k, bool causal) {
  const at::ScalarType wide = accumulate_type(q.scalar_type());
  const int64_t length = q.size(2);
  at::Tensor scores = at::matmul(q.to(wide), k.to(wide).transpose(2, 3)).mul_(1.0 / std::sqrt(q.size(3)));
  if (causal) {
    const at::Tensor future = at::ones({length, length}, q.options().dtype(at::kBool)).triu(1);
    scores.masked_fill_(future, -std::numeric_limits<double>::infinity());
  }
  return at::softmax(scores, -1);
}

at::Tensor math_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  return at::matmul(probabilities(q, k, causal), v.to(accumulate_type(v.scalar_type()))).to(q.scalar_type());
}

AttentionGradients math_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 bool causal) {
  const at::ScalarType wide = accumulate_type(q.scalar_type());
  const at::Tensor p = probabilities(q, k, causal);
  const at::Tensor dout_wide = dout.to(wide);
  const at::Tensor dp = at::matmul(dout_wide, v.to(wide).transpose(2, 3));
  const at::Tensor ds = p.mul(dp.sub(dp.mul(p).sum(-1, true))).mul_(1.0 / std::sqrt(static_cast<double>(q.size(3))));
  return {at::matmul(ds, k.to(wide)).to(q.scalar_type()),
          at::matmul(ds.transpose(2, 3), q.to(wide)).to(k.scalar_type()),
          at::matmul(p.transpose(2, 3), dout_wide).to(v.scalar_type())};
}

Operation operation_on(const at::Tensor& q, const at::Tensor& k, bool backward) {
  return on_attention({q.size(0), q.size(1), q.size(2), k.size(2), q.size(3)}, q.scalar_type(), backward);
}

bool repeats_keys(AttentionKernel kernel) {
  return kernel == AttentionKernel::kMath || kernel == AttentionKernel::kCpuFlash ||
         kernel == AttentionKernel::kEfficient;
}

// Returns true if `kernel` processes packed documents in one call. Other kernels run once per document.
bool packs(AttentionKernel kernel) {
  return kernel == AttentionKernel::kCpuBlocks || kernel == AttentionKernel::kFlash;
}

// Returns the bytes that ATen's cpu_flash_attention allocates: per thread, fp32 scores and sums, and rounded scores.
int64_t cpu_flash_scratch(const at::Tensor& q) {
  const int64_t length = q.size(1), rows = length >= 768 ? 256 : length >= 192 ? 64 : 32;
  const int64_t scores = rows * std::min<int64_t>(length, 512);
  const int64_t rounded = q.scalar_type() == at::kFloat ? 0 : scores * static_cast<int64_t>(q.element_size());
  return cpu::threads() * ((scores + rows * (2 + q.size(3))) * static_cast<int64_t>(sizeof(float)) + rounded);
}

// Allocates the results of kernels other than kMath without computing them.
AttentionOutput simulated_forward(AttentionKernel kernel, const at::Tensor& q, const at::Tensor& k,
                                  const AttentionMask& mask) {
  const int64_t saved = attention_saved_bytes(kernel, q.size(0), q.size(2), q.size(1));
  AttentionOutput made{at::empty(q.sizes(), q.options()), {at::empty({saved}, q.options().dtype(at::kByte))}};
  const bool repeats = repeats_keys(kernel) && q.size(2) != k.size(2);
  const bool by_document = mask.documents && !packs(kernel);
  const at::Tensor part = by_document ? q.narrow(1, 0, mask.documents->longest) : q;
  const int64_t scratch =
      kernel == AttentionKernel::kCpuFlash ? cpu_flash_scratch(part)
      : kernel == AttentionKernel::kCpuBlocks
          ? cpu::attention_forward_bytes(q.size(0), q.size(2), k.size(2), q.size(1), q.size(3), q.scalar_type())
          : 0;
  const int64_t parts = (repeats ? 2 : 0) + (by_document ? 1 : 0);
  borrow(q, scratch + parts * static_cast<int64_t>(part.nbytes()));
  return made;
}

AttentionGradients simulated_backward(AttentionKernel kernel, const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& v, const AttentionMask& mask) {
  AttentionGradients made{at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()),
                          at::empty(v.sizes(), v.options())};
  borrow(q, attention_backward_bytes(kernel, q.size(0), q.size(2), k.size(2), q.size(1), q.size(3), q.scalar_type(),
                                     mask.documents ? std::ssize(mask.documents->ends) - 1 : 0));
  return made;
}

std::span<const int32_t> ends_of(const AttentionMask& mask) {
  return mask.documents ? std::span<const int32_t>(mask.documents->ends) : std::span<const int32_t>();
}

}  // namespace

std::shared_ptr<const Documents> documents_on(at::Device device, std::vector<int32_t> ends, int64_t seq_length) {
  if (ends.size() < 2 || ends.front() != 0) throw_failure("document ends must start with 0 and have 2 or more entries");
  auto made = std::make_shared<Documents>();
  made->seq_length = seq_length;
  std::vector<int64_t> positions(static_cast<size_t>(ends.back()));
  for (size_t i = 1; i < ends.size(); ++i) {
    const int64_t length = ends[i] - ends[i - 1];
    if (length < 1 || length > seq_length) {
      throw_failure("document {} in the batch has {} tokens, but must have between 1 and {}", i - 1, length,
                    seq_length);
    }
    made->longest = std::max(made->longest, length);
    std::iota(positions.begin() + ends[i - 1], positions.begin() + ends[i], 0);
  }
  made->ends = std::move(ends);
  const auto copy = [&](auto& values, at::ScalarType type) {
    return at::from_blob(values.data(), {std::ssize(values)}, type).to(device, /*non_blocking=*/false, /*copy=*/true);
  };
  made->ends_on_device = copy(made->ends, at::kInt);
  made->positions = copy(positions, at::kLong);
  return made;
}

AttentionKernel choose_attention_kernel(const at::Tensor& q, const AttentionMask& mask) {
  return choose_attention_kernel(q.device(), q.scalar_type(), q.size(-1), mask.documents != nullptr);
}

AttentionKernel choose_attention_kernel(at::Device device, at::ScalarType type, int64_t head_dim, bool packed) {
  const bool deterministic = at::globalContext().deterministicAlgorithms();
  if (type != at::kFloat && type != at::kBFloat16) return AttentionKernel::kMath;
  if (uses_cpu_kernels(device)) {
    return cpu::has_attention(type, head_dim) ? AttentionKernel::kCpuBlocks : AttentionKernel::kCpuFlash;
  }
  if (!uses_gpu_kernels(device)) return AttentionKernel::kMath;
  if (type == at::kFloat) {
    return deterministic || head_dim % 4 != 0 ? AttentionKernel::kMath : AttentionKernel::kEfficient;
  }
  if (head_dim % 8 != 0 || head_dim > 256) return AttentionKernel::kMath;
  // ATen's cuDNN attention rebuilds its graph for each set of document lengths, and its backward pass reads out of
  // bounds (pytorch#191576, #186142).
  return deterministic || packed || head_dim > 128 ? AttentionKernel::kFlash : AttentionKernel::kCudnn;
}

int64_t attention_saved_bytes(AttentionKernel kernel, int64_t batch, int64_t heads, int64_t length) {
  constexpr int64_t kEfficientRows = 32;  // the kernel pads a sequence's rows to this multiple
  const auto log_sums = [&](int64_t rows) { return batch * heads * rows * static_cast<int64_t>(sizeof(float)); };
  // Bytes of the seed and offset of an unused random number generator, which are stored with the sums.
  constexpr int64_t kRandomState = 16;
  switch (kernel) {
    case AttentionKernel::kMath:
      return 0;
    case AttentionKernel::kCpuBlocks:
    case AttentionKernel::kCpuFlash:
      return log_sums(length);
    case AttentionKernel::kCudnn:
    case AttentionKernel::kFlash:
      return log_sums(length) + kRandomState;
    case AttentionKernel::kEfficient:
      return log_sums((length + kEfficientRows - 1) / kEfficientRows * kEfficientRows) + kRandomState;
  }
  return 0;
}

int64_t attention_backward_bytes(AttentionKernel kernel, int64_t batch, int64_t heads, int64_t key_value_heads,
                                 int64_t length, int64_t head_dim, at::ScalarType type, int64_t documents) {
  const int64_t rows = batch * heads * length, element = static_cast<int64_t>(c10::elementSize(type));
  const int64_t wide = static_cast<int64_t>(c10::elementSize(accumulate_type(type)));
  const int64_t query = rows * head_dim * element, row_sums = rows * static_cast<int64_t>(sizeof(float));
  const int64_t query_sums = row_sums * head_dim;
  const bool grouped = heads != key_value_heads;
  // Gradients of keys and values per query head, before the sum over each group, and the accumulation buffer of the
  // sum.
  const int64_t grouped_gradients =
      grouped ? 2 * query + (wide > element ? batch * key_value_heads * length * head_dim * wide : 0) : 0;
  switch (kernel) {
    case AttentionKernel::kMath:
      return 0;  // ATen operators allocate their own buffers
    case AttentionKernel::kCpuBlocks:
      return cpu::attention_backward_bytes(batch, heads, length, head_dim, type);
    case AttentionKernel::kCpuFlash:
      return (grouped ? 2 * query : 0) + grouped_gradients;
    case AttentionKernel::kEfficient:
      return (grouped ? 2 * query : 0) + grouped_gradients + row_sums;
    case AttentionKernel::kCudnn:
      return query_sums + row_sums + (grouped ? 2 * query : 0);
    case AttentionKernel::kFlash: {
      const bool deterministic = at::globalContext().deterministicAlgorithms();
      const int64_t blocks = std::max(batch, documents) * heads;
      const int64_t splits = deterministic ? (simulated_target().multiprocessors + blocks - 1) / blocks : 1;
      constexpr int64_t kPadding = 128;  // rows between packed documents
      const int64_t padded = documents * kPadding * heads * static_cast<int64_t>(sizeof(float));
      return splits * (query_sums + padded * head_dim) + row_sums + padded + (grouped ? 2 * query : 0);
    }
  }
  return 0;
}

namespace {

// Returns tokens [begin, begin + length) of x [1, N, heads, D].
at::Tensor part(const at::Tensor& x, int64_t begin, int64_t length) { return x.narrow(1, begin, length); }

template <typename Use>
void for_documents(const Documents& documents, const Use& use) {
  for (size_t i = 1; i < documents.ends.size(); ++i)
    use(documents.ends[i - 1], documents.ends[i] - documents.ends[i - 1]);
}

// Runs `kernel` without packed documents, or with packed documents if the kernel supports them.
AttentionOutput forward(AttentionKernel kernel, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const AttentionMask& mask) {
  const int64_t group = repeats_keys(kernel) ? q.size(2) / k.size(2) : 1;
  const at::Tensor query = heads_first(q);
  const at::Tensor key = repeat_heads(heads_first(k), group);
  const at::Tensor value = repeat_heads(heads_first(v), group);
  AttentionOutput result;
  at::Tensor out;
  switch (kernel) {
    case AttentionKernel::kMath:
      out = math_forward(query, key, value, mask.causal);
      break;
    case AttentionKernel::kCpuFlash: {
      auto [o, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, mask.causal);
      out = o;
      result.saved = {logsumexp};
      break;
    }
    case AttentionKernel::kCpuBlocks: {
      result.out = at::empty(q.sizes(), q.options());
      result.saved = {at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat))};
      cpu::attention_forward(q, k, v, result.out, result.saved[0], mask.causal, ends_of(mask));
      return result;
    }
    case AttentionKernel::kCudnn: {
      auto [o, logsumexp, cum_q, cum_k, max_q, max_k, seed, offset, debug] =
          at::_scaled_dot_product_cudnn_attention(query, key, value, std::nullopt, true, 0.0, mask.causal, false);
      out = o;
      result.saved = {logsumexp, cum_q, cum_k, seed, offset};
      break;
    }
    case AttentionKernel::kFlash: {
      if (mask.documents) {
        const Documents& documents = *mask.documents;
        auto [o, logsumexp, state, unused, debug] = at::_flash_attention_forward(
            q.squeeze(0), k.squeeze(0), v.squeeze(0), documents.ends_on_device, documents.ends_on_device,
            documents.longest, documents.longest, 0.0, mask.causal, false);
        return {o.unsqueeze(0), {logsumexp, state, unused}};
      }
      auto [o, logsumexp, cum_q, cum_k, max_q, max_k, seed, offset, debug] =
          at::_scaled_dot_product_flash_attention(query, key, value, 0.0, mask.causal, false);
      out = o;
      result.saved = {logsumexp, cum_q, cum_k, seed, offset};
      break;
    }
    case AttentionKernel::kEfficient: {
      auto [o, logsumexp, seed, offset] =
          at::_scaled_dot_product_efficient_attention(query, key, value, std::nullopt, true, 0.0, mask.causal);
      out = o;
      result.saved = {logsumexp, seed, offset};
      break;
    }
  }
  result.out = heads_first(out);
  return result;
}

AttentionGradients backward(AttentionKernel kernel, const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const AttentionOutput& forward, const AttentionMask& mask) {
  const int64_t group = repeats_keys(kernel) ? q.size(2) / k.size(2) : 1;
  const at::Tensor query = heads_first(q);
  const at::Tensor key = repeat_heads(heads_first(k), group);
  const at::Tensor value = repeat_heads(heads_first(v), group);
  const at::Tensor dy = heads_first(dout);
  const at::Tensor out = heads_first(forward.out);
  const std::vector<at::Tensor>& saved = forward.saved;
  AttentionGradients gradients;
  switch (kernel) {
    case AttentionKernel::kMath:
      gradients = math_backward(dy, query, key, value, mask.causal);
      break;
    case AttentionKernel::kCpuBlocks: {
      gradients = {at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()),
                   at::empty(v.sizes(), v.options())};
      cpu::attention_backward(dout, q, k, v, forward.out, saved[0], gradients.dq, gradients.dk, gradients.dv,
                              mask.causal, ends_of(mask));
      return gradients;
    }
    case AttentionKernel::kCpuFlash: {
      auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(dy, query, key, value, out, saved[0],
                                                                                   0.0, mask.causal);
      gradients = {dq, dk, dv};
      break;
    }
    case AttentionKernel::kCudnn: {
      auto [dq, dk, dv] = at::_scaled_dot_product_cudnn_attention_backward(
          dy, query, key, value, out, saved[0], saved[3], saved[4], at::Tensor(), saved[1], saved[2], query.size(2),
          key.size(2), 0.0, mask.causal);
      gradients = {dq, dk, dv};
      break;
    }
    case AttentionKernel::kFlash: {
      if (mask.documents) {
        const Documents& documents = *mask.documents;
        auto [dq, dk, dv] = at::_flash_attention_backward(dout.squeeze(0), q.squeeze(0), k.squeeze(0), v.squeeze(0),
                                                          forward.out.squeeze(0), saved[0], documents.ends_on_device,
                                                          documents.ends_on_device, documents.longest,
                                                          documents.longest, 0.0, mask.causal, saved[1], saved[2]);
        return {dq.unsqueeze(0), dk.unsqueeze(0), dv.unsqueeze(0)};
      }
      auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_backward(
          dy, query, key, value, out, saved[0], saved[1], saved[2], query.size(2), key.size(2), 0.0, mask.causal,
          saved[3], saved[4]);
      gradients = {dq, dk, dv};
      break;
    }
    case AttentionKernel::kEfficient: {
      auto [dq, dk, dv, dbias] = at::_scaled_dot_product_efficient_attention_backward(
          dy, query, key, value, at::Tensor(), out, saved[0], saved[1], saved[2], 0.0, {true, true, true, false},
          mask.causal);
      gradients = {dq, dk, dv};
      break;
    }
  }
  return {heads_first(gradients.dq), heads_first(sum_heads(gradients.dk, group)),
          heads_first(sum_heads(gradients.dv, group))};
}

void check(const at::Tensor& q, const AttentionMask& mask) {
  if (mask.documents && (q.size(0) != 1 || q.size(1) != mask.documents->ends.back())) {
    throw_failure("attention: documents of {} tokens require one sequence of the same length, got {} sequences of {}",
                  mask.documents->ends.back(), q.size(0), q.size(1));
  }
}

}  // namespace

AttentionOutput attention_forward(AttentionKernel kernel, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const AttentionMask& mask) {
  check(q, mask);
  const OperationScope scope(kAttentionForward, [&] { return operation_on(q, k, false); });
  if (is_simulated(q.device()) && kernel != AttentionKernel::kMath) return simulated_forward(kernel, q, k, mask);
  if (!mask.documents || packs(kernel)) return forward(kernel, q, k, v, mask);
  AttentionOutput all{at::empty(q.sizes(), q.options()), {}};
  for_documents(*mask.documents, [&](int64_t begin, int64_t length) {
    AttentionOutput one =
        forward(kernel, part(q, begin, length), part(k, begin, length), part(v, begin, length), {mask.causal});
    part(all.out, begin, length).copy_(one.out);
    std::move(one.saved.begin(), one.saved.end(), std::back_inserter(all.saved));
  });
  return all;
}

AttentionGradients attention_backward(AttentionKernel kernel, const at::Tensor& dout, const at::Tensor& q,
                                      const at::Tensor& k, const at::Tensor& v, const AttentionOutput& forward,
                                      const AttentionMask& mask) {
  check(q, mask);
  const OperationScope scope(kAttentionBackward, [&] { return operation_on(q, k, true); });
  if (is_simulated(q.device()) && kernel != AttentionKernel::kMath) return simulated_backward(kernel, q, k, v, mask);
  if (!mask.documents || packs(kernel)) return backward(kernel, dout, q, k, v, forward, mask);
  AttentionGradients all{at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()),
                         at::empty(v.sizes(), v.options())};
  const auto of_each = std::ssize(forward.saved) / (std::ssize(mask.documents->ends) - 1);
  auto saved = forward.saved.begin();
  for_documents(*mask.documents, [&](int64_t begin, int64_t length) {
    const AttentionOutput one{part(forward.out, begin, length), {saved, saved + of_each}};
    saved += of_each;
    const AttentionGradients made = backward(kernel, part(dout, begin, length), part(q, begin, length),
                                             part(k, begin, length), part(v, begin, length), one, {mask.causal});
    part(all.dq, begin, length).copy_(made.dq);
    part(all.dk, begin, length).copy_(made.dk);
    part(all.dv, begin, length).copy_(made.dv);
  });
  return all;
}

}  // namespace mpzero::model
