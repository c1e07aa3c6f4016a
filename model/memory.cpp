// The memory that the passes of decoder.hpp use: counts the temporaries of layer.cpp and lm_head.cpp.
#include <ATen/Context.h>

#include <algorithm>
#include <array>
#include <set>

#include "model/decoder.hpp"
#include "model/kernels/accumulate_type.hpp"
#include "model/kernels/attention.hpp"
#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cpu/matmul.hpp"
#include "model/kernels/cublas_lt.hpp"

namespace mpzero::model {
namespace {

int64_t bytes_of(at::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); }

// Memory that cuBLAS keeps on Hopper once ATen has created its handle, which cuBLASLt's products request too.
constexpr int64_t kCublasBytes = 32 << 20;

// The bytes that are live while a pass runs, and their peak.
class Live {
 public:
  void make(int64_t bytes) {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  void free(int64_t bytes) { now_ -= bytes; }
  // Bytes that a kernel allocates and frees.
  void borrow(int64_t bytes) {
    make(bytes);
    free(bytes);
  }
  int64_t peak() const { return peak_; }

 private:
  int64_t now_ = 0, peak_ = 0;
};

// Bytes of a micro-batch's tensors by their width, and the implementation in use.
struct Sizes {
  Fp8Products fp8{};  // of the layer
  int64_t tokens, element, wide;
  int64_t hidden, query, key, inner;
  at::ScalarType type;
  bool fused;          // kernels run, not the references
  bool rotates_fused;  // also for the norm and rotation of queries and keys
  bool cublas_lt;      // cuBLASLt's products, not ATen's
  bool cpu_products;   // those of model/kernels/cpu

  Sizes(const ModelConfig& config, int64_t batch, int64_t length, at::Device device, at::ScalarType type)
      : tokens(batch * length),
        element(bytes_of(type)),
        wide(bytes_of(accumulate_type(type))),
        hidden(tokens * config.hidden_size * element),
        query(tokens * config.query_size() * element),
        key(tokens * config.key_value_size() * element),
        inner(tokens * config.intermediate_size * element),
        type(type),
        fused(type == at::kFloat || type == at::kBFloat16),
        rotates_fused(fused && (device.is_cuda() || cpu::has_rope(config.head_dim))),
        cublas_lt(device.is_cuda() && type == at::kBFloat16),
        cpu_products(device.is_cpu() && cpu::has_matmul(type)) {}

