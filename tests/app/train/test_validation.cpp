// Each number of ranks of this program is compared with one oracle: the same windows, one by one, in fp64.

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/train/validation.hpp"
#include "parallel/comm/forwarding_communicator.hpp"
#include "tests/app/exact_weights.hpp"
#include "tests/app/tiny_training.hpp"
#include "tests/catch.hpp"
#include "tests/model/flat_model.hpp"

namespace mpzero {
namespace {

constexpr int64_t kLength = 16, kVocabulary = 64;

std::vector<uint16_t> random_tokens(int64_t windows, uint64_t seed) {
  std::vector<uint16_t> tokens(static_cast<size_t>(windows * kLength + 1));
  for (uint16_t& token : tokens) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    token = static_cast<uint16_t>((seed >> 33) % kVocabulary);
  }
  return tokens;
}

// The mean loss of the first windows.
double exact_loss(const model::FlatModel& exact, const std::vector<uint16_t>& tokens, int64_t windows) {
  double sum = 0;
  for (int64_t w = 0; w < windows; ++w) {
    at::Tensor window = at::empty({1, kLength + 1}, at::kLong);
    for (int64_t i = 0; i <= kLength; ++i) window[0][i] = tokens[static_cast<size_t>(w * kLength + i)];
    sum += exact.loss(window).item<double>();
  }
  return sum / static_cast<double>(windows);
}

struct Fixture {
  Fixture() {
    on_rank_0([this] {
      io::testing::write_token_file(run.folder() / "wiki.h5", wiki, kVocabulary);
      io::testing::write_token_file(run.folder() / "code.h5", code, kVocabulary);
    });
  }

  RunSetup set_up(int64_t micro_batch, int64_t sequences) const {
    const std::string folder = run.folder().string();
    return run.set_up({"--deepspeed_config_yields", fmt::format("--train_micro_batch_size_per_gpu={}", micro_batch),
                       fmt::format("--validation_sequences={}", sequences),
                       fmt::format("--validation_data=wiki={0}/wiki.h5,code={0}/code.h5", folder)});
  }

  // Of a layout: these ranks, this micro-batch and stage.
  static std::optional<std::vector<ValidationLoss>> validate(RunSetup setup, int stage, bool stops = false) {
    setup.config.zero.stage = stage;
    const std::unique_ptr<parallel::Timeline> timeline = parallel::make_timeline(at::kCPU);
    const auto measured = [&] {
      return parallel::MeasuredCommunicator(std::make_unique<parallel::MpiCommunicator>(parallel::mpi()), *timeline);
    };
    parallel::MeasuredCommunicator of_parameters = measured(), of_gradients = measured();
    const model::Decoder decoder(setup.model);
    parallel::ZeroEngine engine(decoder.units(), zero_options(setup.config, at::kCPU), of_parameters, of_gradients);
    engine.initialize(ExactWeights(decoder), parallel::mpi());
    StepTimer timer(*timeline, of_parameters, of_gradients);
    TrainingPass pass(decoder, engine, timer, 1);
    const Validation validation(setup.config, {.micro_batch_size = setup.config.micro_batch_size,
                                               .data_parallel = setup.layout.data_parallel(parallel::mpi().rank()),
                                               .vocab_limit = kVocabulary,
                                               .first_window = std::nullopt});
    return validation.run(pass, engine, at::kCPU, [&] { return stops; });
  }

  TinyTraining run;
  std::vector<uint16_t> wiki = random_tokens(23, 1), code = random_tokens(5, 2);
};

}  // namespace

TEST_CASE("the loss of each set is that of its first windows, for any layout") {
  const Fixture fixture;
  const model::Decoder decoder(fixture.set_up(1, 1).model);
  const model::FlatModel exact = ExactWeights(decoder).in_fp64(decoder);
  for (const int64_t sequences : {1, 7, 0}) {
    const int64_t of_wiki = sequences == 0 ? 23 : sequences,
                  of_code = sequences == 0 ? 5 : std::min<int64_t>(sequences, 5);
    const double wiki = exact_loss(exact, fixture.wiki, of_wiki), code = exact_loss(exact, fixture.code, of_code);
    REQUIRE(std::abs(wiki - code) > 1e-2);
    for (const int64_t micro_batch : {1, 2, 3}) {
      const RunSetup setup = fixture.set_up(micro_batch, sequences);
      for (const int stage : {0, 1, 2, 3}) {
        INFO(sequences << " sequences, micro-batch " << micro_batch << ", stage " << stage);
        const auto losses = Fixture::validate(setup, stage);
        REQUIRE(losses);
        REQUIRE(losses->size() == 3);
        CHECK((losses->at(0).set == "wiki" && losses->at(1).set == "code" && losses->at(2).set.empty()));
        CHECK(losses->at(2).loss == (losses->at(0).loss + losses->at(1).loss) / 2);
        // Half of what layouts may differ by. fp32 rounds each token's loss to 3e-7.
        CHECK(std::abs(losses->at(0).loss - wiki) < 5e-7);
        CHECK(std::abs(losses->at(1).loss - code) < 5e-7);
      }
    }
  }
  // Other windows would be noticed.
  CHECK(std::abs(exact_loss(exact, fixture.wiki, 7) - exact_loss(exact, fixture.wiki, 8)) > 1e-3);
}

TEST_CASE("an interrupted validation reports no losses") {
  const Fixture fixture;
  CHECK_FALSE(Fixture::validate(fixture.set_up(1, 0), 2, /*stops=*/true));
}

TEST_CASE("a run's metrics contain the loss of each set") {
  const Fixture fixture;
  const std::string folder = fixture.run.folder().string();
  const auto last_metrics = [&] {
    std::ifstream file(fixture.run.metrics());
    std::string last;
    for (std::string line; std::getline(file, line);) last = line;
    return nlohmann::json::parse(last);
  };
  fixture.run.train({"--max_steps=2", "--validation_freq=1",
                     fmt::format("--validation_data=wiki={0}/wiki.h5,code={0}/code.h5", folder)});
  const nlohmann::json named = last_metrics();
  CHECK(named["validation_wiki_loss"].get<double>() > 1);
  CHECK(named["validation_code_loss"].get<double>() > 1);
  CHECK(named["validation_loss"].get<double>() ==
        Approx((named["validation_wiki_loss"].get<double>() + named["validation_code_loss"].get<double>()) / 2));
  // The same file without a name has the same loss.
  fixture.run.train(
      {"--max_steps=2", "--validation_freq=1", "--overwrite", "--validation_data=" + folder + "/wiki.h5"});
  CHECK(last_metrics()["validation_loss"] == named["validation_wiki_loss"]);
}

}  // namespace mpzero
