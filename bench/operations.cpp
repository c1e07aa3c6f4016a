#include "bench/operations.hpp"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "model/kernels/attention.hpp"
#include "model/kernels/column_sum.hpp"
#include "model/kernels/cross_entropy.hpp"
#include "model/kernels/rms_norm.hpp"
#include "model/kernels/swiglu.hpp"
#include "model/rope_table.hpp"

namespace mpzero::bench {
namespace {

using model::Gradient;

constexpr double kBf16 = 2;  // bytes

double count(int64_t rows, int64_t columns) { return static_cast<double>(rows) * static_cast<double>(columns); }

}  // namespace

at::Tensor random(at::IntArrayRef shape) {
  return at::randn(shape, at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA));
}

Operations::Operations(const model::ModelConfig& config, int64_t micro_batch, int64_t length, Roofline& roofline)
    : config_(config),
      roofline_(roofline),
      batch_(micro_batch),
      length_(length),
      tokens_(batch_ * length_),
      hidden_(config.hidden_size),
      inner_(config.intermediate_size),
      heads_{config.num_attention_heads, config.num_key_value_heads},
      layers_(static_cast<double>(config.num_hidden_layers)) {}

void Operations::forward_layer() {
  const std::string part = "layer forward";
  norm_forward(part, "input rms_norm", layers_);
  product_forward(part, has_bias() ? "q, k, v + bias" : "q, k, v", hidden_, qkv_size(),
                  has_bias() ? Extra::kBias : Extra::kNone);
  rotation(part, false);
  attention(part, false);
  product_forward(part, "output + residual", config_.query_size(), hidden_, Extra::kResidual);
  norm_forward(part, "post-attention rms_norm", layers_);
  product_forward(part, "gate, up", hidden_, 2 * inner_);
  swiglu(part, false);
  product_forward(part, "down + residual", inner_, hidden_, Extra::kResidual);
}

void Operations::backward_layer() {
  const std::string part = "layer backward";
  product_backward(part, "down", inner_, hidden_);
  swiglu(part, true);
  product_backward(part, "gate, up", hidden_, 2 * inner_);
  norm_backward(part, "post-attention rms_norm", layers_, true);
  product_backward(part, "output", config_.query_size(), hidden_);
  attention(part, true);
  rotation(part, true);
  product_backward(part, "q, k, v", hidden_, qkv_size());
  norm_backward(part, "input rms_norm", layers_, true);
  small_weights(part);
}

void Operations::head(int64_t chunk) {
  const std::string part = "head";
  const int64_t vocabulary = config_.vocab_size;
  const double chunks = std::ceil(static_cast<double>(tokens_) / static_cast<double>(chunk));
  norm_forward(part, "rms_norm", 1);
  const int sets = 2;
  Rotating x(sets, {chunk, hidden_}), weight(sets, {vocabulary, hidden_}), logits(sets, {chunk, vocabulary});
  roofline_.matmul(part, "logits", chunks, {chunk, vocabulary, hidden_, false, true}, false, sets,
                   [&](int set) { return Tensors{matmuls_.forward(x[set], weight[set])}; });
  const at::Tensor targets = at::randint(vocabulary, {chunk}, at::TensorOptions().dtype(at::kLong).device(at::kCUDA));
  roofline_.memory(part, "cross entropy", chunks, 2 * kBf16 * count(chunk, vocabulary), sets, [&](int set) {
    return Tensors{model::cross_entropy_forward_backward_(logits[set], targets, 1e-4)};
  });
  roofline_.matmul(part, "data gradient", chunks, {chunk, hidden_, vocabulary}, false, sets,
                   [&](int set) { return Tensors{matmuls_.data_gradient(logits[set], weight[set])}; });
  weight_gradient(part, "weight gradient (accumulating)", chunks, logits, x, at::kBFloat16, true);
  norm_backward(part, "rms_norm backward", 1, false);
}

void Operations::ends(FullStep& step) {
  const at::Tensor& tokens = step.tokens();
  const double bytes = kBf16 * count(tokens_, hidden_);
  roofline_.memory("embedding", "forward", 1, 2 * bytes, 2,
                   [&](int) { return Tensors{step.decoder().embed_forward(step.weights(0), tokens)}; });
  Rotating dy(sets_for(bytes), {batch_, length_, hidden_});
  roofline_.memory("embedding", "backward (accumulating)", 1, 3 * bytes, sets_for(bytes), [&](int set) {
    // An earlier contribution exists: the benchmark measures the sort and the sums, not zeroing.
    std::vector<Gradient> gradients{Gradient(step.gradients(0)[0].view(), /*empty=*/false)};
    step.decoder().embed_backward(dy[set], tokens, gradients);
    return Tensors{};
  });
}

