#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "app/log/json_lines.hpp"
#include "app/log/run_totals.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

using namespace mpzero;
using namespace mpzero::io::testing;
using nlohmann::ordered_json;

namespace {

const std::string run = "00000000aaaaaaaa";

// What a start of the run writes.
class Start {
 public:
  Start(const std::filesystem::path& path, std::string id, const std::string& of = run)
      : path_(path), common_{{"run", of}, {"start", id}} {}

  void begin(double began, int gpus = 0) { write("start", {{"time", began}, {"began", began}, {"gpus", gpus}}); }
  void save(double time, int64_t steps) { write("checkpoint", progress(time, steps)); }
  void end(double time, int64_t steps) { write("end", progress(time, steps)); }

 private:
  static ordered_json progress(double time, int64_t steps) {
    return {{"time", time}, {"steps", steps}, {"tokens", steps * 100}, {"step_seconds", steps * 2.0}, {"stalls", 1}};
  }
  void write(const char* event, const ordered_json& fields) {
    ordered_json all = common_;
    all.update(fields);
    EventLog(path_, [](const std::string& warning) { FAIL(warning); }).write(event, all);
  }

  std::filesystem::path path_;
  ordered_json common_;
};

}  // namespace

TEST_CASE("a run's totals sum its attempts, including a killed one up to its last event") {
  const TemporaryFolder folder;
  const auto path = folder / "events.jsonl";
  Start first(path, "a");
  first.begin(1000, 8);
  first.save(1030, 10);
  first.end(1050, 20);
  Start second(path, "b");
  second.begin(2000, 4);
  second.save(2100, 30);
  const RunTotals totals = totals_of(path, run);
  CHECK((totals.starts == 2 && totals.elapsed_seconds == 150 && totals.steps == 50 && totals.tokens == 5000));
  CHECK((totals.step_seconds == 100 && totals.checkpoints == 2 && totals.stalls == 2));
  CHECK(totals.gpu_seconds == 50 * 8 + 100 * 4);
}

TEST_CASE("truncated lines and lines of other runs are ignored") {
  const TemporaryFolder folder;
  const auto path = folder / "events.jsonl";
  Start(path, "x", "00000000bbbbbbbb").end(1050, 20);
  std::ofstream(path, std::ios::app) << R"({"event":"start","time":99,"ru)";
  Start start(path, "a");
  start.begin(1000);
  std::ofstream(path, std::ios::app) << "[1]\n{\"run\": 7}\n\xff\n";
  start.end(1010, 4);
  const RunTotals totals = totals_of(path, run);
  CHECK(totals.starts == 1);
  CHECK(totals.steps == 4);
  CHECK(totals.elapsed_seconds == 10);
  CHECK(totals_of(folder / "none.jsonl", run).starts == 0);
}

TEST_CASE("if earlier attempts are in another folder, the totals report the step before the first attempt") {
  const TemporaryFolder folder;
  const auto path = folder / "events.jsonl";
  for (const auto& [start, steps_done] : {std::pair("b", 400), std::pair("c", 500)}) {
    std::ofstream(path, std::ios::app) << R"({"event":"start","time":1,"began":1,"run":")" << run << R"(","start":")"
                                       << start << R"(","steps_done":)" << steps_done << "}\n";
  }
  RunTotals totals = totals_of(path, run);
  CHECK(totals.after_step == 400);
  totals.steps = 200;
  CHECK(describe(totals, run).starts_with("Run 00000000aaaaaaaa: 200 steps after step 400, "));
  CHECK(to_json(totals)["after_step"] == 400);
}

TEST_CASE("values that no attempt writes are ignored") {
  const TemporaryFolder folder;
  const auto path = folder / "events.jsonl";
  const auto write = [&](const std::string& fields) {
    std::ofstream(path, std::ios::app) << R"({"run":")" << run << R"(","start":)" << fields << "}\n";
  };
  Start start(path, "a");
  start.begin(1000, 8);
  write(R"("z","event":5)");
  write(R"("z","event":["start"],"steps":"many","time":null)");
  write(R"(7,"event":"end","steps":9)");
  for (const char* number : {"1e300", "-1", "18446744073709551615", "9223372036854775807", "1.5"}) {
    const std::string value = number;
    write(R"("y)" + value + R"(","event":"end","steps":)" + value + R"(,"tokens":)" + value + R"(,"gpus":)" + value);
  }
  for (const char* time : {"-1e308", "1e308", "1e999"}) {
    const std::string value = time;
    write(R"("x)" + value + R"(","event":"start","began":)" + value);
    write(R"("x)" + value + R"(","event":"end","time":1500,"steps":0,"step_seconds":)" + value);
  }
  start.end(1010, 4);
  // Without a begin, whose line was cut, the time is that of its steps.
  Start(path, "b").end(2e9, 10);
  const RunTotals totals = totals_of(path, run);
  CHECK(totals.steps == 14);
  CHECK(totals.tokens == 1400);
  CHECK(totals.step_seconds == 28);
  CHECK(totals.elapsed_seconds == 10 + 20);
  CHECK(totals.gpu_seconds == 80);
}

TEST_CASE("the last line of a run reports its totals") {
  RunTotals totals;
  totals.starts = 2;
  totals.elapsed_seconds = 3 * 3600 + 120;
  totals.steps = 800;
  totals.step_seconds = 9072;
  totals.tokens = 1638400;
  totals.checkpoints = 1;
  totals.gpu_seconds = 8 * totals.elapsed_seconds;
  CHECK(describe(totals, run) ==
        "Run 00000000aaaaaaaa: 800 steps, 1,638,400 tokens in 3 h 2 min; 83% of the time in steps (181 tokens/s), 1 "
        "checkpoint, 1 restart, 24.27 GPU hours");
  CHECK(describe(RunTotals{}, run)
            .starts_with("Run 00000000aaaaaaaa: 0 steps, 0 tokens in 0.0 s; 0% of the time in steps (0 tokens/s)"));
}
