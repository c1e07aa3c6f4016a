#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/log/metrics_log.hpp"
#include "base/error.hpp"
#include "tests/catch.hpp"
#include "tests/io/token_files.hpp"

using namespace mpzero;
using namespace mpzero::io::testing;

namespace {

const MetricsOwner owner{.run_id = "00000000aaaaaaaa"};

nlohmann::ordered_json step_of(int64_t step) { return {{"step", step}, {"loss", 5.0 / static_cast<double>(step)}}; }

std::vector<nlohmann::json> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

std::vector<int64_t> steps_of(const std::filesystem::path& path) {
  std::vector<int64_t> steps;
  for (const auto& line : lines_of(path)) steps.push_back(line["step"]);
  return steps;
}

// Returns the warnings, one per line.
std::string write_steps(const std::filesystem::path& path, int64_t steps_done, int64_t last,
                        const MetricsOwner& run = owner) {
  std::string warnings;
  MetricsLog log(path, steps_done, run, [&](const std::string& warning) { warnings += warning + "\n"; });
  for (int64_t step = steps_done + 1; step <= last; ++step) log.write(step_of(step));
  return warnings;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("each step is one JSON object, readable immediately, with null for non-finite values") {
  const TemporaryFolder folder;
  MetricsLog log(folder / "runs/a/metrics.jsonl", 0, owner, [](const std::string& text) { FAIL(text); });
  // The number must come back bit for bit.
  log.write({{"step", 1}, {"loss", 0.1 + 0.2}, {"grad_norm", std::numeric_limits<double>::infinity()}});
  const auto lines = lines_of(folder / "runs/a/metrics.jsonl");  // it has made the folders
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] ==
        nlohmann::json{{"step", 1}, {"loss", 0.1 + 0.2}, {"grad_norm", nullptr}, {"run", "00000000aaaaaaaa"}});
}

TEST_CASE("a resumed run drops the steps that it repeats and keeps earlier ones") {
  const TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  write_steps(path, 0, 10);
  write_steps(path, 6, 8);
  CHECK(steps_of(path) == std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8});
  write_steps(path, 8, 9);
  CHECK(steps_of(path) == std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9});
  write_steps(path, 0, 2);
  CHECK(steps_of(path) == std::vector<int64_t>{1, 2});
  CHECK(!std::filesystem::exists(folder / "metrics.jsonl.tmp"));
}

TEST_CASE("lines of another run are never removed") {
  const TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  CHECK(write_steps(path, 0, 5) == "");
  const std::string before = text_of(path);
  const MetricsOwner other{.run_id = "11111111bbbbbbbb"};
  CHECK_THAT(write_steps(path, 2, 4, other), Catch::Contains("metrics.old-1.jsonl"));
  CHECK(text_of(folder / "metrics.old-1.jsonl") == before);
  CHECK(steps_of(path) == std::vector<int64_t>{3, 4});
  CHECK(lines_of(path).front()["run"] == other.run_id);
  CHECK(write_steps(path, 3, 4, other) == "");
  CHECK(steps_of(path) == std::vector<int64_t>{3, 4});
  // From a file with lines of both, the run keeps its own.
  std::ofstream(path, std::ios::app) << before;
  const std::string both = text_of(path);
  CHECK_THAT(write_steps(path, 3, 3, other), Catch::Contains("metrics.old-2.jsonl"));
  CHECK(text_of(folder / "metrics.old-2.jsonl") == both);
  CHECK(text_of(folder / "metrics.old-1.jsonl") == before);
  CHECK(steps_of(path) == std::vector<int64_t>{3});
}

TEST_CASE("lines without an id belong to a run that resumed from a checkpoint without an id") {
  const TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  const MetricsOwner continued{.run_id = owner.run_id, .began_without_id = true};
  CHECK(write_steps(path, 0, 5, {}) == "");
  CHECK(!lines_of(path).front().contains("run"));
  CHECK(write_steps(path, 3, 6, continued) == "");
  CHECK(steps_of(path) == std::vector<int64_t>{1, 2, 3, 4, 5, 6});
  CHECK(lines_of(path)[3]["run"] == owner.run_id);
  // From now on the file names the run, even if the run goes back to steps that had no id.
  CHECK(write_steps(path, 5, 6) == "");
  CHECK(write_steps(path, 2, 3, continued) == "");
  CHECK(steps_of(path) == std::vector<int64_t>{1, 2, 3});
  // For a new run they are another run's.
  CHECK_THAT(write_steps(path, 0, 1, {.run_id = "11111111bbbbbbbb"}), Catch::Contains("metrics.old-1.jsonl"));
  CHECK(steps_of(folder / "metrics.old-1.jsonl") == std::vector<int64_t>{1, 2, 3});
  CHECK(write_steps(folder / "unnamed.jsonl", 0, 2, {}) == "");
  CHECK_THAT(write_steps(folder / "unnamed.jsonl", 0, 1), Catch::Contains("unnamed.old-1.jsonl"));
}

