#pragma once

#include <torch/optim/adamw.h>

#include <string>
#include <vector>

#include "parallel/optimizer/decay_ranges.hpp"
#include "tests/parallel/engine_checks.hpp"

namespace mpzero::parallel {

// Returns the toy model's flat parameters, by unit, after `run.steps` updates by torch.optim.AdamW in fp64 with two
// parameter groups, one of them without weight decay.
inline std::vector<at::Tensor> train_toy_with_torch(const ToyRun& run) {
  std::vector<at::Tensor> flat, decayed, not_decayed;
  std::vector<std::vector<at::Tensor>> views;
  for (const UnitSpec& unit : toy_units()) {
    flat.push_back(toy_weights(unit).to(at::kDouble));
    views.emplace_back();
    for (const at::Tensor& view : parameter_views(flat.back(), unit)) {
      views.back().push_back(view.clone());
      const bool decays = !matches_any(unit.parameters[views.back().size() - 1].name, run.no_decay);
      (decays ? decayed : not_decayed).push_back(views.back().back());
    }
  }
  const auto options = [](double weight_decay) {
    const AdamWOptions& toy = toy_adamw();
    auto adamw = std::make_unique<torch::optim::AdamWOptions>(kToyLr);
    adamw->betas({toy.beta1, toy.beta2}).eps(toy.eps).weight_decay(weight_decay);
    return adamw;
  };
  torch::optim::AdamW optimizer({torch::optim::OptimizerParamGroup(decayed, options(toy_adamw().weight_decay)),
                                 torch::optim::OptimizerParamGroup(not_decayed, options(0.0))},
                                torch::optim::AdamWOptions(kToyLr));
  for (int64_t step = 0; step < run.steps; ++step) {
    for (size_t u = 0; u < toy_units().size(); ++u) {
      at::Tensor sum = at::zeros({toy_units()[u].numel()}, at::kDouble);
      for (int64_t sample = 0; sample < run.samples; ++sample) sum += toy_gradient(toy_units()[u], step, sample);
      const std::vector<at::Tensor> gradients = parameter_views(sum, toy_units()[u]);
      for (size_t p = 0; p < gradients.size(); ++p) views[u][p].mutable_grad() = gradients[p].clone();
    }
    optimizer.step();
  }
  for (size_t u = 0; u < views.size(); ++u) {
    for (at::Tensor& view : views[u]) view = view.flatten();
    flat[u] = at::cat(views[u]);
  }
  return flat;
}

// Compares flat units that contain parameters with and without weight decay with torch.optim.AdamW, at every stage,
// with states on the device, on the host, and on both. The shards of 2 and 4 ranks begin and end within parameters.
inline void check_no_decay(at::Device device, Communicator& parameters, Communicator& gradients, ProcessGroup& group) {
  // The effect of decay must exceed the tolerance: three updates change weights of about 1 by kToyLr * 0.1 each.
  ToyRun base{.samples = 2 * group.world_size(), .clip = 0.0};
  base.no_decay = {"b", "e", "f"};
  const std::vector<at::Tensor> expected = train_toy_with_torch(base);
  const auto check = [&](const ToyRun& run) {
    INFO("stage " << run.stage << ", optimizer on host " << (run.optimizer == Placement::kHost) << ", ratio "
                  << run.host_ratio << ", threads " << run.host_threads << ", overlap " << run.overlap);
    ZeroEngine engine = make_toy_engine(run, device, parameters, gradients);
    engine.initialize(ToyWeights(), group);
    train_toy(engine, run, device, group.rank(), group.world_size());
    for (size_t u = 0; u < toy_units().size(); ++u) {
      const ZeroEngine::Shard mine = engine.shard(u);
      const std::span<const float> values = engine.read_state(u, StateKind::kMaster);
      const at::Tensor actual = at::from_blob(const_cast<float*>(values.data()), {mine.count}, at::kFloat);
      REQUIRE(at::allclose(actual.to(at::kDouble), expected[u].narrow(0, mine.begin, mine.count), 1e-5, 1e-6));
    }
  };
  for (const int stage : {0, 1, 2, 3}) {
    ToyRun run = base;
    run.stage = stage;
    check(run);
    run.optimizer = Placement::kHost;
    check(run);
    for (const bool overlap : {false, true}) {
      run.overlap = overlap;
      for (const double ratio : {1.0, 0.5}) {
        run.host_ratio = ratio;
        run.host_threads = 2;
        check(run);
      }
    }
  }
}

}  // namespace mpzero::parallel
