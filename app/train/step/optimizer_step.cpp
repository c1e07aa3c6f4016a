#include "app/train/step/optimizer_step.hpp"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "base/collectives.hpp"
#include "base/error.hpp"

namespace mpzero {

double loss_weight(const io::DataLoader& data, int64_t step, ProcessGroup& group) {
  const double mine = data.step_weight();
  const io::LoaderOptions& ranks = data.options();
  if (!data.has_loss_mask()) return mine * ranks.data_parallel.size * ranks.sequence_parallel.size;
  const double weight = sum(group, mine);
  if (weight > 0) return weight;
  throw UserError(fmt::format("{}: all tokens of step {} are masked; mask fewer tokens or raise train_batch_size",
                              data.paths(), step),
                  ErrorScope::kAllRanks);
}

OptimizerStepResult run_optimizer_step(parallel::ZeroEngine& engine, TrainingPass& pass, StepTimer& timer,
                                       const OptimizerStep& step) {
  timer.enter(Phase::kData);
  const at::Tensor loss_sum = at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(step.device));
  const double weight = step.loss_weight();
  engine.begin_step(step.lr, step.update);
  for (int64_t a = 0; a < step.micro_batches; ++a) {
    timer.enter(Phase::kData);
    const model::Batch batch = step.next();
    loss_sum.add_(pass.train(batch, 1.0 / weight, /*last_of_step=*/a + 1 == step.micro_batches));
  }
  timer.enter(Phase::kOptimizer);
  // Call before measure(): its device-to-host copy would otherwise wait for a snapshot in progress.
  step.before_update();
  engine.measure(loss_sum, weight, step.figures());
  engine.update(step.lr, step.update);
  // Overlaps with the update on the GPU.
  const parallel::StepSummary summary = engine.summary();
  timer.caught_up();
  timer.held_up_by_updates(engine.parameters().take_stalls());
  return {.summary = summary, .loss_sum = loss_sum};
}

}  // namespace mpzero