void Operations::product_forward(const std::string& part, const std::string& name, int64_t in, int64_t out,
                                 Extra extra) {
  const int sets = sets_for(kBf16 * count(tokens_, in + out));
  Rotating x(sets, {tokens_, in}), weight(sets, {out, in});
  Rotating residual(extra == Extra::kResidual ? sets : 0, {tokens_, out});
  const at::Tensor bias = extra == Extra::kBias ? random({out}) : at::Tensor();
  roofline_.matmul(part, name, layers_, {tokens_, out, in, false, true}, extra == Extra::kResidual, sets, [&](int set) {
    switch (extra) {
      case Extra::kBias:
        return Tensors{matmuls_.forward_bias(x[set], weight[set], bias)};
      case Extra::kResidual:
        return Tensors{matmuls_.forward_add(x[set], weight[set], residual[set])};
      default:
        return Tensors{matmuls_.forward(x[set], weight[set])};
    }
  });
}

void Operations::product_backward(const std::string& part, const std::string& name, int64_t in, int64_t out) {
  const int sets = sets_for(kBf16 * count(tokens_, in + out));
  Rotating x(sets, {tokens_, in}), weight(sets, {out, in}), dy(sets, {tokens_, out});
  weight_gradient(part, name + ", weight gradient", layers_, dy, x, at::kBFloat16, false);
  roofline_.matmul(part, name + ", data gradient", layers_, {tokens_, in, out}, false, sets,
                   [&](int set) { return Tensors{matmuls_.data_gradient(dy[set], weight[set])}; });
}

void Operations::fp32_gradients(int64_t chunk) {
  const auto product = [&](const std::string& name, int64_t tokens, int64_t in, int64_t out) {
    const int sets = sets_for(kBf16 * count(tokens, in + out));
    Rotating x(sets, {tokens, in}), dy(sets, {tokens, out});
    weight_gradient("fp32 gradients", name, 0, dy, x, at::kFloat, false);
    weight_gradient("fp32 gradients", name + ", accumulating", 0, dy, x, at::kFloat, true);
  };
  product("down", tokens_, inner_, hidden_);
  product("gate, up", tokens_, hidden_, 2 * inner_);
  product("output", tokens_, config_.query_size(), hidden_);
  product("q, k, v", tokens_, hidden_, qkv_size());
  product("head", chunk, hidden_, config_.vocab_size);
}

void Operations::weight_gradient(const std::string& part, const std::string& name, double calls, Rotating& dy,
                                 Rotating& x, at::ScalarType type, bool accumulates) {
  const int sets = dy.sets();
  const int64_t rows = dy[0].size(1), columns = x[0].size(1);
  Tensors gradients;
  for (int set = 0; set < sets; ++set) gradients.push_back(at::zeros({rows, columns}, dy[0].options().dtype(type)));
  // A product that accumulates is tuned when a gradient is overwritten after its first use.
  for (const bool accumulate : {accumulates, false}) {
    matmuls_.weight_gradient_out(gradients[0], dy[0], x[0], accumulate);
  }
  const model::MatmulShape shape{.rows = rows,
                                 .columns = columns,
                                 .inner = dy[0].size(0),
                                 .a_transposed = true,
                                 .b_transposed = false,
                                 .out_type = type};
  roofline_.matmul(part, name, calls, shape, accumulates, sets, [&](int set) {
    matmuls_.weight_gradient_out(gradients[static_cast<size_t>(set)], dy[set], x[set], accumulates);
    return Tensors{};
  });
}

void Operations::norm_forward(const std::string& part, const std::string& name, double calls) {
  const double bytes = 2 * kBf16 * count(tokens_, hidden_);
  const int sets = sets_for(bytes);
  Rotating x(sets, {tokens_, hidden_});
  const at::Tensor weight = random({hidden_});
  roofline_.memory(part, name, calls, bytes, sets, [&](int set) {
    auto out = model::rms_norm_forward(x[set], weight, 1e-6);
    return Tensors{out.y, out.rstd};
  });
}

void Operations::norm_backward(const std::string& part, const std::string& name, double calls, bool residual) {
  const double bytes = (residual ? 4 : 3) * kBf16 * count(tokens_, hidden_);
  const int sets = sets_for(bytes);
  Rotating x(sets, {tokens_, hidden_}), dy(sets, {tokens_, hidden_}), other(sets, {tokens_, hidden_});
  const at::Tensor weight = random({hidden_}), rstd = model::rms_norm_forward(x[0], weight, 1e-6).rstd;
  roofline_.memory(part, name, calls, bytes, sets, [&](int set) {
    const auto out = model::rms_norm_backward(dy[set], x[set], weight, rstd, residual ? other[set] : at::Tensor());
    return Tensors{out.dx, out.dweight_rows};
  });
}

void Operations::swiglu(const std::string& part, bool backward) {
  const double bytes = (backward ? 5 : 3) * kBf16 * count(tokens_, inner_);
  const int sets = sets_for(bytes);
  Rotating gate_up(sets, {tokens_, 2 * inner_}), dy(backward ? sets : 0, {tokens_, inner_});
  roofline_.memory(part, "swiglu", layers_, bytes, sets, [&](int set) {
    return Tensors{backward ? model::swiglu_backward(dy[set], gate_up[set]) : model::swiglu_forward(gate_up[set])};
  });
}

