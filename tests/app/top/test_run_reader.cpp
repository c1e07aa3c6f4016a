#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "app/top/run_reader.hpp"
#include "base/error.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

using namespace mpzero;
using Catch::Contains;
using io::testing::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

void append(const fs::path& file, const std::string& text) { std::ofstream(file, std::ios::app) << text; }

using Lines = std::vector<std::string>;

constexpr const char* kStart =
    R"({"event":"start","run":"r1","model_type":"tiny","hosts":["a","a","b"],"max_steps":50,"began":1000,"metrics_port":9410})"
    "\n";

}  // namespace

TEST_CASE("lines are taken once they are complete") {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lines";
  LineFollower follower(file);
  CHECK(follower.take().empty());
  append(file, "one\ntw");
  CHECK(follower.take() == Lines{"one"});
  CHECK(follower.take().empty());
  append(file, "o\n\nthree\n");
  CHECK(follower.take() == Lines{"two", "", "three"});
}

TEST_CASE("of a long file the end is read, from the begin of a line") {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lines";
  append(file, "0123456789\nabc\ndef\n");
  CHECK(LineFollower(file, /*most_bytes=*/9).take() == Lines{"abc", "def"});
  CHECK(LineFollower(file, /*most_bytes=*/8).take() == Lines{"def"});
  CHECK(LineFollower(file, /*most_bytes=*/100).take() == Lines{"0123456789", "abc", "def"});
}

TEST_CASE("a file that was cut or replaced is read again") {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lines";
  append(file, "one\ntwo\nhal");
  LineFollower follower(file);
  CHECK(follower.take().size() == 2);
  fs::resize_file(file, 4);
  CHECK(follower.take() == Lines{"one"});
  append(folder.path() / "new", "three\nfour\n");
  fs::rename(folder.path() / "new", file);
  CHECK(follower.take() == Lines{"three", "four"});
}

TEST_CASE("of a long file that replaces another one the end is read, too") {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lines";
  append(file, "one\n");
  LineFollower follower(file, /*most_bytes=*/9);
  CHECK(follower.take() == Lines{"one"});
  append(folder.path() / "new", "0123456789\nabc\ndef\n");
  fs::rename(folder.path() / "new", file);
  CHECK(follower.take() == Lines{"abc", "def"});
}

TEST_CASE("a run that resumes, whose file is replaced, has each step's loss once") {
  const TemporaryFolder folder;
  append(folder.path() / "events.jsonl", kStart);
  const auto loss = [](int step, int value) {
    return R"({"step":)" + std::to_string(step) + R"(,"run":"r1","loss":)" + std::to_string(value) + "}\n";
  };
  const fs::path file = folder.path() / "metrics.jsonl";
  append(file, loss(1, 5) + loss(2, 4) + loss(3, 3));
  RunReader reader(folder.path());
  CHECK(reader.update().losses == std::vector<double>{5, 4, 3});
  append(folder.path() / "new", loss(1, 5) + loss(2, 4));
  fs::rename(folder.path() / "new", file);
  CHECK(reader.update().losses == std::vector<double>{5, 4});
  append(file, loss(3, 2));
  const RunView& run = reader.update();
  CHECK((run.losses == std::vector<double>{5, 4, 2} && run.step == 3));
}

TEST_CASE("what is no regular file has no lines, and does not block") {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lines";
  REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
  CHECK(LineFollower(file).take().empty());
  CHECK_THROWS_WITH(RunReader(file), Contains(file.string()));
}

TEST_CASE("a run is what its files say, start by start") {
  const TemporaryFolder folder;
  append(folder.path() / "events.jsonl", kStart);
  append(
      folder.path() / "metrics.jsonl",
      R"({"step":1,"loss":4.5,"lr":0.1,"grad_norm":2,"tokens_per_second":100,"step_seconds":0.5,"time":1001,"run":"r1",)"
      R"("forward_seconds":0.2,"rank_seconds":[0.1,0.2,0.3]})"
      "\n"
      R"({"step":2,"loss":4,"time":1002,"run":"r1","validation_loss":4.2,"mfu":0.4})"
      "\n");
  RunReader reader(folder.path());
  const RunView& run = reader.update();
  CHECK((run.model == "tiny" && run.run == "r1" && run.max_steps == 50 && run.metrics_port == 9410));
  CHECK(run.hosts == Lines{"a", "a", "b"});
  CHECK((run.step == 2 && run.loss == 4 && run.mfu == 0.4 && run.validation.at("") == 4.2 && run.validation_step == 2));
  CHECK(run.rank_seconds == std::vector<double>{0.1, 0.2, 0.3});
  CHECK(run.parts.at("forward") == 0.2);
  CHECK(run.losses == std::vector<double>{4.5, 4});
  append(folder.path() / "events.jsonl", R"({"event":"checkpoint","step":2,"time":1003,"seconds":1.5})"
                                         "\n"
                                         R"({"event":"warning","text":"slow"})"
                                         "\n"
                                         R"({"event":"end","status":"stopped","reason":""})"
                                         "\n");
  reader.update();
  CHECK(
      (run.checkpoint_step == 2 && run.checkpoint_seconds == 1.5 && run.warning == "slow" && run.status == "stopped"));
  append(folder.path() / "events.jsonl", kStart);
  reader.update();
  CHECK((run.starts == 2 && run.status.empty() && run.warning.empty() && run.checkpoint_step == 2 && run.step == 2));
}

