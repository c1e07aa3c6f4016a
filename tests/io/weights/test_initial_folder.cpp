#include "io/weights/initial_weights.hpp"
#include "io/weights/safetensors.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;

TEST_CASE("a folder of checkpoints selects the target of its `latest`") {
  const TemporaryFolder folder;
  const std::vector<UnitSpec> model = small_model();
  CHECK_FALSE(find_initial_folder(folder.path()).is_checkpoint);
  CHECK_FALSE(has_initial_weights(folder.path()));
  save(folder.path(), "tiny-1steps", progress_at(1), model, 2, Split::kEven, 1);
  save(folder.path(), "tiny-3steps", progress_at(3), model, 2, Split::kEven, 2);
  const InitialFolder latest = find_initial_folder(folder.path());
  CHECK((latest.is_checkpoint && latest.is_latest && latest.folder == folder.path() / "tiny-3steps"));
  CHECK(latest.model_config_json == progress_at(3).model_config_json);
  const InitialFolder named = find_initial_folder(folder.path() / "tiny-1steps");
  CHECK((named.is_checkpoint && !named.is_latest && named.folder == folder.path() / "tiny-1steps"));
}

TEST_CASE("a checkpoint provides its master weights, and safetensors take precedence") {
  const TemporaryFolder folder;
  const std::vector<UnitSpec> model = small_model();
  save(folder.path(), "tiny-1steps", progress_at(1), model, 2, Split::kEven, 0);
  const fs::path checkpoint = folder.path() / "tiny-1steps";
  const auto weights = open_initial_weights(checkpoint);
  std::vector<float> values(static_cast<size_t>(model[0].parameters[0].numel()));
  weights->read(model[0].parameters[0], 0, values);
  CHECK(same_bits(values, 0, StateKind::kMaster, 0));
  CHECK(weights->file_of(model[0].parameters[0]) == checkpoint);
  ParameterSpec other = model[0].parameters[0];
  other.shape.push_back(2);
  CHECK_THROWS_WITH(weights->check(other), Contains(other.name) && Contains(checkpoint.string()));
  CHECK_THROWS_WITH(weights->check({"nothing", {1}}), Contains("nothing is missing from checkpoint"));

  write_safetensors(folder.path(), weights->parameters(), *weights, int64_t{1} << 30);
  CHECK_FALSE(find_initial_folder(folder.path()).is_checkpoint);
}

}  // namespace mpzero::io
