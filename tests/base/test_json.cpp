#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

namespace mpzero {
namespace {

constexpr JsonLimits kSmall{.bytes = 1000, .depth = 4};

std::string problem(const std::string& text, const JsonLimits& limits = kSmall) {
  try {
    parse_json(text, limits);
  } catch (const JsonError& error) {
    return error.what();
  }
  return "no error";
}

// The text repeated `count` times.
std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE("parses a JSON text") {
  CHECK(parse_json(R"({"a": [1, 2.5, "x", null, true]})", kSmall)["a"] ==
        nlohmann::json::array({1, 2.5, "x", nullptr, true}));
  CHECK(parse_json(" 7 ", kSmall) == 7);
}

TEST_CASE("a duplicate key in an object is refused with its path") {
  CHECK(problem(R"({"a": 1, "a": 1})") == "key a appears twice; remove one of the two");
  CHECK(problem(R"({"a": [{"b": 1}, {"c": {"d": 1, "d": 2}}]})") == "key a.c.d appears twice; remove one of the two");
  CHECK(problem(R"({"a": {"b": 1}, "c": {"b": 1}, "b": [{"b": 1}, {"b": 1}]})") == "no error");
  CHECK(problem(R"({"\u0061": 1, "a": 1})") == "key a appears twice; remove one of the two");
}

TEST_CASE("a key cannot break the error message that contains it") {
  CHECK(problem("{\"a\\nb\": 1, \"a\\nb\": 1}") == "key \"a\\nb\" appears twice; remove one of the two");
  CHECK(problem("{\"\": 1, \"\": 1}") == "key \"\" appears twice; remove one of the two");
  const std::string longest(300, 'k');
  CHECK(problem(fmt::format("{{\"{0}\": 1, \"{0}\": 1}}", longest)).size() < 150);
}

TEST_CASE("a text that is too long or nested too deeply is refused") {
  CHECK(problem("[[[[]]]]") == "no error");
  CHECK(problem(R"({"a": {"b": [{}]}})") == "no error");
  CHECK(problem("[[[[[]]]]]") == "JSON is nested deeper than 4 levels; reduce the nesting");
  CHECK(problem(R"({"a": {"b": [{"c": {}}]}})") == "JSON is nested deeper than 4 levels; reduce the nesting");
  CHECK(problem(fmt::format("[{:998}]", "")) == "no error");
  CHECK(problem(fmt::format("[{:999}]", "")).find("1000 bytes") != std::string::npos);
  // As deep as a stack: code that walks through the value, such as its destructor, would crash the process.
  constexpr int kDeep = 200'000;
  CHECK(problem(repeated("[", kDeep) + repeated("]", kDeep), kConfigurationLimits) ==
        "JSON is nested deeper than 64 levels; reduce the nesting");
  CHECK(problem(repeated("{\"a\":", kDeep) + "1" + repeated("}", kDeep), kConfigurationLimits) ==
        "JSON is nested deeper than 64 levels; reduce the nesting");
}

TEST_CASE("invalid JSON is reported with its position") {
  CHECK(problem("{\n  \"a\": 1,\n}").starts_with("line 3, column 1: not valid JSON"));
  CHECK(problem("{} # done") == "line 1, column 4: not valid JSON: comments are not allowed; remove the comment");
  CHECK(problem("").starts_with("no JSON"));
  CHECK(problem(std::string("\xFF\xFE{\0}\0", 6)) == "UTF-16 is not supported; save the file as UTF-8");
  CHECK(problem("1e400").find("number overflow parsing '1e400'") == 0);
  CHECK(problem("\"\xff\"").find("not valid JSON") != std::string::npos);
  try {
    parse_user_json("{\"a\" 1}", "x/config.json", kSmall);
    FAIL("was accepted");
  } catch (const UserError& error) {
    CHECK(std::string(error.what()).starts_with("x/config.json, line 1, column 6: not valid JSON"));
  }
}

TEST_CASE("at most one byte more than the limit is read from a file") {
  const io::testing::TemporaryFolder folder;
  const auto path = folder / "a.json";
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1000}}) {
    std::ofstream(path) << std::string(size, 'x');
    CHECK(read_json_text(path, kSmall) == std::string(size, 'x'));
  }
  std::ofstream(path) << std::string(100'000, 'x');
  CHECK(read_json_text(path, kSmall) == std::string(1001, 'x'));
  std::filesystem::remove(path);
  CHECK_FALSE(read_json_text(path, kSmall).has_value());
  CHECK_FALSE(read_json_text(path.parent_path(), kSmall).has_value());
}

TEST_CASE("a JSON file that is a FIFO or a device is refused at once") {
  const io::testing::TemporaryFolder folder;
  const auto fifo = folder / "a.fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(read_json_text(fifo, kSmall),
                    fifo.string() + " is a FIFO, a socket or a device; use a regular file");
  CHECK_THROWS_AS(read_json_text("/dev/zero", kSmall), UserError);
}

}  // namespace mpzero
