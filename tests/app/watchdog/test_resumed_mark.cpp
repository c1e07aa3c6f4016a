#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/watchdog/resumed_mark.hpp"
#include "tests/catch.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero {

TEST_CASE("Reports of an earlier run within the same start of a job are marked as resumed, others stay") {
  const io::testing::TemporaryFolder folder;
  const auto is_marked = [&](const std::string& text, const char* name = "failure.json") {
    std::ofstream(folder.path() / name) << text;
    mark_resumed(folder.path(), "17", 2);
    const auto json = nlohmann::json::parse(std::ifstream(folder.path() / name), nullptr, false);
    return json.is_object() && json.contains("resumed") && json["job"] == "17";
  };
  CHECK(is_marked(R"({"job": "17", "restart": 2, "hosts": []})"));
  CHECK(is_marked(R"({"job": "17", "restart": 2, "hosts": []})", "stop.json"));
  CHECK_FALSE(is_marked(R"({"job": "17", "restart": 1})"));
  CHECK_FALSE(is_marked(R"({"job": "16", "restart": 2})"));
  CHECK_FALSE(is_marked("damaged"));
  CHECK_FALSE(is_marked("[]"));
}

}  // namespace mpzero
