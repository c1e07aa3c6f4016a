// Roofline of a training step on one GPU. Measures the throughput of each kernel, matmul and attention, relative to a
// ceiling measured in the same run. Then compares the times of layers, LM head and full step with the sums of their
// operations.
//
//   build/bin/bench_kernels CONFIG_DIR OUTPUT.json [WORD ...]
//
// CONFIG_DIR: configs/models. Runs only workloads whose name contains one of the words. Writes Markdown tables to
// OUTPUT.md next to OUTPUT.json; bench/plot_roofline.py plots them.
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "app/simulation/unit_record.hpp"
#include "base/error.hpp"
#include "bench/full_step.hpp"
#include "bench/operations.hpp"
#include "bench/roofline.hpp"

namespace mpzero::bench {
namespace {

using model::Gradient;

constexpr int kRepeats = 20;

struct Workload {
  std::string name, preset;
  int64_t micro_batch, length;
  bool with_optimizer;  // AdamW states fit into memory
};

const std::vector<Workload> kWorkloads{{"Qwen3-0.6B 8x2048", "qwen3_0_6b.json", 8, 2048, true},
                                       {"Qwen3-0.6B 1x2048", "qwen3_0_6b.json", 1, 2048, true},
                                       {"Qwen2.5-0.5B 8x2048", "qwen2_5_0_5b.json", 8, 2048, true},
                                       {"Qwen2.5-0.5B 1x2048", "qwen2_5_0_5b.json", 1, 2048, true},
                                       {"Llama-3-8B 1x8192", "llama_3_8b.json", 1, 8192, false},
                                       {"Llama-3-8B 4x512", "llama_3_8b.json", 4, 512, false}};

// Measures the layers, the LM head and the full step, compared with the sums of their operations.
void measure_full_passes(const Workload& workload, FullStep& step, Roofline& roofline) {
  const model::Decoder& decoder = step.decoder();
  const model::ModelConfig& config = decoder.config();
  const auto layers = static_cast<double>(config.num_hidden_layers);
  const int sets = std::min<int>(4, static_cast<int>(config.num_hidden_layers));
  Rotating x(sets, {workload.micro_batch, workload.length, config.hidden_size});
  std::vector<model::LayerActivations> saved(static_cast<size_t>(sets));
  const auto layer_unit = [&](int set) { return decoder.layer_unit(set); };
  const Body forward = [&](int set) {
    return Tensors{decoder.layer_forward(step.weights(layer_unit(set)), x[set], &saved[static_cast<size_t>(set)])};
  };
  const Body backward = [&](int set) {
    model::LayerActivations again = saved[static_cast<size_t>(set)];
    std::vector<Gradient> gradients = step.gradients(layer_unit(set));
    return Tensors{decoder.layer_backward(step.weights(layer_unit(set)), x[set], again, gradients)};
  };
  roofline.full_pass("layers forward", layers, "layer forward", time_of(sets, kRepeats, forward));
  roofline.full_pass("layers backward", layers, "layer backward", time_of(sets, kRepeats, backward));
  const size_t head_unit = decoder.head_unit(), output_unit = decoder.tied_head() ? 0 : head_unit;
  const Timing head = time_of(1, kRepeats, [&](int set) {
    std::vector<Gradient> gradients = step.gradients(head_unit), output = step.gradients(output_unit);
    const auto result = decoder.head_forward_backward(step.weights(head_unit), step.weights(output_unit).back(), x[set],
                                                      step.tokens(), 1.0, gradients, output.back());
    return Tensors{result.dx};
  });
  roofline.full_pass("head", 1, "head", head);
  const Timing all = time_of(1, kRepeats, [&](int) {
    Tensors result{step.forward_backward()};
    if (workload.with_optimizer) {
      result.push_back(step.sum_of_squares());
      step.update();
    }
    return result;
  });
  const double flops =
      model::flops_per_token(config, workload.length) * static_cast<double>(workload.micro_batch * workload.length);
  roofline.full_pass("step", 1, "", all, flops);
  const double loss = step.forward_backward().item<double>();
  fmt::print("{}: {:.0f} tokens/s, loss {:.3f}\n", workload.name,
             static_cast<double>(workload.micro_batch * workload.length) / all.seconds, loss);
  // Matmuls of NaNs use less power and run faster, so their times are meaningless.
  if (!std::isfinite(loss)) throw_failure("bench_kernels: the loss of {} is {}", workload.name, loss);
}

nlohmann::json run(const Workload& workload, const std::filesystem::path& configs, const Ceilings& ceilings,
                   std::string& markdown) {
  const model::ModelConfig config = model::ModelConfig::from_file(configs / workload.preset);
  Roofline roofline(workload.name, ceilings);
  FullStep step(config, workload.micro_batch, workload.length, workload.with_optimizer);
  const auto layers = static_cast<double>(config.num_hidden_layers);
  std::vector<std::vector<measure::OperationTime>> times;  // per call
  const plan::UnitRecorder::RealDevice gpu{
      .device = at::kCUDA, .measure = [&](const std::function<void()>& unit) {
        unit();
        unit();  // the first run may accumulate, and the second tunes matmuls
        times.push_back(measure::operation_times(at::kCUDA, {.repeats = kRepeats, .least = kRepeats},
                                                 measure::kEvictedBytes, unit));
      }};
  {
    const plan::MicroBatchShape shape{.sequences = workload.micro_batch, .length = workload.length};
    plan::UnitRecorder recorder(config, shape, at::kCUDA, /*max_logits=*/0, gpu);
    recorder.layer(model::Recompute::kNone);
    recorder.head();
    recorder.embedding_forward();
    recorder.embedding_backward();
    const std::vector<std::pair<const char*, double>> parts{
        {"layer forward", layers}, {"layer backward", layers}, {"head", 1}, {"embedding", 1}, {"embedding", 1}};
    for (size_t i = 0; i < parts.size(); ++i) add_operations(parts[i].first, times[i], parts[i].second, roofline);
    times.clear();
    recorder.set_gradients(at::kFloat, /*accumulates=*/true);
    recorder.layer(model::Recompute::kNone);
    recorder.head();
    for (std::vector<measure::OperationTime>& call : times) {
      std::erase_if(call, [](const measure::OperationTime& one) {
        return !one.operation.matmul || one.operation.matmul->out_type != at::kFloat;
      });
      add_operations("fp32 gradients", call, 0, roofline);
    }
  }
  if (workload.with_optimizer) {
    const auto parameters = static_cast<double>(model::num_parameters(config));
    const Timing squares = time_of(1, kRepeats, [&](int) { return Tensors{step.sum_of_squares()}; });
    roofline.memory("optimizer", "sum of squares", 1, 2 * parameters, squares.seconds);
    const Timing adamw = time_of(1, kRepeats, [&](int) {
      step.update();
      return Tensors{};
    });
    roofline.memory("optimizer", "AdamW", 1, 28 * parameters, adamw.seconds);
  }
  fmt::print("\n");
  measure_full_passes(workload, step, roofline);
  roofline.tuned(step.decoder().matmuls().tuned());
  fmt::print("{}: matmul tuning in the full step took {:.0f} ms\n", workload.name,
             step.decoder().matmuls().tuning_seconds() * 1e3);
  markdown += roofline.to_markdown();
  return roofline.to_json();
}

}  // namespace
}  // namespace mpzero::bench

