// The roofline of a CPU: the rate of oneDNN's micro-kernel on blocks that stay in the cache and the bandwidth of memory
// are the ceilings; beside them the matrix products of a model's layers and head and its attention, as mpzero and as
// ATen run them, and how fast blocks are packed.
//
//   [OMP_NUM_THREADS=N] build/bin/bench_cpu_roofline configs/models/qwen3_0_6b.json [TOKENS]
//
// TOKENS: of a micro-batch, one sequence (512 if not given). Medians; each call's operands have left the cache.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "app/measure/stopwatch.hpp"
#include "base/error.hpp"
#include "model/architecture/config.hpp"
#include "model/kernels/attention.hpp"
#include "model/kernels/cpu/matmul.hpp"
#include "model/kernels/cpu/micro_kernel.hpp"
#include "model/kernels/cpu/pack.hpp"

namespace mpzero::bench {
namespace {

using measure::Body;

constexpr measure::Effort kEffort{.repeats = 20, .seconds = 0.4, .least = 3};

double seconds_of(int sets, const Body& body) { return measure::measure(at::kCPU, sets, kEffort, body).seconds; }

std::vector<at::Tensor> several(int sets, at::IntArrayRef sizes, at::ScalarType type) {
  std::vector<at::Tensor> made;
  for (int set = 0; set < sets; ++set) made.push_back(at::randn(sizes).to(type));
  return made;
}

// A block of sums [rows, columns] and the inner dimension that are multiplied at once.
struct Block {
  int64_t rows = 64, columns = 64, depth = 1024;
};

// Operations per second of the micro-kernel on all threads, each with one block.
template <typename T>
double micro_kernel_rate(const Block& block) {
  const auto& [rows, columns, depth] = block;
  const int64_t calls = (int64_t{1} << 33) / (rows * columns * depth);
  const at::ScalarType type = at::CppTypeToScalarType<T>::value;
  const int64_t threads = at::get_num_threads();
  const at::Tensor a = at::randn({threads, rows, depth}).to(type),
                   panel = at::randn({threads, depth, columns}).to(type);
  const at::Tensor sums = at::zeros({threads, rows, columns});
  const double seconds = seconds_of(1, [&](int) {
    at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
      const model::cpu::MicroKernel<T> kernel;
      for (int64_t i = begin; i < end; ++i) {
        const T* const from = a.const_data_ptr<T>() + i * rows * depth;
        const T* const to = panel.const_data_ptr<T>() + i * depth * columns;
        float* const out = sums.mutable_data_ptr<float>() + i * rows * columns;
        for (int64_t call = 0; call < calls; ++call) {
          kernel.multiply(rows, columns, depth, from, depth, to, columns, false, out, columns);
        }
      }
    });
    return std::vector<at::Tensor>{};
  });
  return 2.0 * static_cast<double>(threads * calls * rows * columns * depth) / seconds;
}

// Bytes read and written per second by copies of 512 MiB.
double copy_rate() {
  const at::Tensor from = at::zeros({int64_t{1} << 27}), to = at::zeros({int64_t{1} << 27});
  const double seconds = seconds_of(1, [&](int) {
    to.copy_(from);
    return std::vector<at::Tensor>{};
  });
  return 2.0 * static_cast<double>(from.nbytes()) / seconds;
}

// Bytes read per second by packing [rows, 1024] matrices into panels, as products with it (`transposed`) and with its
// transpose need it.
double pack_rate(bool transposed) {
  using c10::BFloat16;
  constexpr int64_t kColumns = 64, kDepth = 1024;
  const int64_t panels = 256 * at::get_num_threads();
  const at::Tensor source = at::zeros({panels * kColumns, kDepth}, at::kBFloat16);
  const double seconds = seconds_of(1, [&](int) {
    at::parallel_for(0, panels, 1, [&](int64_t begin, int64_t end) {
      const at::Tensor panel = at::empty({kColumns * kDepth}, at::kBFloat16);
      auto* const out = panel.mutable_data_ptr<BFloat16>();
      const auto* const in = source.const_data_ptr<BFloat16>();
      for (int64_t i = begin; i < end; ++i) {
        if (transposed) {
          model::cpu::pack_transposed(in + i * kColumns * kDepth, kDepth, kDepth, kColumns, kColumns, out);
        } else {
          const int64_t columns = kDepth / kColumns;  // panels side by side
          model::cpu::pack_rows(in + i / columns * kDepth * kDepth + i % columns * kColumns, kDepth, kDepth, kColumns,
                                kColumns, out);
        }
      }
    });
    return std::vector<at::Tensor>{};
  });
  return static_cast<double>(source.nbytes()) / seconds;
}

struct Product {
  std::string name;
  int64_t out, in;  // of the weight
};

