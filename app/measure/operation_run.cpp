#include "app/measure/operation_run.hpp"

#include <ATen/ops/embedding.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include <memory>
#include <vector>

#include "base/error.hpp"
#include "model/fp8/cast.hpp"
#include "model/fp8/codes.hpp"
#include "model/gradient.hpp"
#include "model/kernels/attention.hpp"
#include "model/kernels/column_sum.hpp"
#include "model/kernels/cross_entropy.hpp"
#include "model/kernels/dropout.hpp"
#include "model/kernels/embedding.hpp"
#include "model/kernels/qk_rope.hpp"
#include "model/kernels/relative_attention.hpp"
#include "model/kernels/rms_norm.hpp"
#include "model/kernels/swiglu.hpp"

namespace mpzero::measure {
namespace {

using model::Operation;
using model::OperationKind;
using Tensors = std::vector<at::Tensor>;

// Returns normally distributed values. Large CPU tensors repeat values, because drawing all values would take longer
// than the measured operation.
at::Tensor random_tensor(at::IntArrayRef shape, const at::TensorOptions& options) {
  constexpr int64_t kDrawn = 1'000'003;
  const int64_t count = c10::multiply_integers(shape);
  if (options.device().is_cuda() || count <= kDrawn) return at::randn(shape, options);
  return at::randn({kDrawn}, options).repeat({(count + kDrawn - 1) / kDrawn}).narrow(0, 0, count).view(shape);
}

// Creates the operands of an operation and the function that runs the operation.
class Runs {
 public:
  Runs(const Operation& operation, at::Device device, int sets)
      : o_(operation), sets_(sets), options_(at::TensorOptions().device(device).dtype(operation.type)) {}

  Body matmul(model::Matmuls& matmuls) const {
    const model::MatmulShape& s = o_.matmul;
    if (s.fp8) return fp8_matmul(matmuls);
    if (s.a_transposed) return weight_gradient(matmuls);
    const Tensors a = random({s.rows, s.inner});
    const Tensors weight =
        random(s.b_transposed ? std::vector<int64_t>{s.columns, s.inner} : std::vector<int64_t>{s.inner, s.columns});
    if (!s.b_transposed) {
      return [&matmuls, a, weight](int set) { return Tensors{matmuls.data_gradient(pick(a, set), pick(weight, set))}; };
    }
    if (s.bias) {
      const at::Tensor bias = at::randn({s.columns}, options_);
      return [&matmuls, a, weight, bias](int set) {
        return Tensors{matmuls.forward_bias(pick(a, set), pick(weight, set), bias)};
      };
    }
    if (!o_.adds) {
      return [&matmuls, a, weight](int set) { return Tensors{matmuls.forward(pick(a, set), pick(weight, set))}; };
    }
    const Tensors residual = random({s.rows, s.columns});
    return [&matmuls, a, weight, residual](int set) {
      return Tensors{matmuls.forward_add(pick(a, set), pick(weight, set), pick(residual, set))};
    };
  }

  Body attention(bool backward) const {
    const Heads h = heads();
    if (!backward) {
      return [h](int set) { return Tensors{attend(h, set).out}; };
    }
    const Tensors dout = random({o_.attention.batch, o_.attention.length, h.query, o_.attention.head_dim});
    std::vector<model::AttentionOutput> outputs;
    for (int set = 0; set < sets_; ++set) outputs.push_back(attend(h, set));
    return [h, dout, outputs](int set) {
      const auto d = model::attention_backward(model::choose_attention_kernel(h.q(set)), pick(dout, set), h.q(set),
                                               h.k(set), h.v(set), outputs[static_cast<size_t>(set)]);
      return Tensors{d.dq, d.dk, d.dv};
    };
  }

  Body rotation(bool backward, bool with_norm) const {
    const Heads h = heads();
    const model::AttentionShape& s = o_.attention;
    const at::Tensor weight = at::randn({s.head_dim}, options_);
    const model::QkNormWeights norm =
        with_norm ? model::QkNormWeights{weight, weight, 1e-6} : model::QkNormWeights{{}, {}, 1e-6};
    const model::RopeTables rope{at::randn({s.length, s.head_dim / 2}, options_).cos(),
                                 at::randn({s.length, s.head_dim / 2}, options_).sin()};
    const model::HeadCounts counts{s.heads, s.key_value_heads};
    if (!backward) {
      return [h, norm, rope, counts](int set) {
        at::Tensor qkv = pick(h.packed, set);
        return Tensors{model::qk_rope_forward(qkv, counts, norm, rope)};
      };
    }
    const auto gradient = [&](int64_t own) { return random({s.batch, s.length, own, s.head_dim}); };
    const Tensors dq = gradient(s.heads), dk = gradient(s.key_value_heads), dv = gradient(s.key_value_heads);
    return [h, norm, rope, counts, dq, dk, dv](int set) {
      const auto out =
          model::qk_rope_backward(pick(dq, set), pick(dk, set), pick(dv, set), pick(h.packed, set), counts, norm, rope);
      return Tensors{out.dqkv, out.dquery_weight_rows, out.dkey_weight_rows};
    };
  }