  int64_t packed() const { return query + 2 * key; }
  bool reads_fp8(LayerProduct product) const { return fp8[static_cast<size_t>(product)]; }
  // Of an input, whose tensor has `bytes`: the tensor, or in FP8 one form of it.
  int64_t input(LayerProduct product, int64_t bytes) const { return reads_fp8(product) ? bytes / element : bytes; }
  // Of a gradient, in addition to its tensor.
  int64_t gradient_forms(LayerProduct product, int64_t bytes) const {
    return reads_fp8(product) ? 2 * bytes / element : 0;
  }
  // The input is there in FP8 before its tensor is freed.
  void cast_input(Live& live, LayerProduct product, int64_t bytes) const {
    if (!reads_fp8(product)) return;
    live.make(input(product, bytes));
    live.free(bytes);
  }
  void make_input(Live& live, LayerProduct product, int64_t bytes) const {
    live.make(bytes);
    cast_input(live, product, bytes);
  }
  // The same for a gradient that is needed no longer as a tensor.
  void make_gradient(Live& live, LayerProduct product, int64_t bytes) const {
    if (!reads_fp8(product)) return;
    live.make(gradient_forms(product, bytes));
    live.free(bytes);
  }
  // Of a weight [out, in]: the product that gives the gradient of its input, and the one that gives its own. What the
  // CPU needs for those of FP8 is not counted.
  int64_t data_gradient(int64_t in, int64_t out, int64_t rows) const {
    if (cpu_products && !cpu::prefers_aten(type)) {
      return cpu::matmul_bytes(rows, in, out, false, type, type != at::kFloat);
    }
    return cublas_lt ? LtMatmul::kWorkspaceBytes : 0;
  }
  int64_t data_gradient(LayerProduct product, int64_t in, int64_t out) const {
    return reads_fp8(product) && !cublas_lt ? 0 : data_gradient(in, out, tokens);
  }
  int64_t weight_gradient(int64_t in, int64_t out, int64_t rows) const {
    if (cpu_products) return cpu::matmul_bytes(out, in, rows, true, type, type != at::kFloat);
    return cublas_lt ? LtMatmul::kWorkspaceBytes : 0;
  }
  int64_t weight_gradient(LayerProduct product, int64_t in, int64_t out) const {
    return reads_fp8(product) && !cublas_lt ? 0 : weight_gradient(in, out, tokens);
  }
  // Bytes that the reference of a norm's backward uses in addition to its result, for rows of `bytes`: wide copies of
  // its input and of the gradient if the type is narrow, the normalized rows, and three steps of the result.
  int64_t norm_backward(int64_t bytes) const { return fused ? 0 : reference_norm_backward(bytes); }
  int64_t reference_norm_backward(int64_t bytes) const {
    const int64_t widened = bytes / element * wide;
    return element == wide ? 3 * widened : 5 * widened + bytes;
  }
  int64_t norm_forward(int64_t bytes) const { return fused ? 0 : reference_norm_forward(bytes); }
  int64_t reference_norm_forward(int64_t bytes) const { return 2 * (bytes / element * wide); }
  int64_t swiglu_backward() const { return fused ? 0 : 2 * inner; }
  // For [tokens, vocab] logits of `bytes`.
  int64_t cross_entropy(int64_t bytes) const {
    if (fused) return 0;
    return bytes / element * wide * (element == wide ? 1 : 2);
  }
};

void mlp_backward(Live& live, const Sizes& s, const ModelConfig& config, bool drops) {
  using enum LayerProduct;
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const int64_t of_output = s.gradient_forms(kDown, s.hidden);
  live.make(of_output);
  live.make(s.inner);  // d_activated
  live.borrow(s.data_gradient(kDown, inner, hidden));
  live.make(2 * s.inner);  // d_gate_up
  live.borrow(s.swiglu_backward());
  if (drops) s.make_input(live, kDown, s.inner);
  live.free(s.inner + 2 * s.inner);  // d_activated; gate_up
  live.borrow(s.weight_gradient(kDown, inner, hidden));
  live.free(s.input(kDown, s.inner));  // activated, kept or recomputed
  s.make_gradient(live, kGateUp, 2 * s.inner);
  live.make(s.hidden);
  live.borrow(s.data_gradient(kGateUp, hidden, 2 * inner));
  live.make(s.hidden);  // dh
  if (drops) live.make(s.hidden);
  live.borrow(s.norm_backward(s.hidden));
  live.free(2 * s.hidden);  // the gradient of h_normed; h
  if (drops) s.cast_input(live, kGateUp, s.hidden);
  live.borrow(s.weight_gradient(kGateUp, hidden, 2 * inner));
  live.free(s.input(kGateUp, s.hidden) + 2 * s.inner);  // h_normed; d_gate_up, whose two forms in FP8 are as large
  live.free(of_output);
}

void attention_backward(Live& live, const Sizes& s, const ModelConfig& config, int64_t kernel_bytes, bool drops,
                        bool qk_norm) {
  using enum LayerProduct;
  const int64_t hidden = config.hidden_size, query = config.query_size();
  const int64_t packed = query + 2 * config.key_value_size();
  const int64_t of_h = s.gradient_forms(kOutput, s.hidden);
  live.make(of_h);
  live.borrow((s.reads_fp8(kOutput) ? s.input(kOutput, s.query) : 0) + s.weight_gradient(kOutput, query, hidden));
  live.make(s.query);  // d_attended
  live.borrow(s.data_gradient(kOutput, query, hidden));
  live.free(of_h);
  const int64_t qk = qk_norm ? s.query + s.key : 0;
  if (drops) live.make(qk);
  live.make(s.packed());  // dq, dk, dv
  live.borrow(kernel_bytes);
  live.free(2 * s.query);  // d_attended; attention's output
  live.make(s.packed());   // dqkv
  if (!s.rotates_fused) {
    live.borrow(s.query);
    if (qk_norm) live.borrow(std::max(s.reference_norm_forward(s.query), s.reference_norm_backward(s.query)));
  }
  live.free(qk + 2 * s.packed());  // qkv and qk; dq, dk, dv
  s.make_gradient(live, kQkv, s.packed());
  live.make(s.hidden);
  live.borrow(s.data_gradient(kQkv, hidden, packed));
  live.make(s.hidden);  // dx
  if (drops) live.make(s.hidden);
  live.borrow(s.norm_backward(s.hidden));
  live.free(s.hidden);
  if (drops) s.cast_input(live, kQkv, s.hidden);
  live.borrow(s.weight_gradient(kQkv, hidden, packed));
}

}  // namespace

int64_t Decoder::activation_bytes(Recompute recompute, int64_t batch, int64_t length, at::Device device,
                                  at::ScalarType type) const {
  if (!options_.fp8) return layer_activation_bytes(recompute, batch, length, device, type, {});
  int64_t of_all = 0;
  for (const Fp8Products& products : fp8_) {
    of_all += layer_activation_bytes(recompute, batch, length, device, type, products);
  }
  const auto layers = static_cast<int64_t>(fp8_.size());
  return (of_all + layers - 1) / layers;
}

int64_t Decoder::layer_activation_bytes(Recompute recompute, int64_t batch, int64_t length, at::Device device,
                                        at::ScalarType type, const Fp8Products& products) const {
  const fp8::Scaling scaling = options_.fp8 ? options_.fp8->recipe.scaling : fp8::Scaling();
  int64_t sum = 0;
  for (const LayerActivation& activation : layer_activations()) {
    if (is_kept(activation, recompute)) {
      sum += bytes(activation, config_, layout_, batch * length, type, products, scaling);
    }
  }
  if (recompute == Recompute::kFull) return sum;
  if (products[static_cast<size_t>(LayerProduct::kOutput)] && scaling == fp8::Scaling::kTensorwise) {
    sum += static_cast<int64_t>(sizeof(float));
  }
  const AttentionKernel kernel = choose_attention_kernel(device, type, config_.head_dim);
  return sum + attention_saved_bytes(kernel, batch, config_.num_attention_heads, length);
}

int64_t Decoder::cast_weight_bytes(const Fp8Products& products, int64_t forms) const {
  const int64_t hidden = config_.hidden_size, query = config_.query_size(), inner = config_.intermediate_size;
  const std::array<int64_t, kLayerProducts.size()> numel{hidden * (query + 2 * config_.key_value_size()),
                                                         query * hidden, 2 * inner * hidden, inner * hidden};
  int64_t sum = 0;
  for (size_t i = 0; i < products.size(); ++i) sum += products[i] ? forms * numel[i] : 0;
  return sum;
}

int64_t Decoder::kept_cast_bytes(int64_t layers) const {
  int64_t sum = 0;
  for (size_t layer = 0; layer < std::min(fp8_.size(), static_cast<size_t>(layers)); ++layer) {
    sum += cast_weight_bytes(fp8_[layer], 2);
  }
  return sum;
}

int64_t Decoder::kept_casts_within(int64_t bytes) const {
  if (!options_.fp8 || options_.fp8->kept_casts != KeptCasts::kAsToldLater) return kept_casts_;
  auto layers = static_cast<int64_t>(fp8_.size());
  while (layers > 0 && kept_cast_bytes(layers) > bytes) --layers;
  return layers;
}

int64_t Decoder::layer_workspace_bytes(int64_t batch, int64_t length, at::Device device, at::ScalarType type,
                                       Recompute recompute, const Fp8Products& products) const {
  Sizes s(config_, batch, length, device, type);
  s.fp8 = products;
  const AttentionKernel kernel = choose_attention_kernel(device, type, config_.head_dim);
  const bool drops = recompute == Recompute::kSelective;
  Live layer;
  layer.make(2 * s.hidden);  // the last layer's output until the step ends; the gradient of this layer's output
  // Full recomputation runs forward and backward of a layer at once. Codes are one of the forms already.
  if (kept_casts_ < static_cast<int64_t>(fp8_.size())) {
    layer.make(cast_weight_bytes(products, recompute == Recompute::kFull && !expects_codes_ ? 2 : 1));
  }
  if (recompute == Recompute::kFull) {
    // Everything that the layer did not keep, and, until it is dropped, the output that its forward recomputes.
    layer.make(layer_activation_bytes(Recompute::kNone, batch, length, device, type, products) -
               layer_activation_bytes(Recompute::kFull, batch, length, device, type, products));
    layer.borrow(s.hidden);
  }
  mlp_backward(layer, s, config_, drops);
  attention_backward(layer, s, config_,
                     attention_backward_bytes(kernel, batch, config_.num_attention_heads, config_.num_key_value_heads,
                                              length, config_.head_dim, type),
                     drops, layout_.has(LayerRole::kQueryNorm));
  return layer.peak();
}

int64_t Decoder::workspace_bytes(int64_t batch, int64_t length, at::Device device, at::ScalarType type,
                                 Recompute recompute) const {
  const Sizes s(config_, batch, length, device, type);

  Live head;
  head.make(s.hidden);  // the last layer's output, which no layer keeps
  head.borrow(s.norm_forward(s.hidden));
  head.make(2 * s.hidden);  // normed and its gradient
  const int64_t chunk = tokens_per_chunk(s.tokens, device), logits = chunk * config_.vocab_size * s.element;
  head.make(logits);
  head.borrow(std::max({s.data_gradient(config_.hidden_size, config_.vocab_size, chunk),
                        s.weight_gradient(config_.hidden_size, config_.vocab_size, chunk), s.cross_entropy(logits)}));
  head.free(logits);
  head.make(s.hidden);
  head.borrow(s.norm_backward(s.hidden));

  // The layers differ in what reads FP8.
  int64_t layer = 0;
  for (const Fp8Products& products : std::set<Fp8Products>(fp8_.begin(), fp8_.end())) {
    layer = std::max(layer, layer_workspace_bytes(batch, length, device, type, recompute, products));
  }
  if (!options_.fp8) layer = layer_workspace_bytes(batch, length, device, type, recompute, {});
  return std::max(head.peak(), layer) + kept_cast_bytes(kept_casts_) + (device.is_cuda() ? kCublasBytes : 0);
}

}  // namespace mpzero::model
