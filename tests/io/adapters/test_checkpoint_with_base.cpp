#include "base/error.hpp"
#include "io/adapters/checkpoint_with_base.hpp"
#include "tests/catch.hpp"
#include "tests/io/adapters/adapted_checkpoint.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

std::vector<float> read(const ParameterSource& source, const ParameterSpec& parameter, int64_t begin, size_t count) {
  std::vector<float> values(count);
  source.read(parameter, begin, values);
  return values;
}

}  // namespace

TEST_CASE("base weights are read from the base folder, and adapters from the checkpoint") {
  const AdaptedCheckpoint saved;
  SingleProcess alone;
  const CheckpointWithBase whole(saved, "", alone);
  CHECK(read(whole, base_parameters()[1], 2, 3) == std::vector<float>{3, 4, 5});
  CHECK(read(whole, saved.parameters()[2], 1, 2) == std::vector<float>{10, 100});
  std::vector<float> unit(4);
  whole.read_unit({"x", {base_parameters()[0], saved.parameters()[2]}}, StateKind::kMaster, 3, unit);
  CHECK(unit == std::vector<float>{4, 1, 10, 100});
}

TEST_CASE("a base with different weights is refused with its folder and both hashes") {
  const AdaptedCheckpoint saved;
  SingleProcess alone;
  saved.write_base(2);
  CHECK_THROWS_WITH(CheckpointWithBase(saved, "", alone),
                    Contains(saved.base().string()) && Contains(saved.run().init_from_hash));
  fs::rename(saved.base(), saved.path("moved"));
  CHECK_THROWS_WITH(CheckpointWithBase(saved, "", alone), Contains(saved.base().string()) && Contains("--base_model"));
  saved.write_base(1);
  fs::remove_all(saved.path("moved"));
  fs::rename(saved.base(), saved.path("moved"));
  CHECK_NOTHROW(CheckpointWithBase(saved, saved.path("moved"), alone));
}

TEST_CASE("merged weights are W + s B A in any range, and their config.json has no adapters") {
  const AdaptedCheckpoint saved;
  SingleProcess alone;
  const MergedCheckpoint merged(saved, "", alone);
  CHECK(merged.parameters().size() == 2);
  const std::vector<float> all{1 + 2, 2 + 20, 3 + 200, 4 - 2, 5 - 20, 6 - 200};
  CHECK(read(merged, base_parameters()[1], 0, 6) == all);
  CHECK(read(merged, base_parameters()[1], 2, 3) == std::vector<float>(all.begin() + 2, all.begin() + 5));
  CHECK(read(merged, base_parameters()[0], 0, 4) == std::vector<float>{1, 2, 3, 4});
  CHECK(merged.progress().model_config_json.find("lora") == std::string::npos);
}

}  // namespace mpzero::io
