// The roofline: every kernel, matrix product and attention of a training step on one GPU, the bytes or operations a
// second it reaches, and the share of a ceiling measured in the same run; then layers, head and the whole step beside
// the sums of their parts, so that gaps show.
//
//   build/bin/bench_kernels CONFIG_DIR OUTPUT.json [WORD ...]
//
// CONFIG_DIR: configs/models. Only workloads whose name contains one of the words run.
#include <ATen/ops/addmm.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "bench/roofline.hpp"
#include "bench/whole_step.hpp"
#include "model/kernels/attention.hpp"
#include "model/kernels/cross_entropy.hpp"
#include "model/kernels/qk_rope.hpp"
#include "model/kernels/rms_norm.hpp"
#include "model/kernels/swiglu.hpp"
#include "model/rope_table.hpp"

namespace mpzero::bench {
namespace {

using model::Gradient;
using model::MatmulShape;
using Tensors = std::vector<at::Tensor>;

constexpr int kRepeats = 20;
constexpr double kBf16 = 2;  // bytes

struct Workload {
  std::string name, preset;
  int64_t micro_batch, length;
  bool with_optimizer;  // whether AdamW's states fit
};

const std::vector<Workload> kWorkloads{{"Qwen3-0.6B 8x2048", "qwen3_0_6b.json", 8, 2048, true},
                                       {"Qwen3-0.6B 1x2048", "qwen3_0_6b.json", 1, 2048, true},
                                       {"Llama-3-8B 1x8192", "llama_3_8b.json", 1, 8192, false}};

at::Tensor random(at::IntArrayRef shape) {
  return at::randn(shape, at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA));
}

// Rotating inputs: as many tensors of a shape as there are sets.
class Rotating {
 public:
  Rotating(int sets, at::IntArrayRef shape) {
    for (int i = 0; i < sets; ++i) tensors_.push_back(random(shape));
  }
  at::Tensor& operator[](int set) { return tensors_[static_cast<size_t>(set)]; }

 private:
  Tensors tensors_;
};

// The operations of a workload.
class Operations {
 public:
  Operations(const Workload& workload, const model::ModelConfig& config, Roofline& roofline)
      : config_(config),
        roofline_(roofline),
        batch_(workload.micro_batch),
        length_(workload.length),
        tokens_(batch_ * length_),
        hidden_(config.hidden_size),
        inner_(config.intermediate_size),
        heads_{config.num_attention_heads, config.num_key_value_heads},
        layers_(static_cast<double>(config.num_hidden_layers)) {}

  void forward_layer() {
    const std::string part = "layer forward";
    norm_forward(part, "input rms_norm", layers_);
    product_forward(part, "q, k, v", hidden_, qkv_size());
    rotation(part, false);
    attention(part, false);
    product_forward(part, "output (no residual)", config_.query_size(), hidden_);
    norm_forward(part, "post-attention rms_norm", layers_);
    product_forward(part, "gate, up", hidden_, 2 * inner_);
    swiglu(part, false);
    product_forward(part, "down (no residual)", inner_, hidden_);
  }

  void backward_layer() {
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
  }

  void head(int64_t chunk) {
    const std::string part = "head";
    const int64_t vocabulary = config_.vocab_size;
    const double chunks = std::ceil(static_cast<double>(tokens_) / static_cast<double>(chunk));
    norm_forward(part, "rms_norm", 1);
    const int sets = 2;
    Rotating x(sets, {chunk, hidden_}), weight(sets, {vocabulary, hidden_}), logits(sets, {chunk, vocabulary});
    roofline_.matmul(part, "logits", chunks, {chunk, vocabulary, hidden_, false, true}, sets,
                     [&](int set) { return Tensors{at::mm(x[set], weight[set].t())}; });
    const at::Tensor targets = at::randint(vocabulary, {chunk}, at::TensorOptions().dtype(at::kLong).device(at::kCUDA));
    roofline_.memory(part, "cross entropy", chunks, 2 * kBf16 * count(chunk, vocabulary), sets, [&](int set) {
      return Tensors{model::cross_entropy_forward_backward_(logits[set], targets, 1e-4)};
    });
    roofline_.matmul(part, "data gradient", chunks, {chunk, hidden_, vocabulary}, sets,
                     [&](int set) { return Tensors{at::mm(logits[set], weight[set])}; });
    Tensors gradients{random({vocabulary, hidden_}), random({vocabulary, hidden_})};
    roofline_.matmul(part, "weight gradient (accumulating)", chunks, {vocabulary, hidden_, chunk, true, false}, sets,
                     [&](int set) {
                       at::Tensor& out = gradients[static_cast<size_t>(set)];
                       at::addmm_out(out, out, logits[set].t(), x[set]);
                       return Tensors{};
                     });
    norm_backward(part, "rms_norm", 1, false);
  }

