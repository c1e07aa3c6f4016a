#include <fstream>
#include <limits>
#include <optional>

#include "app/generate/stored_model.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/weights/weights_export.hpp"
#include "tests/app/error_from.hpp"
#include "tests/app/generate/stored_models.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

namespace mpzero {
namespace {

namespace fs = std::filesystem;
using io::testing::TemporaryFolder;
using testing::byte_model;
using testing::save_model;

struct Found {
  StoredModel model;
  std::vector<float> norm;       // the final norm's weight
  std::vector<float> embedding;  // its first elements
};

Found read(const ModelRequest& request) {
  std::optional<Found> found;
  read_model(
      request,
      [&](const StoredModel& model, const ParameterSource& source) {
        const std::vector<UnitSpec> units = model_units(model.config);
        found = Found{.model = model, .norm = std::vector<float>(4), .embedding = std::vector<float>(4)};
        source.read(units.back().parameters[0], 0, found->norm);
        source.read(units.front().parameters[0], 8, found->embedding);
      },
      [](const std::string&) {});
  return *found;
}

std::string error(const ModelRequest& request) {
  return error_from([&] { read(request); });
}

std::vector<float> random_embedding(uint64_t seed) {
  std::vector<float> values(4);
  model::RandomInitializer(seed, byte_model().initializer_range)
      .read(model_units(byte_model()).front().parameters[0], 8, values);
  return values;
}

}  // namespace

TEST_CASE("a model is found by its checkpoint, a folder of checkpoints, or a tag") {
  const TemporaryFolder folder;
  save_model(folder.path(), {.tag = "small-6steps", .trained = 2});
  save_model(folder.path(), {});
  const Found latest = read({.folder = folder.path()});
  CHECK(latest.model.name == "step 7 of " + (folder / "small-7steps").string());
  CHECK(latest.model.config == byte_model());
  CHECK(latest.model.tokenizer == "bytes");
  CHECK(latest.embedding == random_embedding(1));
  CHECK(read({.folder = folder / "small-6steps"}).embedding == random_embedding(2));
  CHECK(read({.folder = folder.path(), .tag = "small-6steps"}).embedding == random_embedding(2));
  for (const std::string& message :
       {error({.folder = folder / "other"}), error({.folder = folder.path(), .tag = "other"})}) {
    CHECK_THAT(message, Catch::Contains("'other'") && Catch::Contains(folder.path().string()));
  }
  const TemporaryFolder empty;
  CHECK_THAT(error({.folder = empty / "none"}), Catch::Contains((empty / "none").string() + " does not exist"));
  CHECK(error({.folder = empty.path()}).starts_with(empty.path().string() + " has neither a 'latest' file nor"));
  const fs::path run = empty.path() / "run";
  fs::create_directory(run);
  std::ofstream(run / "latest") << "global_step1";
  CHECK_THAT(error({.folder = empty.path()}), Catch::Contains(run.string()));
}

TEST_CASE("untrained weights are the initial weights of the run") {
  const TemporaryFolder folder;
  save_model(folder.path(), {});
  const Found first = read({.folder = folder.path(), .untrained = true});
  CHECK(first.model.name == "step 0 of the run of " + (folder / "small-7steps").string());
  CHECK(first.embedding == random_embedding(5));
  CHECK(first.norm == std::vector<float>{1, 1, 1, 1});
  const TemporaryFolder other;
  save_model(other.path(), {.init_from = "/weights"});
  CHECK(error({.folder = other.path(), .untrained = true}) ==
        "--untrained: the run of " + (other / "small-7steps").string() +
            " started from the weights in /weights; pass that folder instead.");
}

TEST_CASE("an export is a model whose tokenizer is found by its files") {
  const TemporaryFolder folder, output;
  save_model(folder.path(), {});
  const auto checkpoint = io::open_checkpoint(folder / "small-7steps");
  io::export_weights(*checkpoint, output.path(), {});
  const Found exported = read({.folder = output.path()});
  CHECK(exported.model.name == output.path());
  CHECK(exported.model.tokenizer.empty());
  CHECK(exported.embedding == random_embedding(1));
  std::ofstream(output / "tokenizer.json") << "{}";
  CHECK(read({.folder = output.path()}).model.tokenizer == output.path());
  CHECK(error({.folder = output.path(), .untrained = true}) ==
        "--untrained: " + output.path().string() + " is not an mpzero checkpoint and has no seed; omit the flag.");
  CHECK(error({.folder = output.path(), .tag = "x"}).starts_with("checkpoint 'x' does not exist in "));

  SECTION("without its config.json") {
    const fs::path config = folder / "config.json";
    fs::rename(output / "config.json", config);
    CHECK(error({.folder = output.path()}) ==
          output.path().string() + " contains weights but no config.json; add config.json, or pass --model_config.");
    CHECK(read({.folder = output.path(), .model_config = config}).embedding == random_embedding(1));
  }
  SECTION("with that of another model") {
    model::ModelConfig other = byte_model();
    other.hidden_size = 30;
    std::ofstream(output / "config.json") << other.to_json();
    CHECK_THAT(error({.folder = output.path()}),
               Catch::Contains("has shape [260, 28], but the model requires [260, 30]"));
  }
}

TEST_CASE("a folder without a model, or with a different model, is refused") {
  const TemporaryFolder folder;
  std::ofstream(folder / "model.h5") << "x";
  CHECK_THAT(error({.folder = folder.path()}), Catch::Contains(folder.path().string()) && Catch::Contains("model.h5"));
  const TemporaryFolder checkpoints;
  save_model(checkpoints.path(), {});
  model::ModelConfig other = byte_model();
  other.num_hidden_layers = 3;
  std::ofstream(folder / "config.json") << other.to_json();
  CHECK_THAT(error({.folder = checkpoints.path(), .model_config = folder / "config.json"}),
             Catch::Contains("is a checkpoint of a different model: it has no model.layers.2."));
  std::ofstream(folder / "config.json") << R"({"model_type": "gpt2"})";
  CHECK_THAT(error({.folder = checkpoints.path(), .model_config = folder / "config.json"}), Catch::Contains("gpt2"));
  CHECK_THAT(error({.folder = checkpoints.path(), .model_config = folder / "none.json"}), Catch::Contains("none.json"));
}

}  // namespace mpzero