void Operations::rotation(const std::string& part, bool backward) {
  const auto rotated = static_cast<double>(heads_.query + heads_.key_value);
  const double head_bytes = kBf16 * count(tokens_, config_.head_dim);
  model::QkNormWeights norm;
  if (has_qk_norm()) norm = {random({config_.head_dim}), random({config_.head_dim}), 1e-6};
  // Backward reads the gradients and, after a norm, its inputs; it writes the gradient of the packed projection.
  const double packed = rotated + static_cast<double>(heads_.key_value);
  const double bytes = head_bytes * (backward ? 2 * packed + (norm.defined() ? rotated : 0) : 2 * rotated);
  const int sets = sets_for(bytes);
  Rotating qkv(sets, {batch_, length_, heads_.query + 2 * heads_.key_value, config_.head_dim});
  model::RopeTable table(config_);
  const model::RopeTables rope = table.get(length_, qkv[0].options());
  const std::string name = norm.defined() ? "norm and rotation of q, k" : "rotation of q, k";
  if (!backward) {
    roofline_.memory(part, name, layers_, bytes, sets,
                     [&](int set) { return Tensors{model::qk_rope_forward(qkv[set], heads_, norm, rope)}; });
    return;
  }
  Rotating dq(sets, {batch_, length_, heads_.query, config_.head_dim});
  Rotating dk(sets, {batch_, length_, heads_.key_value, config_.head_dim});
  Rotating dv(sets, {batch_, length_, heads_.key_value, config_.head_dim});
  roofline_.memory(part, name, layers_, bytes, sets, [&](int set) {
    const auto out = model::qk_rope_backward(dq[set], dk[set], dv[set], qkv[set], heads_, norm, rope);
    return Tensors{out.dqkv, out.dquery_weight_rows, out.dkey_weight_rows};
  });
}

void Operations::small_weights(const std::string& part) {
  const at::Tensor dy = random({tokens_, qkv_size()});
  if (has_bias()) {
    roofline_.memory(part, "q, k, v, bias gradient", layers_, kBf16 * count(tokens_, qkv_size()), 1,
                     [&](int) { return Tensors{model::column_sum_rows(dy)}; });
  }
  const at::Tensor x = random({tokens_, hidden_}), weight = random({hidden_});
  const at::Tensor rows =
      model::rms_norm_backward(x, x, weight, model::rms_norm_forward(x, weight, 1e-6).rstd, {}).dweight_rows;
  std::vector<at::Tensor> all{rows, rows};
  if (has_bias()) all.push_back(model::column_sum_rows(dy));
  // Head norms: as many partial sums as there are blocks, and a narrow sum over them.
  if (has_qk_norm()) all.insert(all.end(), 2, rows.narrow(1, 0, config_.head_dim));
  double bytes = 0;
  std::vector<Gradient> gradients;
  for (const at::Tensor& parts : all) {
    bytes += static_cast<double>(parts.nbytes());
    gradients.emplace_back(random({parts.size(1)}));
  }
  roofline_.memory(part, "sums of norms' and biases' gradients", layers_, bytes, 1, [&](int) {
    model::RowSums sums;
    for (size_t i = 0; i < all.size(); ++i) sums.add(gradients[i], all[i]);
    sums.run();
    return Tensors{};
  });
}

void Operations::attention(const std::string& part, bool backward) {
  const double square = static_cast<double>(length_) * static_cast<double>(length_);
  const double flops = 2.0 * static_cast<double>(batch_ * config_.query_size()) * square * (backward ? 2.5 : 1.0);
  const int sets = sets_for(kBf16 * count(tokens_, qkv_size()));
  Rotating qkv(sets, {batch_, length_, heads_.query + 2 * heads_.key_value, config_.head_dim});
  Rotating dout(sets, {batch_, length_, heads_.query, config_.head_dim});
  const auto query = [&](int set) { return qkv[set].narrow(2, 0, heads_.query); };
  const auto key = [&](int set) { return qkv[set].narrow(2, heads_.query, heads_.key_value); };
  const auto value = [&](int set) { return qkv[set].narrow(2, heads_.query + heads_.key_value, heads_.key_value); };
  const model::AttentionKernel kernel = model::choose_attention_kernel(query(0));
  if (!backward) {
    roofline_.compute(part, "attention", layers_, flops, sets, [&](int set) {
      return Tensors{model::attention_forward(kernel, query(set), key(set), value(set)).out};
    });
    return;
  }
  std::vector<model::AttentionOutput> outputs;
  for (int set = 0; set < sets; ++set) {
    outputs.push_back(model::attention_forward(kernel, query(set), key(set), value(set)));
  }
  roofline_.compute(part, "attention", layers_, flops, sets, [&](int set) {
    const auto d = model::attention_backward(kernel, dout[set], query(set), key(set), value(set),
                                             outputs[static_cast<size_t>(set)]);
    return Tensors{d.dq, d.dk, d.dv};
  });
}

}  // namespace mpzero::bench