  void ends(WholeStep& step) {
    const at::Tensor& tokens = step.tokens();
    const double bytes = kBf16 * count(tokens_, hidden_);
    roofline_.memory("embedding", "forward", 1, 2 * bytes, 2,
                     [&](int) { return Tensors{step.decoder().embed_forward(step.weights(0), tokens)}; });
    Rotating dy(sets_for(bytes), {batch_, length_, hidden_});
    roofline_.memory("embedding", "backward (accumulating)", 1, 3 * bytes, sets_for(bytes), [&](int set) {
      // An earlier contribution: what is measured is the sort and the sums, not the clearing.
      std::vector<Gradient> gradients{Gradient(step.gradients(0)[0].view(), /*empty=*/false)};
      step.decoder().embed_backward(dy[set], tokens, gradients);
      return Tensors{};
    });
  }

 private:
  static double count(int64_t rows, int64_t columns) {
    return static_cast<double>(rows) * static_cast<double>(columns);
  }
  int64_t qkv_size() const { return config_.query_size() + 2 * config_.key_value_size(); }

  void product_forward(const std::string& part, const std::string& name, int64_t in, int64_t out) {
    const int sets = sets_for(kBf16 * count(tokens_, in + out));
    Rotating x(sets, {tokens_, in}), weight(sets, {out, in});
    roofline_.matmul(part, name, layers_, {tokens_, out, in, false, true}, sets,
                     [&](int set) { return Tensors{at::mm(x[set], weight[set].t())}; });
  }

  void product_backward(const std::string& part, const std::string& name, int64_t in, int64_t out) {
    const int sets = sets_for(kBf16 * count(tokens_, in + out));
    Rotating x(sets, {tokens_, in}), weight(sets, {out, in}), dy(sets, {tokens_, out});
    roofline_.matmul(part, name + ", weight gradient", layers_, {out, in, tokens_, true, false}, sets,
                     [&](int set) { return Tensors{at::mm(dy[set].t(), x[set])}; });
    roofline_.matmul(part, name + ", data gradient", layers_, {tokens_, in, out}, sets,
                     [&](int set) { return Tensors{at::mm(dy[set], weight[set])}; });
  }

  void norm_forward(const std::string& part, const std::string& name, double calls) {
    const double bytes = 2 * kBf16 * count(tokens_, hidden_);
    const int sets = sets_for(bytes);
    Rotating x(sets, {tokens_, hidden_});
    const at::Tensor weight = random({hidden_});
    roofline_.memory(part, name, calls, bytes, sets, [&](int set) {
      auto out = model::rms_norm_forward(x[set], weight, 1e-6);
      return Tensors{out.y, out.rstd};
    });
  }

  void norm_backward(const std::string& part, const std::string& name, double calls, bool residual) {
    const double bytes = (residual ? 4 : 3) * kBf16 * count(tokens_, hidden_);
    const int sets = sets_for(bytes);
    Rotating x(sets, {tokens_, hidden_}), dy(sets, {tokens_, hidden_}), other(sets, {tokens_, hidden_});
    const at::Tensor weight = random({hidden_}), rstd = model::rms_norm_forward(x[0], weight, 1e-6).rstd;
    at::Tensor gradient = random({hidden_});
    roofline_.memory(part, name, calls, bytes, sets, [&](int set) {
      const auto out = model::rms_norm_backward(dy[set], x[set], weight, rstd, residual ? other[set] : at::Tensor());
      Gradient(gradient).add_row_sum(out.dweight_rows);
      return Tensors{out.dx};
    });
  }

  void swiglu(const std::string& part, bool backward) {
    const double bytes = (backward ? 5 : 3) * kBf16 * count(tokens_, inner_);
    const int sets = sets_for(bytes);
    Rotating gate_up(sets, {tokens_, 2 * inner_}), dy(backward ? sets : 0, {tokens_, inner_});
    roofline_.memory(part, "swiglu", layers_, bytes, sets, [&](int set) {
      return Tensors{backward ? model::swiglu_backward(dy[set], gate_up[set]) : model::swiglu_forward(gate_up[set])};
    });
  }

  model::QkNormWeights qk_norm() const {
    if (config_.model_type != "qwen3") return {};
    return {random({config_.head_dim}), random({config_.head_dim}), 1e-6};
  }

  void rotation(const std::string& part, bool backward) {
    const auto rotated = static_cast<double>(heads_.query + heads_.key_value);
    const double head_bytes = kBf16 * count(tokens_, config_.head_dim);
    const model::QkNormWeights norm = qk_norm();
    // Backward reads the gradients and, behind a norm, its inputs; it writes the gradient of the packed projection.
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
    at::Tensor query_gradient = random({config_.head_dim}), key_gradient = random({config_.head_dim});
    roofline_.memory(part, name, layers_, bytes, sets, [&](int set) {
      const auto out = model::qk_rope_backward(dq[set], dk[set], dv[set], qkv[set], heads_, norm, rope);
      if (norm.defined()) {
        Gradient(query_gradient).add_row_sum(out.dquery_weight_rows);
        Gradient(key_gradient).add_row_sum(out.dkey_weight_rows);
      }
      return Tensors{out.dqkv};
    });
  }