  Body rms_norm(bool backward) const {
    const Tensors x = random({o_.rows, o_.columns});
    const at::Tensor weight = at::randn({o_.columns}, options_);
    if (!backward) {
      return [x, weight](int set) {
        const auto out = model::rms_norm_forward(pick(x, set), weight, 1e-6);
        return Tensors{out.y, out.rstd};
      };
    }
    const Tensors dy = random({o_.rows, o_.columns});
    const Tensors residual = o_.residual ? random({o_.rows, o_.columns}) : Tensors(static_cast<size_t>(sets_));
    const at::Tensor rstd = model::rms_norm_forward(x.front(), weight, 1e-6).rstd;
    return [x, weight, dy, residual, rstd, with_y = o_.with_y](int set) {
      const auto out = model::rms_norm_backward(pick(dy, set), pick(x, set), weight, rstd, pick(residual, set), with_y);
      return Tensors{out.dx, out.dweight_rows, out.y};
    };
  }

  Body swiglu() const {
    const Tensors gate_up = random({o_.rows, 2 * o_.columns});
    if (o_.kind == OperationKind::kSwigluForward) {
      return [gate_up](int set) { return Tensors{model::swiglu_forward(pick(gate_up, set))}; };
    }
    const Tensors dy = random({o_.rows, o_.columns});
    if (o_.kind == OperationKind::kSwigluBackward) {
      return [gate_up, dy](int set) { return Tensors{model::swiglu_backward(pick(dy, set), pick(gate_up, set))}; };
    }
    return [gate_up, dy](int set) {
      const auto out = model::swiglu_backward_recompute(pick(dy, set), pick(gate_up, set));
      return Tensors{out.d_gate_up, out.y};
    };
  }

  Body column_sum() const {
    const Tensors x = random({o_.rows, o_.columns});
    return [x](int set) { return Tensors{model::column_sum_rows(pick(x, set))}; };
  }

  Body row_sums() const {
    Tensors rows, outs;
    for (const int64_t width : o_.sums) {
      rows.push_back(at::randn({o_.partials, width}, options_.dtype(at::kFloat)));
      outs.push_back(at::zeros({width}, options_));
    }
    return [rows, outs](int) {
      model::RowSums sums;
      std::vector<model::Gradient> gradients(outs.begin(), outs.end());
      for (size_t i = 0; i < rows.size(); ++i) sums.add(gradients[i], rows[i]);
      sums.run();
      return Tensors{};
    };
  }

  Body cross_entropy() const {
    const Tensors logits = random({o_.rows, o_.columns});
    const at::Tensor targets = at::randint(o_.columns, {o_.rows}, options_.dtype(at::kLong));
    return [logits, targets](int set) {
      at::Tensor own = pick(logits, set);
      return Tensors{model::cross_entropy_forward_backward_(own, targets, 1e-4)};
    };
  }

  Body embedding() const {
    const at::Tensor tokens = at::randint(o_.vocabulary, {o_.rows}, options_.dtype(at::kLong));
    const at::Tensor weight = at::zeros({o_.vocabulary, o_.columns}, options_);
    if (o_.kind == OperationKind::kEmbeddingForward) {
      return [tokens, weight](int) { return Tensors{at::embedding(weight, tokens)}; };
    }
    const Tensors dy = random({o_.rows, o_.columns});
    return [tokens, weight, dy](int set) {
      model::embedding_backward(weight, tokens, pick(dy, set));
      return Tensors{};
    };
  }

  Body fp8_cast() const {
    const Tensors x = random({o_.rows, o_.columns});
    const auto scaling =
        o_.kind == OperationKind::kFp8CastRowwise ? model::fp8::Scaling::kRowwise : model::fp8::Scaling::kTensorwise;
    const at::Tensor maximum = o_.kind == OperationKind::kFp8Cast ? model::fp8::maximum(x.front()) : at::Tensor();
    return [x, scaling, maximum, forms = o_.forms](int set) {
      const auto made = model::fp8::cast(pick(x, set), model::fp8::Format::kE4m3, scaling, forms, maximum);
      Tensors codes;
      if (made.rows.defined()) codes.push_back(made.rows.codes);
      if (made.columns.defined()) codes.push_back(made.columns.codes);
      return codes;
    };
  }