int main(int argc, char** argv) {
  using namespace mpzero::bench;
  if (argc < 3 || c10::cuda::device_count() == 0) {
    fmt::print(stderr, "usage: bench_kernels CONFIG_DIR OUTPUT.json [WORD ...] (requires a GPU)\n");
    return 2;
  }
  const std::vector<std::string> patterns(argv + 3, argv + argc);
  const Ceilings ceilings = measure_ceilings();
  fmt::print("copy {:.2f} TB/s; bf16 matmul of 8192^3 {:.0f} TFLOPS\n", ceilings.bytes_per_second * 1e-12,
             ceilings.flops * 1e-12);
  std::string markdown = fmt::format(
      "Ceilings measured in the same run: device copy {:.2f} TB/s, bf16 matmul of 8192^3 {:.0f} TFLOPS; for matmuls, "
      "the fastest cuBLASLt algorithm for the shape.\n",
      ceilings.bytes_per_second * 1e-12, ceilings.flops * 1e-12);
  nlohmann::json results{{"copy_bytes_per_second", ceilings.bytes_per_second}, {"matmul_flops", ceilings.flops}};
  for (const Workload& workload : kWorkloads) {
    const bool wanted =
        patterns.empty() || std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
          return workload.name.find(pattern) != std::string::npos;
        });
    if (!wanted) continue;
    results["workloads"].push_back(run(workload, argv[1], ceilings, markdown));
    std::ofstream(argv[2]) << results.dump(1) << "\n";
    std::ofstream(std::filesystem::path(argv[2]).replace_extension(".md")) << markdown;
  }
  return 0;
}