TEST_CASE("an incomplete line of a killed run is dropped") {
  const TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  write_steps(path, 0, 4);
  for (const std::string half : {"{\"step\":5,\"loss\":1.", "{\"step\":5,\"loss\":1.5}"}) {
    std::ofstream(path, std::ios::app) << half;
    write_steps(path, 4, 5);
    CHECK(steps_of(path) == std::vector<int64_t>{1, 2, 3, 4, 5});
    write_steps(path, 4, 4);
  }
}

TEST_CASE("a damaged file is renamed, and its readable lines are kept") {
  const std::string nuls("\0\0\0\0", 4);
  // A crash leaves NULs, a torn page in the middle or at the start, a line of another program, deep nesting.
  for (const std::string& damage : {nuls, nuls + "\n", std::string("{\"step\":3,\"lo\n"), std::string("Killed\n"),
                                    std::string("[[[[[[[[[[1]]]]]]]]]]\n"), std::string("\n")}) {
    for (const int64_t before : {0, 2}) {
      const TemporaryFolder folder;
      const auto path = folder / "metrics.jsonl";
      write_steps(path, 0, before);
      std::ofstream(path, std::ios::app) << damage;
      if (before == 0) {
        std::ofstream(path, std::ios::app) << R"({"step":1,"run":"00000000aaaaaaaa"})"
                                              "\n";
      }
      const std::string whole = text_of(path);
      const int64_t steps_done = before == 0 ? 1 : before;
      CHECK_THAT(write_steps(path, steps_done, steps_done + 1), Catch::Contains("metrics.damaged-1.jsonl"));
      CHECK(text_of(folder / "metrics.damaged-1.jsonl") == whole);
      // What follows NULs without an end of line is part of their line.
      if (before == 2) CHECK(steps_of(path) == std::vector<int64_t>{1, 2, 3});
      CHECK(write_steps(path, 2, 3) == "");
    }
  }
}

TEST_CASE("after a resume, a mark replaces each range of missing steps") {
  const TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  const auto lines_lost = [&] {
    std::vector<int64_t> lost;
    for (const auto& line : lines_of(path)) lost.push_back(line.contains("lines") ? line["lines"].get<int64_t>() : 0);
    return lost;
  };
  write_steps(path, 2, 4);
  const std::string mark = R"({"event":"gap","lines":3,"time":1.5})";
  std::ofstream(path, std::ios::app) << mark << "\n"
                                     << R"({"step":8,"run":"00000000aaaaaaaa"})"
                                     << "\n";
  // Before the steps that the next start repeats.
  CHECK(write_steps(path, 6, 7) == "");
  CHECK(lines_lost() == std::vector<int64_t>{0, 0, 2, 0});
  std::ofstream(path, std::ios::app) << mark << "\n"
                                     << R"({"step":11,"run":"00000000aaaaaaaa"})"
                                     << "\n";
  CHECK(write_steps(path, 13, 13) == "");
  CHECK(lines_lost() == std::vector<int64_t>{0, 0, 2, 0, 3, 0, 2});
  CHECK(lines_of(path)[4]["time"] == 1.5);
}

TEST_CASE("a file of another kind is refused at any start and left unchanged") {
  const TemporaryFolder folder;
  const auto path = folder / "notes.txt";
  for (const char* text : {"Do not lose this.\nNor this.\n", "Do not lose this", "{\"event\":\"start\"}\n"}) {
    std::ofstream(path) << text;
    CHECK(lacks(message_of<UserError>([&] { check_is_for_metrics(path); }), {"notes.txt", "--metrics_file"}) == "");
    CHECK(text_of(path) == text);
  }
  // Of a run that was killed at its first step, or whose machine crashed.
  for (const std::string& text : {std::string("{\"step\":1,\"lo"), std::string(100, '\0'), std::string()}) {
    std::ofstream(path) << text;
    CHECK_NOTHROW(check_is_for_metrics(path));
  }
}

TEST_CASE("before training, a path that is not writable is a user error") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "folder");
  CHECK(lacks(message_of<UserError>([&] { check_metrics_file(folder / "folder"); }), {"is a folder"}) == "");
  std::ofstream(folder / "file") << "";
  CHECK(lacks(message_of<UserError>([&] { check_metrics_file(folder / "file/metrics.jsonl"); }),
              {"file/metrics.jsonl", "Not a directory"}) == "");
  CHECK(lacks(message_of<UserError>([&] { check_metrics_file("/proc/metrics.jsonl"); }),
              {"/proc/metrics.jsonl", "No such file"}) == "");
}