  Body fp8_transpose() const {
    Tensors codes;
    for (const at::Tensor& x : random({o_.rows, o_.columns})) codes.push_back(x.to(at::kFloat8_e4m3fn));
    return [codes](int set) { return Tensors{model::fp8::transposed(pick(codes, set))}; };
  }

  Body relative_attention() const {
    const model::AttentionShape& s = o_.attention;
    const Tensors q = random({s.batch, s.length, s.heads, s.head_dim});
    const Tensors k = random({s.batch, o_.columns, s.heads, s.head_dim});
    // Dropout disables the fused kernel.
    const model::RelativeAttention call{.table = at::randn({32, s.heads}, options_),
                                        .dropout = {.rate = o_.fused ? 0 : 0.1, .sequences = s.batch}};
    if (o_.kind == OperationKind::kRelativeAttentionForward) {
      return [q, k, call](int set) {
        return Tensors{model::relative_attention_forward(pick(q, set), pick(k, set), pick(k, set), call).out};
      };
    }
    const model::AttentionOutput forward = model::relative_attention_forward(pick(q, 0), pick(k, 0), pick(k, 0), call);
    return [q, k, forward, call](int set) {
      const auto made =
          model::relative_attention_backward(pick(q, set), pick(q, set), pick(k, set), pick(k, set), forward, call);
      return Tensors{made.dq, made.dk, made.dv, made.dtable};
    };
  }

  Body in_place() const {
    const Tensors filled = random({o_.rows, o_.columns});
    return [filled, o = o_](int set) {
      const at::Tensor& x = pick(filled, set);
      if (o.kind == OperationKind::kZero) x.zero_();
      if (o.kind == OperationKind::kDropout) model::dropout_(x, {.rate = 0.1, .sequences = o.rows});
      // An in-place operator makes two passes: one read and one write.
      for (double left = o.passes; left > 0; left -= 2) x.mul_(1);
      return Tensors{};
    };
  }

 private:
  // Packed query, key and value projections, one per set.
  struct Heads {
    Tensors packed;
    int64_t query, key_value;
    at::Tensor q(int set) const { return pick(packed, set).narrow(2, 0, query); }
    at::Tensor k(int set) const { return pick(packed, set).narrow(2, query, key_value); }
    at::Tensor v(int set) const { return pick(packed, set).narrow(2, query + key_value, key_value); }
  };

  static const at::Tensor& pick(const Tensors& tensors, int set) { return tensors[static_cast<size_t>(set)]; }
  static model::AttentionOutput attend(const Heads& h, int set) {
    return model::attention_forward(model::choose_attention_kernel(h.q(set)), h.q(set), h.k(set), h.v(set));
  }