  void attention(const std::string& part, bool backward) {
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

  const model::ModelConfig& config_;
  Roofline& roofline_;
  int64_t batch_, length_, tokens_, hidden_, inner_;
  model::HeadCounts heads_;
  double layers_;
};

// A layer, the head and the step as they run, beside the sums of their operations.
void measure_wholes(const Workload& workload, WholeStep& step, Roofline& roofline) {
  const model::Decoder& decoder = step.decoder();
  const model::ModelConfig& config = decoder.config();
  const auto layers = static_cast<double>(config.num_hidden_layers);
  const int sets = std::min<int>(4, static_cast<int>(config.num_hidden_layers));
  Rotating x(sets, {workload.micro_batch, workload.length, config.hidden_size});
  std::vector<model::LayerActivations> saved(static_cast<size_t>(sets));
  const auto layer_unit = [&](int set) { return decoder.layer_unit(set); };
  const Timing forward = measure(sets, kRepeats, [&](int set) {
    return Tensors{
        decoder.layer_forward(step.weights(layer_unit(set)), x[set], &saved[static_cast<size_t>(set)], false)};
  });
  roofline.whole("layers forward", layers, "layer forward", forward);
  const Timing backward = measure(sets, kRepeats, [&](int set) {
    model::LayerActivations again = saved[static_cast<size_t>(set)];
    std::vector<Gradient> gradients = step.gradients(layer_unit(set));
    return Tensors{decoder.layer_backward(step.weights(layer_unit(set)), x[set], again, gradients)};
  });
  roofline.whole("layers backward", layers, "layer backward", backward);
  saved.clear();
  const size_t head_unit = decoder.head_unit(), output_unit = decoder.tied_head() ? 0 : head_unit;
  const Timing head = measure(1, kRepeats, [&](int set) {
    std::vector<Gradient> gradients = step.gradients(head_unit), output = step.gradients(output_unit);
    const auto result = decoder.head_forward_backward(step.weights(head_unit), step.weights(output_unit).back(), x[set],
                                                      step.tokens(), 1.0, gradients, output.back());
    return Tensors{result.dx};
  });
  roofline.whole("head", 1, "head", head);
  const Timing all = measure(1, kRepeats, [&](int) {
    Tensors result{step.forward_backward()};
    if (workload.with_optimizer) {
      result.push_back(step.sum_of_squares());
      step.update();
    }
    return result;
  });
  const double flops =
      model::flops_per_token(config, workload.length) * static_cast<double>(workload.micro_batch * workload.length);
  roofline.whole("step", 1, "", all, flops);
  const double loss = step.forward_backward().item<double>();
  fmt::print("{}: {:.0f} tokens/s, loss {:.3f}\n", workload.name,
             static_cast<double>(workload.micro_batch * workload.length) / all.seconds, loss);
  // Products of NaN take less power and so less time: such a measurement says nothing.
  if (!std::isfinite(loss)) throw_failure("bench_kernels: the loss of {} is {}", workload.name, loss);
}

nlohmann::json run(const Workload& workload, const std::filesystem::path& configs, const Ceilings& ceilings) {
  const model::ModelConfig config = model::ModelConfig::from_file(configs / workload.preset);
  Roofline roofline(workload.name, ceilings);
  WholeStep step(config, workload.micro_batch, workload.length, workload.with_optimizer);
  Operations operations(workload, config, roofline);
  operations.forward_layer();
  operations.backward_layer();
  operations.head(step.decoder().tokens_per_chunk(workload.micro_batch * workload.length, at::kCUDA));
  operations.ends(step);
  if (workload.with_optimizer) {
    const auto parameters = static_cast<double>(model::num_parameters(config));
    roofline.memory("optimizer", "sum of squares", 1, 2 * parameters, 1,
                    [&](int) { return Tensors{step.sum_of_squares()}; });
    roofline.memory("optimizer", "AdamW", 1, 28 * parameters, 1, [&](int) {
      step.update();
      return Tensors{};
    });
  }
  fmt::print("\n");
  measure_wholes(workload, step, roofline);
  return roofline.to_json();
}

}  // namespace
}  // namespace mpzero::bench

int main(int argc, char** argv) {
  using namespace mpzero::bench;
  if (argc < 3 || c10::cuda::device_count() == 0) {
    fmt::print(stderr, "usage: bench_kernels CONFIG_DIR OUTPUT.json [WORD ...], on a machine with a GPU\n");
    return 2;
  }
  const std::vector<std::string> words(argv + 3, argv + argc);
  const Ceilings ceilings = measure_ceilings();
  fmt::print("copy {:.2f} TB/s; bf16 matrix product of 8192^3 {:.0f} TFLOPS\n", ceilings.bytes_per_second * 1e-12,
             ceilings.flops * 1e-12);
  nlohmann::json results{{"copy_bytes_per_second", ceilings.bytes_per_second}, {"matmul_flops", ceilings.flops}};
  for (const Workload& workload : kWorkloads) {
    const bool wanted = words.empty() || std::any_of(words.begin(), words.end(), [&](const std::string& word) {
                          return workload.name.find(word) != std::string::npos;
                        });
    if (wanted) results["workloads"].push_back(run(workload, argv[1], ceilings));
    std::ofstream(argv[2]) << results.dump(1) << "\n";
  }
  return 0;
}
