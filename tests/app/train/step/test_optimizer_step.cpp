// On the simulated device, whose clock says what came when: forward and backward of a micro-batch take 68 ms.

#include <ATen/ops/empty.h>

#include "app/plan/simulation/simulated_decoder.hpp"
#include "app/simulation/simulated_timeline.hpp"
#include "app/train/step/optimizer_step.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm/forwarding_communicator.hpp"
#include "tests/app/plan/simulation/small_run.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;

TEST_CASE("a step requests its micro-batches, calls before_update, then requests the figures") {
  const SimulatedRun run = small_run();
  SimulatedDevice device(run.costs);
  SimulatedTimeline timeline;
  parallel::MeasuredCommunicator of_parameters(std::make_unique<parallel::LocalCommunicator>(), timeline);
  parallel::MeasuredCommunicator of_gradients(std::make_unique<parallel::LocalCommunicator>(), timeline);
  StepTimer timer(timeline, of_parameters, of_gradients);
  const SimulatedDecoder decoder(run.model, run.times);
  parallel::ZeroOptions options;
  options.device = SimulatedDevice::device();
  options.gradient_accumulation_steps = 2;
  parallel::ZeroEngine engine(decoder.units(), options, of_parameters, of_gradients);
  size_t moves = 0;
  TrainingPass pass(decoder, engine, timer, 2, [&] { ++moves; });

  std::vector<std::pair<std::string, double>> calls;
  const auto call = [&](const char* what) { calls.emplace_back(what, device.clock(0)); };
  const at::Tensor tokens = at::empty({1, 8}, at::TensorOptions().dtype(at::kLong).device(SimulatedDevice::device()));
  const OptimizerStepResult result = run_optimizer_step(engine, pass, timer,
                                                        {.device = SimulatedDevice::device(),
                                                         .lr = 1e-3,
                                                         .update = 1,
                                                         .micro_batches = 2,
                                                         .loss_weight = [] { return 2.0; },
                                                         .next =
                                                             [&] {
                                                               call("next");
                                                               return model::Batch{tokens, tokens};
                                                             },
                                                         .before_update = [&] { call("before_update"); },
                                                         .figures =
                                                             [&] {
                                                               call("figures");
                                                               return std::vector<double>{1.0};
                                                             }});
  REQUIRE(calls.size() == 4);
  CHECK(calls[0] == std::pair<std::string, double>("next", 0.0));
  CHECK(calls[1].first == "next");
  CHECK(calls[1].second == Approx(0.068));
  CHECK(calls[2].first == "before_update");
  CHECK(calls[2].second == Approx(0.136));
  CHECK(calls[3].first == "figures");
  CHECK(result.summary.figures.size() == 1);
  CHECK(result.loss_sum.numel() == 1);
  CHECK(moves == 2 * 2 * decoder.graph().size());
  CHECK(timer.finish_step().backward == Approx(2 * 0.047));
}