  Tensors random(at::IntArrayRef shape) const {
    Tensors made;
    for (int set = 0; set < sets_; ++set) made.push_back(random_tensor(shape, options_));
    return made;
  }
  Heads heads() const {
    const model::AttentionShape& s = o_.attention;
    return {random({s.batch, s.length, s.heads + 2 * s.key_value_heads, s.head_dim}), s.heads, s.key_value_heads};
  }
  // Returns FP8 matrices of shape [rows, inner], one per set.
  std::vector<model::fp8::Matrix> codes(int64_t rows, int64_t inner, at::ScalarType type) const {
    using namespace model::fp8;
    const Format format = type == at::kFloat8_e4m3fn ? Format::kE4m3 : Format::kE5m2;
    const Scaling scaling = o_.matmul.fp8->rowwise ? Scaling::kRowwise : Scaling::kTensorwise;
    std::vector<Matrix> made;
    for (int set = 0; set < sets_; ++set) {
      const at::Tensor x = random_tensor({rows, inner}, options_.dtype(at::kBFloat16));
      made.push_back(cast(x, format, scaling, Forms::kRows).rows);
    }
    return made;
  }
  // Computes a b^T of FP8 matrices, as in all passes.
  Body fp8_matmul(model::Matmuls& matmuls) const {
    const model::MatmulShape& s = o_.matmul;
    std::vector<model::Operand> a, b;
    // The weight gradient reads the transposed form of an operand, and its dtype may be wider.
    const bool as_gradient = s.out_type != at::kBFloat16;
    const auto operand = [&](const model::fp8::Matrix& codes) {
      return as_gradient ? model::Operand({}, codes) : model::Operand(codes, {});
    };
    for (const auto& matrix : codes(s.rows, s.inner, s.type)) a.push_back(operand(matrix));
    for (const auto& matrix : codes(s.columns, s.inner, s.fp8->b_type)) b.push_back(operand(matrix));
    const auto in = [](const std::vector<model::Operand>& all, int set) -> const model::Operand& {
      return all[static_cast<size_t>(set)];
    };
    const at::TensorOptions wide = options_.dtype(s.out_type);
    if (as_gradient) {
      Tensors gradients;
      for (int set = 0; set < sets_; ++set) gradients.push_back(at::zeros({s.rows, s.columns}, wide));
      for (const bool accumulate : {o_.adds, false}) {
        matmuls.weight_gradient_out(gradients.front(), a.front(), b.front(), accumulate);
      }
      return [&matmuls, a, b, in, gradients, adds = o_.adds](int set) {
        at::Tensor gradient = pick(gradients, set);
        matmuls.weight_gradient_out(gradient, in(a, set), in(b, set), adds);
        return Tensors{};
      };
    }
    if (s.bias) {
      return [&matmuls, a, b, in, bias = at::randn({s.columns}, wide)](int set) {
        return Tensors{matmuls.forward_bias(in(a, set), in(b, set), bias)};
      };
    }
    if (!o_.adds) {
      return [&matmuls, a, b, in](int set) { return Tensors{matmuls.forward(in(a, set), in(b, set))}; };
    }
    Tensors addends;
    for (int set = 0; set < sets_; ++set) addends.push_back(random_tensor({s.rows, s.columns}, wide));
    return [&matmuls, a, b, in, addends](int set) {
      return Tensors{matmuls.forward_add(in(a, set), in(b, set), pick(addends, set))};
    };
  }
  Body weight_gradient(model::Matmuls& matmuls) const {
    const model::MatmulShape& s = o_.matmul;
    const Tensors dy = random({s.inner, s.rows}), x = random({s.inner, s.columns});
    Tensors gradients;
    for (int set = 0; set < sets_; ++set) {
      gradients.push_back(at::zeros({s.rows, s.columns}, options_.dtype(s.out_type)));
    }
    // The accumulating matmul is tuned by an accumulating call followed by a call without accumulation.
    for (const bool accumulate : {o_.adds, false}) {
      matmuls.weight_gradient_out(gradients.front(), dy.front(), x.front(), accumulate);
    }
    return [&matmuls, dy, x, gradients, adds = o_.adds](int set) {
      at::Tensor gradient = pick(gradients, set);
      matmuls.weight_gradient_out(gradient, pick(dy, set), pick(x, set), adds);
      return Tensors{};
    };
  }

  const Operation o_;
  const int sets_;
  const at::TensorOptions options_;
};

}  // namespace

Body run_of(const Operation& operation, model::Matmuls& matmuls, at::Device device, int sets) {
  using enum OperationKind;
  const Runs runs(operation, device, sets);
  switch (operation.kind) {
    case kMatmul:
      return runs.matmul(matmuls);
    case kAttentionForward:
      return runs.attention(false);
    case kAttentionBackward:
      return runs.attention(true);
    case kRmsNormForward:
      return runs.rms_norm(false);
    case kRmsNormBackward:
      return runs.rms_norm(true);
    case kQkRopeForward:
      return runs.rotation(false, false);
    case kQkRopeBackward:
      return runs.rotation(true, false);
    case kQkNormRopeForward:
      return runs.rotation(false, true);
    case kQkNormRopeBackward:
      return runs.rotation(true, true);
    case kSwigluForward:
    case kSwigluBackward:
    case kSwigluBackwardRecompute:
      return runs.swiglu();
    case kColumnSum:
      return runs.column_sum();
    case kRowSums:
      return runs.row_sums();
    case kCrossEntropy:
      return runs.cross_entropy();
    case kEmbeddingForward:
    case kEmbeddingBackward:
      return runs.embedding();
    case kZero:
    case kDropout:
    case kElementwise:
      return runs.in_place();
    case kRelativeAttentionForward:
    case kRelativeAttentionBackward:
      return runs.relative_attention();
    case kFp8Cast:
    case kFp8CastMaximum:
    case kFp8CastRowwise:
      return runs.fp8_cast();
    case kFp8Transpose:
      return runs.fp8_transpose();
    case kCount:
      break;
  }
  throw_failure("run_of: unknown operation");
}

int sets_for(const Operation& operation) { return sets_for(operation.bytes()); }

}  // namespace mpzero::measure
