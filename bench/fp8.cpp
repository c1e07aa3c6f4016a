// Measures a layer's matmuls on one GPU in bf16 and in FP8 with tensorwise and rowwise scaling, and the throughput of
// the FP8 casts.
//
//   build/bin/bench_fp8 CONFIG_DIR OUTPUT.json [WORD ...]
//
// CONFIG_DIR: configs/models. Runs only workloads whose name contains one of the words.
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bench/roofline.hpp"
#include "model/architecture/config.hpp"
#include "model/fp8/cast.hpp"
#include "model/layer_casts.hpp"
#include "model/matmuls.hpp"

namespace mpzero::bench {
namespace {

using model::Operand;
using nlohmann::json;
namespace fp8 = model::fp8;

constexpr int kRepeats = 20, kSets = 2;

struct Workload {
  std::string name, preset;
  int64_t tokens;
};

const std::vector<Workload> kWorkloads{{"Qwen3-0.6B 16384", "qwen3_0_6b.json", 16384},
                                       {"Qwen2.5-0.5B 16384", "qwen2_5_0_5b.json", 16384},
                                       {"Llama-3-8B 8192", "llama_3_8b.json", 8192}};

struct Product {
  std::string name;
  int64_t in, out;
};

at::Tensor random(int64_t rows, int64_t columns) {
  return at::randn({rows, columns}, at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA));
}

// Creates a matmul's operands.
struct Precision {
  std::string name;
  std::optional<fp8::Recipe> recipe;

