// Each number of ranks is compared with one oracle: the global batch at once on one rank, in fp64. That the oracle's
// loss is torch's is checked in tests/model/test_layer.cpp.

#include <ATen/ops/empty.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/train/step/optimizer_step.hpp"
#include "app/train/validation.hpp"
#include "base/error.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "parallel/comm/forwarding_communicator.hpp"
#include "tests/app/exact_weights.hpp"
#include "tests/app/tiny_training.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

constexpr int64_t kLength = 16, kVocabulary = 64;
constexpr int64_t kBatch = 12;  // sequences of a step: with 4 ranks 3 micro-batches of 1

struct MaskedText {
  explicit MaskedText(int64_t windows) {
    for (int64_t i = 0; i <= windows * kLength; ++i) {
      tokens.push_back(static_cast<uint16_t>(i * i * 7 % 61));
      // Each fourth sequence counts nothing, and the others have uneven weights.
      mask.push_back(i > 0 && (i - 1) / kLength % 4 == 0 ? 0.0F : static_cast<float>(i * i % 5) * 0.5F);
    }
  }

  void write(const std::filesystem::path& path) const {
    io::testing::write_masked_file(path, tokens, kVocabulary, mask);
  }

  at::Tensor windows(int64_t first, int64_t count) const {
    at::Tensor all = at::empty({count, kLength + 1}, at::kLong);
    for (int64_t w = 0; w < count; ++w) {
      for (int64_t i = 0; i <= kLength; ++i) all[w][i] = tokens[static_cast<size_t>((first + w) * kLength + i)];
    }
    return all;
  }
  at::Tensor mask_of(int64_t first, int64_t count) const {
    at::Tensor all = at::empty({count, kLength}, at::kFloat);
    for (int64_t w = 0; w < count; ++w) {
      for (int64_t i = 0; i < kLength; ++i) all[w][i] = mask[static_cast<size_t>((first + w) * kLength + i + 1)];
    }
    return all;
  }

  std::vector<uint16_t> tokens;
  std::vector<float> mask;
};

struct Exact {
  double loss = 0, grad_norm = 0;
};

Exact exact(model::FlatModel& model, const MaskedText& text, int64_t first, int64_t count) {
  const at::Tensor mask = text.mask_of(first, count);
  const double scale = static_cast<double>(mask.numel()) / mask.sum(at::kDouble).item<double>();
  model.reset_gradients();
  const at::Tensor loss =
      model.forward_backward(text.windows(first, count), scale, model::Recompute::kNone, mask).mul(scale);
  double squares = 0;
  for (const at::Tensor& gradient : model.flat_gradients) squares += gradient.square().sum().item<double>();
  return {.loss = loss.item<double>(), .grad_norm = std::sqrt(squares)};
}

std::vector<std::string> flags_of_batch() {
  return {"--deepspeed_config_yields", "--train_micro_batch_size_per_gpu=1",
          fmt::format("--gradient_accumulation_steps={}", kBatch / parallel::mpi().world_size())};
}

}  // namespace

