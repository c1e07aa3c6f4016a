#include "tests/app/simulation/compared_units.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "model/kernels/cublas_lt.hpp"

namespace mpzero::plan {
namespace {

std::map<std::string, UnitCall> all_units(UnitRecorder recorder, at::Device device) {
  std::map<std::string, UnitCall> calls;
  // A GPU tunes products when they first run, which takes memory.
  const int runs = device.is_cuda() ? 2 : 1;
  for (int i = 0; i < runs; ++i) {
    calls["embedding forward"] = recorder.embedding_forward();
    calls["embedding backward"] = recorder.embedding_backward();
    calls["head"] = recorder.head();
    for (const model::Recompute recompute : model::kRecomputes) {
      // Its layers do what those at kTiled do.
      if (recompute == model::Recompute::kHost) continue;
      UnitRecorder::Layer layer = recorder.layer(recompute);
      const std::string level(name(recompute));
      calls["layer forward, " + level] = layer.forward;
      calls["layer backward, " + level] = layer.backward;
      calls["casts, " + level] = {.operations = {}, .kept = layer.casts};
    }
  }
  return calls;
}

std::vector<std::string> described(const UnitCall& call, at::Device device) {
  std::vector<std::string> all;
  for (model::Operation operation : call.operations) {
    // GPU kernels choose the number of partial sums at launch.
    if (device.is_cuda() && operation.name == "row_sums") operation.bytes = 0;
    all.push_back(describe(operation));
  }
  return all;
}

}  // namespace

std::vector<std::string> differences(const model::ModelConfig& config, const MicroBatchShape& shape,
                                     const UnitRecorder::RealDevice& real, int64_t max_logits, double tolerance) {
  const auto expected = all_units(UnitRecorder(config, shape, real.device, max_logits, real), real.device);
  const auto simulated = all_units(UnitRecorder(config, shape, real.device, max_logits), real.device);
  int64_t largest = 0;
  for (const auto& [unit, call] : expected) largest = std::max(largest, call.peak);
  std::vector<std::string> found;
  for (const auto& [unit, ran] : expected) {
    const UnitCall& seen = simulated.at(unit);
    const std::vector<std::string> of_device = described(ran, real.device), of_plan = described(seen, real.device);
    if (of_device != of_plan) {
      found.push_back(fmt::format("{}:\nran\n  {}\nsimulated\n  {}\n", unit, fmt::join(of_device, "\n  "),
                                  fmt::join(of_plan, "\n  ")));
    }
    // ATen's matmuls use the workspace of the cuBLAS handle and allocate none.
    const int64_t unused = real.device.is_cuda() ? model::LtMatmul::kWorkspaceBytes : 0;
    const auto bound = static_cast<int64_t>(tolerance * static_cast<double>(largest));
    if (ran.peak > seen.peak + bound || ran.peak < seen.peak - bound - unused) {
      found.push_back(fmt::format("{}: peak {} bytes, simulated {}", unit, ran.peak, seen.peak));
    }
    if (std::abs(ran.kept - seen.kept) > bound) {
      found.push_back(fmt::format("{}: kept {} bytes, simulated {}", unit, ran.kept, seen.kept));
    }
  }
  return found;
}

}  // namespace mpzero::plan