// A product with the weight [out, in] of a layer: x [tokens, in], dy [tokens, out].
void measure_product(const Product& product, int64_t tokens, at::ScalarType type, double ceiling) {
  const auto& [name, out, in] = product;
  const double bytes =
      static_cast<double>((out * in + tokens * (out + in)) * static_cast<int64_t>(c10::elementSize(type)));
  const int sets = measure::sets_for(bytes);
  const std::vector<at::Tensor> weights = several(sets, {out, in}, type), x = several(sets, {tokens, in}, type),
                                dy = several(sets, {tokens, out}, type);
  struct Kind {
    const char* name;
    std::function<at::Tensor(int)> first, second;
    bool sums;  // added to an fp32 gradient
  };
  const std::vector<Kind> kinds{
      {"forward", [&](int i) { return x[i]; }, [&](int i) { return weights[i].t(); }, false},
      {"data gradient", [&](int i) { return dy[i]; }, [&](int i) { return weights[i]; }, false},
      {"weight gradient", [&](int i) { return dy[i].t(); }, [&](int i) { return x[i]; }, true},
  };
  const double flops = 2.0 * static_cast<double>(tokens * out * in);
  for (const Kind& kind : kinds) {
    const auto result = [&](int i) {
      const auto options = at::TensorOptions(kind.sums ? at::kFloat : type);
      return at::zeros({kind.first(i).size(0), kind.second(i).size(1)}, options);
    };
    std::vector<at::Tensor> results;
    for (int i = 0; i < sets; ++i) results.push_back(result(i));
    const double ours = seconds_of(sets, [&](int i) {
      model::cpu::matmul(kind.first(i), kind.second(i), kind.sums ? results[i] : at::Tensor(), results[i]);
      return std::vector<at::Tensor>{};
    });
    const double aten = seconds_of(sets, [&](int i) {
      if (kind.sums && type != at::kFloat) {
        results[i].add_(at::mm(kind.first(i), kind.second(i)));
      } else if (kind.sums) {
        results[i].addmm_(kind.first(i), kind.second(i));
      } else {
        at::mm_out(results[i], kind.first(i), kind.second(i));
      }
      return std::vector<at::Tensor>{};
    });
    fmt::print("| {} {} {} | {:.2f} | {:.0f} | {:.0f}% | {:.2f} | {:.0f} |\n", c10::toString(type), name, kind.name,
               ours * 1e3, flops / ours / 1e9, 100 * flops / ours / ceiling, aten * 1e3, flops / aten / 1e9);
    std::fflush(stdout);
  }
}

void measure_attention(const model::ModelConfig& config, int64_t tokens, at::ScalarType type, double ceiling) {
  const int64_t heads = config.num_attention_heads, pairs = config.num_key_value_heads, d = config.head_dim;
  const at::Tensor q = at::randn({1, tokens, heads, d}).to(type), k = at::randn({1, tokens, pairs, d}).to(type),
                   v = at::randn({1, tokens, pairs, d}).to(type), dout = at::randn({1, tokens, heads, d}).to(type);
  const model::AttentionKernel kernel = model::choose_attention_kernel(q);
  const auto kept = model::attention_forward(kernel, q, k, v);
  const double forward =
      seconds_of(1, [&](int) { return std::vector<at::Tensor>{model::attention_forward(kernel, q, k, v).out}; });
  const double backward = seconds_of(
      1, [&](int) { return std::vector<at::Tensor>{model::attention_backward(kernel, dout, q, k, v, kept).dq}; });
  // Causal: half of the two products of [T, D] and [D, T].
  const double flops = 2.0 * static_cast<double>(heads * tokens * tokens * d);
  for (const auto& [name, seconds, share] :
       {std::tuple{"forward", forward, 1.0}, std::tuple{"backward", backward, 2.5}}) {
    fmt::print("| {} attention {} | {:.2f} | {:.0f} | {:.0f}% | | |\n", c10::toString(type), name, seconds * 1e3,
               share * flops / seconds / 1e9, 100 * share * flops / seconds / ceiling);
  }
}

void measure_model(const std::string& preset, int64_t tokens) {
  const model::ModelConfig config = model::ModelConfig::from_file(preset);
  fmt::print("{} threads, {} tokens of {}\n", at::get_num_threads(), tokens, preset);
  fmt::print("memory: {:.1f} GB/s copied (read and written), {:.1f} GB/s packed by rows, {:.1f} transposed\n",
             copy_rate() / 1e9, pack_rate(false) / 1e9, pack_rate(true) / 1e9);
  const double bf16 = micro_kernel_rate<c10::BFloat16>({}), fp32 = micro_kernel_rate<float>({});
  fmt::print("micro-kernel in the cache, blocks of 64 x 64, depth 1024: {:.0f} GFLOP/s in bf16, {:.0f} in fp32\n",
             bf16 / 1e9, fp32 / 1e9);
  for (const Block& block : {Block{32, 32, 1024}, Block{32, 64, 1024}, Block{64, 64, 256}, Block{128, 64, 1024},
                             Block{256, 64, 512}, Block{512, 64, 1024}, Block{64, 128, 512}}) {
    fmt::print("  {} x {}, depth {}: {:.0f} in bf16\n", block.rows, block.columns, block.depth,
               micro_kernel_rate<c10::BFloat16>(block) / 1e9);
  }
  const int64_t queries = config.num_attention_heads * config.head_dim,
                values = config.num_key_value_heads * config.head_dim;
  const std::vector<Product> products{{"qkv", queries + 2 * values, config.hidden_size},
                                      {"output", config.hidden_size, queries},
                                      {"gate_up", 2 * config.intermediate_size, config.hidden_size},
                                      {"down", config.hidden_size, config.intermediate_size},
                                      {"head", config.vocab_size, config.hidden_size}};
  fmt::print("| product | ms | GFLOP/s | of the micro-kernel | ATen ms | GFLOP/s |\n|---|---|---|---|---|---|\n");
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    if (!model::cpu::has_matmul(type)) continue;
    const double ceiling = type == at::kFloat ? fp32 : bf16;
    for (const Product& product : products) measure_product(product, tokens, type, ceiling);
    measure_attention(config, tokens, type, ceiling);
  }
}

}  // namespace
}  // namespace mpzero::bench

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    fmt::print(stderr, "Usage: {} MODEL.json [TOKENS]\n", argv[0]);
    return 2;
  }
  try {
    mpzero::bench::measure_model(argv[1], argc > 2 ? std::strtoll(argv[2], nullptr, 10) : 512);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 1;
  }
  return 0;
}
