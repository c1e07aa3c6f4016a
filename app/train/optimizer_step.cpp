#include "app/train/optimizer_step.hpp"

#include <ATen/ops/zeros.h>

namespace mpzero {

OptimizerStepResult run_optimizer_step(parallel::ZeroEngine& engine, TrainingPass& pass, StepTimer& timer,
                                       const OptimizerStep& step) {
  timer.enter(Phase::kData);
  const at::Tensor loss_sum = at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(step.device));
  engine.begin_step(step.lr, step.update);
  for (int64_t a = 0; a < step.micro_batches; ++a) {
    timer.enter(Phase::kData);
    const TokensOfMicroBatch tokens = step.next();
    loss_sum.add_(pass.train(tokens.inputs, tokens.targets, /*last_of_step=*/a + 1 == step.micro_batches));
  }
  timer.enter(Phase::kOptimizer);
  // Before measure(): the figures that it copies from the GPU would wait for a snapshot that is still being copied to
  // the host.
  step.before_update();
  engine.measure(loss_sum, step.losses, step.figures());
  engine.update(step.lr, step.update);
  // While the GPU still updates.
  const parallel::StepSummary summary = engine.summary();
  timer.caught_up();
  timer.held_up_by_updates(engine.parameters().take_stalls());
  return {.summary = summary, .loss_sum = loss_sum};
}

}  // namespace mpzero
