#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/exporter/discovery.hpp"
#include "base/error.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

using namespace mpzero;
using io::testing::TemporaryFolder;

TEST_CASE("a run's file names its nodes as file_sd_configs wants, and is removed at its end") {
  const TemporaryFolder root;
  const auto file = root / "targets/7c.json";
  {
    const Discovery discovery(root / "targets", "7c", {"n0:9400", "n1:9400"}, {{"job_id", "42"}});
    std::ifstream text(file);
    const auto content = nlohmann::json::parse(text);
    CHECK(content == nlohmann::json::parse(R"([{"targets": ["n0:9400", "n1:9400"], "labels": {"job_id": "42"}}])"));
  }
  CHECK(std::filesystem::is_empty(root / "targets"));
}

TEST_CASE("a folder of targets that cannot be written is an error that names it") {
  const TemporaryFolder root;
  std::ofstream(root / "targets") << "a file";
  CHECK_THROWS_WITH(Discovery(root / "targets", "7c", {}, {}), Catch::Contains("targets"));
}