TEST_CASE("each validation set has its newest loss") {
  const TemporaryFolder folder;
  append(folder.path() / "events.jsonl", kStart);
  append(folder.path() / "metrics.jsonl",
         R"({"step":1,"loss":4,"time":1002,"run":"r1","validation_loss":4.5})"
         "\n"
         R"({"step":2,"loss":4,"time":1002,"run":"r1","validation_wiki_loss":4.2,"validation_code_loss":3.1})"
         "\n"
         R"({"step":3,"loss":4,"time":1002,"run":"r1"})"
         "\n");
  RunReader reader(folder.path());
  const RunView& run = reader.update();
  CHECK(run.validation == std::map<std::string, double>{{"wiki", 4.2}, {"code", 3.1}});
  CHECK(run.validation_step == 2);
}

TEST_CASE("another run in the folder replaces the one before, and steps of others do not count") {
  const TemporaryFolder folder;
  append(folder.path() / "events.jsonl", kStart);
  append(folder.path() / "metrics.jsonl", R"({"step":7,"loss":1,"run":"r1"})"
                                          "\n");
  RunReader reader(folder.path());
  CHECK(reader.update().step == 7);
  append(folder.path() / "events.jsonl", R"({"event":"start","run":"r2","model_type":"tiny","hosts":[]})"
                                         "\n");
  append(folder.path() / "metrics.jsonl", R"({"step":9,"loss":1,"run":"r1"})"
                                          "\n");
  const RunView& run = reader.update();
  CHECK((run.run == "r2" && run.step == 0 && run.starts == 1));
}

TEST_CASE("events of other runs, and the end of an earlier start, are not the run's") {
  const TemporaryFolder folder;
  const auto event = [&](const std::string& fields) {
    append(folder.path() / "events.jsonl", R"({"event":)" + fields + "}\n");
  };
  event(R"("start","run":"r1","start":"a","hosts":[])");
  event(R"("start","run":"r1","start":"b","hosts":[])");
  event(R"("checkpoint","run":"r2","start":"x","step":9)");
  event(R"("warning","run":"r2","start":"x","text":"slow")");
  event(R"("end","run":"r2","start":"x","status":"finished")");
  event(R"("end","run":"r1","start":"a","status":"failed")");
  RunReader reader(folder.path());
  const RunView& run = reader.update();
  CHECK((run.starts == 2 && run.checkpoint_step == 0 && run.warning.empty() && run.status.empty()));
  event(R"("end","run":"r1","start":"b","status":"stopped")");
  CHECK(reader.update().status == "stopped");
}

TEST_CASE("however many events follow the start, it is read") {
  const TemporaryFolder folder;
  append(folder.path() / "events.jsonl", kStart);
  const std::string warning = R"({"event":"warning","run":"r1","text":")" + std::string(1000, 'x') + "\"}\n";
  for (int i = 0; i < 5; ++i) {
    std::string many;
    for (int n = 0; n < 1000; ++n) many += warning;
    append(folder.path() / "events.jsonl", many);
  }
  const RunView run = RunReader(folder.path()).update();
  CHECK((run.max_steps == 50 && run.starts == 1));
}

TEST_CASE("the start says which file has the steps, if one has") {
  const TemporaryFolder folder;
  const auto begin = [&](const std::string& metrics) {
    append(folder.path() / "events.jsonl",
           R"({"event":"start","run":"r1","hosts":[],"metrics_file":")" + metrics + "\"}\n");
  };
  begin("/elsewhere/by the run/steps.jsonl");
  append(folder.path() / "metrics.jsonl", R"({"step":7,"loss":1,"run":"r1"})"
                                          "\n");
  append(folder.path() / "steps.jsonl", R"({"step":9,"loss":2,"run":"r1"})"
                                        "\n");
  CHECK(RunReader(folder.path()).update().step == 9);
  CHECK(RunReader(folder.path() / "metrics.jsonl").update().step == 7);
  begin("");
  const RunView run = RunReader(folder.path()).update();
  CHECK((run.step == 0 && run.metrics_file == ""));
}

TEST_CASE("lines that are none, and values of other types, are left out") {
  const TemporaryFolder folder;
  append(folder.path() / "events.jsonl", kStart);
  append(folder.path() / "events.jsonl",
         "nonsense\n[1]\n{\"event\":3}\n{\"event\":\"start\",\"run\":5,\"hosts\":\"x\"}\n");
  append(folder.path() / "metrics.jsonl",
         "{\"step\":\"x\",\"loss\":null}\n{\"step\":3,\"rank_seconds\":[null,\"a\"]}\n" + std::string(200, '[') + "\n");
  CHECK_NOTHROW(RunReader(folder.path()).update());
}

TEST_CASE("a folder without a run is refused") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(RunReader(folder.path()), Contains("has neither events.jsonl nor metrics.jsonl"));
  CHECK_THROWS_AS(RunReader(folder.path() / "missing"), UserError);
}