  Operand operand(const at::Tensor& x, bool is_gradient) const {
    if (!recipe) return x;
    const fp8::Format format = is_gradient ? recipe->gradients : fp8::Format::kE4m3;
    fp8::CastMatrix cast = fp8::cast(x, format, recipe->scaling, fp8::Forms::kBoth);
    return {cast.rows, cast.columns};
  }
};

const std::vector<Precision> kPrecisions{
    {"bf16", std::nullopt},
    {"tensorwise", fp8::Recipe{.fast_accumulation = fp8::FastAccumulation::kAll}},
    {"tensorwise, fast forward", fp8::Recipe{}},
    {"tensorwise, gradients e4m3",
     fp8::Recipe{.gradients = fp8::Format::kE4m3, .fast_accumulation = fp8::FastAccumulation::kAll}},
    {"rowwise", fp8::Recipe{.scaling = fp8::Scaling::kRowwise, .fast_accumulation = fp8::FastAccumulation::kAll}}};

// Returns the times of forward, data gradient and weight gradient (accumulated in fp32) in milliseconds.
json measure_product(const Product& product, int64_t tokens, const Precision& precision, double& total) {
  model::Matmuls matmuls(precision.recipe ? precision.recipe->fast_accumulation : fp8::FastAccumulation::kNone);
  std::vector<Operand> x, weight, dy;
  for (int set = 0; set < kSets; ++set) {
    x.push_back(precision.operand(random(tokens, product.in), false));
    weight.push_back(precision.operand(random(product.out, product.in), false));
    dy.push_back(precision.operand(random(tokens, product.out), true));
  }
  at::Tensor gradient = at::empty({product.out, product.in}, at::TensorOptions().device(at::kCUDA));
  matmuls.weight_gradient_out(gradient, dy[0], x[0]);
  matmuls.weight_gradient_out(gradient, dy[0], x[0], /*accumulate=*/true);
  matmuls.weight_gradient_out(gradient, dy[0], x[0]);  // tunes the accumulating matmul
  const auto at_set = [](const std::vector<Operand>& all, int set) -> const Operand& {
    return all[static_cast<size_t>(set)];
  };
  const double flops =
      2.0 * static_cast<double>(tokens) * static_cast<double>(product.in) * static_cast<double>(product.out);
  json row = {{"product", product.name}, {"precision", precision.name}};
  const auto report = [&](const char* pass, const Body& body) {
    const double seconds = time_of(kSets, kRepeats, body).seconds;
    total += seconds;
    row[pass] = {{"milliseconds", seconds * 1e3}, {"tflops", flops / seconds * 1e-12}};
    fmt::print("  {:14} {:28} {:16} {:8.3f} ms {:7.0f} TFLOP/s\n", product.name, precision.name, pass, seconds * 1e3,
               flops / seconds * 1e-12);
    std::fflush(stdout);
  };
  report("forward", [&](int set) { return std::vector{matmuls.forward(at_set(x, set), at_set(weight, set))}; });
  report("data gradient",
         [&](int set) { return std::vector{matmuls.data_gradient(at_set(dy, set), at_set(weight, set))}; });
  report("weight gradient", [&](int set) {
    matmuls.weight_gradient_out(gradient, at_set(dy, set), at_set(x, set), /*accumulate=*/true);
    return std::vector<at::Tensor>{};
  });
  for (const model::TunedMatmul& tuned : matmuls.tuned()) {
    if (tuned.shape.fp8 && tuned.algorithm == "ATen") fmt::print("    cuBLASLt has no FP8 kernel for this matmul\n");
  }
  return row;
}

void measure_casts(int64_t rows, int64_t columns, json& rows_out) {
  std::vector<at::Tensor> x;
  for (int set = 0; set < kSets; ++set) x.push_back(random(rows, columns));
  const auto report = [&](const std::string& name, double bytes, const Body& body) {
    const double seconds = time_of(kSets, kRepeats, body).seconds;
    fmt::print("  {:6} x {:6} {:34} {:8.1f} us {:7.0f} GB/s\n", rows, columns, name, seconds * 1e6,
               bytes / seconds * 1e-9);
    rows_out.push_back({{"rows", rows}, {"columns", columns}, {"name", name}, {"seconds", seconds}, {"bytes", bytes}});
  };
  const double numel = static_cast<double>(rows) * static_cast<double>(columns);
  const auto tensors = [](const fp8::CastMatrix& cast) { return std::vector{cast.rows.codes, cast.columns.codes}; };
  report("copy", 4 * numel, [&](int set) { return std::vector{x[static_cast<size_t>(set)].clone()}; });
  report("amax", 2 * numel, [&](int set) { return std::vector{fp8::maximum(x[static_cast<size_t>(set)])}; });
  for (const auto scaling : {fp8::Scaling::kTensorwise, fp8::Scaling::kRowwise}) {
    for (const auto& [forms, name, width] : {std::tuple{fp8::Forms::kRows, "rows", 1},
                                             {fp8::Forms::kColumns, "columns", 1},
                                             {fp8::Forms::kBoth, "both", 2}}) {
      report(fmt::format("amax and cast, {}, {}", fp8::name(scaling), name), (4 + width) * numel, [&](int set) {
        return tensors(fp8::cast(x[static_cast<size_t>(set)], fp8::Format::kE4m3, scaling, forms));
      });
    }
  }
  const at::Tensor known = fp8::maximum(x[0]);
  report("cast only, tensorwise, both", 4 * numel, [&](int set) {
    return tensors(fp8::cast(x[static_cast<size_t>(set)], fp8::Format::kE4m3, fp8::Scaling::kTensorwise,
                             fp8::Forms::kBoth, known));
  });
}

int run(const std::filesystem::path& configs, const std::filesystem::path& output,
        const std::vector<std::string>& words) {
  json results = json::array();
  for (const Workload& workload : kWorkloads) {
    const bool wanted = words.empty() || std::any_of(words.begin(), words.end(), [&](const std::string& word) {
                          return workload.name.find(word) != std::string::npos;
                        });
    if (!wanted) continue;
    const model::ModelConfig config = model::ModelConfig::from_file(configs / workload.preset);
    const int64_t hidden = config.hidden_size, inner = config.intermediate_size, query = config.query_size();
    const std::vector<Product> products{{"q, k, v", hidden, query + 2 * config.key_value_size()},
                                        {"output", query, hidden},
                                        {"gate, up", hidden, 2 * inner},
                                        {"down", inner, hidden}};
    fmt::print("{}\n", workload.name);
    json made = {{"workload", workload.name}, {"products", json::array()}, {"casts", json::array()}};
    for (const Precision& precision : kPrecisions) {
      double total = 0;
      for (const Product& product : products) {
        made["products"].push_back(measure_product(product, workload.tokens, precision, total));
      }
      fmt::print("  {:<14} {:28} {:16} {:8.3f} ms\n", "a layer", precision.name, "all", total * 1e3);
      made["milliseconds of a layer"][precision.name] = total * 1e3;
    }
    for (const int64_t columns : {hidden, inner, 2 * inner}) measure_casts(workload.tokens, columns, made["casts"]);
    results.push_back(made);
  }
  std::ofstream(output) << results.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace mpzero::bench

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: bench_fp8 CONFIG_DIR OUTPUT.json [WORD ...]\n");
    return 2;
  }
  try {
    return mpzero::bench::run(argv[1], argv[2], {argv + 3, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_fp8: {}\n", error.what());
    return 1;
  }
}
