#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/exporter/discovery.hpp"
#include "base/error.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

using namespace mpzero;
using io::testing::TemporaryFolder;

namespace {

nlohmann::json content_of(const std::filesystem::path& file) {
  std::ifstream text(file);
  return nlohmann::json::parse(text);
}

}  // namespace

TEST_CASE("the target file lists nodes and run in file_sd_configs format, and is removed at the end") {
  const TemporaryFolder root;
  const auto file = root / "targets/7c.json";
  Discovery discovery(root / "targets", "7c", {"n0:9400", "n1:9400"}, {{"job_id", "42"}});
  CHECK(content_of(file) ==
        nlohmann::json::parse(
            R"([{"targets": ["n0:9400", "n1:9400"], "labels": {"discovered_run_id": "7c", "job_id": "42"}}])"));
  discovery.remove();
  CHECK(std::filesystem::is_empty(root / "targets"));
}

TEST_CASE("the target file of a killed or failed run remains, with the reason of the failure") {
  const TemporaryFolder root;
  const auto file = root / "targets/7c.json";
  { const Discovery killed(root / "targets", "7c", {"n0:9400"}, {}); }
  CHECK(content_of(file)[0]["targets"][0] == "n0:9400");
  Discovery discovery(root / "targets", "7c", {"n1:9400"}, {{"job_id", "42"}});
  discovery.failed("the loss is NaN at step 4");
  const nlohmann::json group = content_of(file)[0];
  CHECK(group["targets"] == nlohmann::json::parse(R"(["n1:9400"])"));
  CHECK(group["labels"] == nlohmann::json::parse(R"({"discovered_run_id": "7c", "job_id": "42", "end": "failed",
                                                     "reason": "the loss is NaN at step 4"})"));
  discovery.failed("\xff" + std::string(10'000, 'x'));
  CHECK(content_of(file)[0]["labels"]["reason"].get<std::string>().size() < 400);
}

TEST_CASE("a target folder that is not writable is reported by name") {
  const TemporaryFolder root;
  std::ofstream(root / "targets") << "a file";
  CHECK_THROWS_WITH(Discovery(root / "targets", "7c", {}, {}), Catch::Contains("targets"));
}