TEST_CASE("the loss and gradient of a step equal those of one weighted batch, for any layout") {
  const TinyTraining run;
  const MaskedText text(2 * kBatch);
  on_rank_0([&] { text.write(run.folder() / "train.h5"); });
  RunSetup setup = run.set_up(flags_of_batch());
  const model::Decoder decoder(setup.model);
  model::FlatModel oracle = ExactWeights(decoder).in_fp64(decoder);
  for (const int stage : {0, 1, 2, 3}) {
    setup.config.zero.stage = stage;
    const std::unique_ptr<parallel::Timeline> timeline = parallel::make_timeline(at::kCPU);
    const auto measured = [&] {
      return parallel::MeasuredCommunicator(std::make_unique<parallel::MpiCommunicator>(parallel::mpi()), *timeline);
    };
    parallel::MeasuredCommunicator of_parameters = measured(), of_gradients = measured();
    parallel::ZeroEngine engine(decoder.units(), zero_options(setup.config, at::kCPU), of_parameters, of_gradients);
    engine.initialize(ExactWeights(decoder), parallel::mpi());
    StepTimer timer(*timeline, of_parameters, of_gradients);
    TrainingPass pass(decoder, engine, timer, setup.config.gradient_accumulation_steps);
    io::DataLoader data(io::TokenDataset(setup.config.train_data, kLength),
                        {.gradient_accumulation_steps = setup.config.gradient_accumulation_steps,
                         .data_parallel = setup.layout.data_parallel(parallel::mpi().rank()),
                         .shuffle = false,
                         .vocab_limit = kVocabulary,
                         .first_window = std::nullopt},
                        0);
    for (int64_t step = 0; step < 2; ++step) {
      const OptimizerStepResult result =
          run_optimizer_step(engine, pass, timer,
                             {.device = at::kCPU,
                              .lr = 0,  // the oracle's weights stay
                              .update = step + 1,
                              .micro_batches = setup.config.gradient_accumulation_steps,
                              .loss_weight = [&] { return loss_weight(data, step + 1, parallel::mpi()); },
                              .next = [&] { return batch_on(at::kCPU, data.next(), kLength); },
                              .before_update = [] {},
                              .figures = [] { return std::vector<double>(); }});
      timer.finish_step();
      const Exact expected = exact(oracle, text, step * kBatch, kBatch);
      INFO("stage " << stage << ", step " << step + 1);
      CHECK(result.summary.loss == Approx(expected.loss).epsilon(1e-6));
      CHECK(result.summary.grad_norm == Approx(expected.grad_norm).epsilon(1e-5));
    }
  }
}

TEST_CASE("a run with a loss mask reports weighted training and validation losses") {
  const TinyTraining run;
  const MaskedText text(kBatch), validation(7);
  on_rank_0([&] {
    text.write(run.folder() / "train.h5");
    validation.write(run.folder() / "validation.h5");
  });
  std::vector<std::string> flags = flags_of_batch();
  flags.insert(flags.end(), {"--max_steps=1", "--shuffle=false", "--learning_rate=1e-30",
                             fmt::format("--validation_data=v={}", (run.folder() / "validation.h5").string()),
                             "--validation_sequences=7"});
  run.train(flags);
  // The masters as they were before the step, whose rate changes nothing.
  const model::Decoder decoder(run.set_up(flags).model);
  model::FlatModel oracle(decoder, at::TensorOptions().dtype(at::kDouble), at::kDouble);
  const auto checkpoint = io::open_checkpoint(run.checkpoint(1));
  for (const ParameterSpec& parameter : checkpoint->parameters()) {
    const at::Tensor values = at::empty(parameter.shape, at::kFloat);
    checkpoint->read(parameter.name, StateKind::kMaster, 0,
                     {values.data_ptr<float>(), static_cast<size_t>(values.numel())});
    oracle.weight(parameter.name).copy_(values);
  }
  std::ifstream file(run.metrics());
  std::string line;
  REQUIRE(std::getline(file, line));
  const nlohmann::json metrics = nlohmann::json::parse(line);
  const Exact expected = exact(oracle, text, 0, kBatch);
  CHECK(metrics["loss"].get<double>() == Approx(expected.loss).epsilon(1e-5));
  CHECK(metrics["grad_norm"].get<double>() == Approx(expected.grad_norm).epsilon(1e-5));
  CHECK(metrics["validation_v_loss"].get<double>() == Approx(exact(oracle, validation, 0, 7).loss).epsilon(1e-5));
}

TEST_CASE("a step in which all tokens are masked is refused on all ranks") {
  const TinyTraining run;
  MaskedText text(kBatch);
  std::fill(text.mask.begin(), text.mask.end(), 0.0F);
  on_rank_0([&] { text.write(run.folder() / "train.h5"); });
  CHECK_THROWS_AS(run.train(flags_of_batch()), UserError);
}

}  // namespace mpzero
