#include <limits>

#include "app/top/run_frame.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using Catch::Contains;

namespace {

RunView training() {
  RunView run;
  run.run = "3fca0aba0cf952f6";
  run.model = "qwen3_0_6b";
  run.hosts = {"node-1", "node-1", "node-2", "node-2"};
  run.began = 1000;
  run.starts = 1;
  run.max_steps = 400;
  run.step = 100;
  run.time = 1200;
  run.loss = 2.5;
  run.lr = 3e-5;
  run.grad_norm = 1.25;
  run.tokens_per_second = 12'000;
  run.step_seconds = 0.5;
  run.parts = {{"forward", 0.1}, {"backward", 0.3}, {"optimizer", 0.1}};
  run.losses = {4, 3, 2.5};
  return run;
}

std::string text_of(const RunView& run, double now = 1201, int width = 80, int rows = 24,
                    const std::vector<NodeView>& nodes = {}) {
  std::string text;
  for (const std::string& line : run_frame(run, nodes, now, width, rows)) text += line + "\n";
  return text;
}

}  // namespace

TEST_CASE("a run in 80 columns") {
  const std::string text = text_of(training());
  CHECK_THAT(text, Contains("qwen3_0_6b  run 3fca0aba0cf952f6  4 ranks on 2 hosts\ntraining\n"));
  CHECK_THAT(text, Contains("] step 100 of 400 (25%), 0.5 s each, 2 min 30 s left\n"));
  CHECK_THAT(text, Contains("loss   2.5000  █▃▁\n"));
  CHECK_THAT(text, Contains("lr     3e-05  grad norm 1.25  12000 tokens/s\n"));
  CHECK_THAT(text, Contains("time    forward 20%  backward 60%  optimizer 20%\n"));
  CHECK_THAT(text, Contains("saved  no checkpoint in this start of the run\n"));
}

TEST_CASE("a run that starts, is silent, or has ended says so") {
  RunView run = training();
  CHECK_THAT(text_of(run, 1300), Contains("no step for 1 min 40 s\n"));
  run.step_seconds = 20;  // a long step is no silence
  CHECK_THAT(text_of(run, 1300), Contains("training\n"));
  run.status = "failed";
  run.reason = "the loss is NaN";
  CHECK_THAT(text_of(run, 9999), Contains("failed: the loss is NaN\n") && !Contains(" left"));
  run = training();
  run.began = 1250;  // a new start, whose first step has not ended
  run.starts = 2;
  CHECK_THAT(text_of(run, 1260), Contains("start 2\nstarting for 10 s\n"));
  run.step = 0;
  CHECK_THAT(text_of(run, 1260), Catch::EndsWith("starting for 10 s\n"));
}

TEST_CASE("a run without a metrics file says why it has no steps, and shows what it saves") {
  RunView run;
  run.began = 1000;
  run.metrics_file = "";
  run.warning = "rank 1 is slow";
  NodeView node;
  node.host = "node-1";
  CHECK_THAT(text_of(run, 1120, 80, 24, {node}),
             Contains("began 2 min 0 s ago; its steps are not known without --metrics_file\n") &&
                 Contains("saved  no checkpoint") && Contains("warns  rank 1 is slow\nnode-1\n") && !Contains("loss"));
  run.checkpoint_step = 30;
  run.checkpoint_time = 1060;
  CHECK_THAT(text_of(run, 1120), Contains("saved  step 30, 1 min 0 s ago"));
  run.status = "finished";
  CHECK_THAT(text_of(run, 1120), Contains("\nfinished\n"));
}

TEST_CASE("each rank has a bar, and of many the slowest are shown") {
  RunView run = training();
  run.rank_seconds = {0.1, 0.2, 0.4, 0.1};
  const std::string text = text_of(run);
  CHECK_THAT(text, Contains("rank 2     node-2             ████████████████████████████████████ 400.0 ms\n"));
  CHECK_THAT(text, Contains("rank 1     node-1             ██████████████████ "));
  run.rank_seconds.assign(1000, 0.1);
  run.rank_seconds[777] = 0.3;
  const auto lines = run_frame(run, {}, 1201, 80, 24);
  CHECK(lines.size() == 24);
  CHECK_THAT(lines[7], Contains("rank 777"));
  CHECK(lines.back() == "984 faster ranks are not shown");
}

TEST_CASE("nodes and GPUs share the rows with the ranks") {
  RunView run = training();
  run.rank_seconds.assign(100, 0.1);
  NodeView node;
  node.host = "node-1";
  node.cpu = 0.5;
  node.sent = 1.5e9;
  node.gpus.resize(8);
  node.gpus[1].index = 1;
  node.gpus[1].utilization = 0.98;
  node.gpus[1].clock_hertz = 1.98e9;
  node.gpus[1].watts = 650;
  node.gpus[1].celsius = 61;
  node.gpus[1].throttled = true;
  NodeView silent;
  silent.host = "node-2";
  silent.problem = "port 9410 cannot be read: Connection refused";
  const std::string text = text_of(run, 1201, 80, 40, {silent, node});
  CHECK_THAT(text, Contains("node-1  CPU 50%  sends 1.50 GB/s\n"));
  CHECK_THAT(text, Contains("  GPU 1   98%  1980 MHz   650 W   61 °C  throttled\n"));
  CHECK_THAT(text, Contains("node-2: port 9410 cannot be read: Connection refused\n"));
  for (const int rows : {1, 8, 9, 10, 24, 40, 200}) {
    CHECK(run_frame(run, {silent, node}, 1201, 80, rows).size() <= static_cast<size_t>(rows));
  }
}

TEST_CASE("no line is wider than the terminal, and what others wrote moves no cursor") {
  RunView run = training();
  run.warning = std::string("\033[2Jrank 3 is slow ") + std::string(300, 'x');
  run.model = "ä\u009b2J\x7f\xff\xe4\u202e" + std::string(100, 'm');
  run.rank_seconds = {0.1, 0.2};
  for (const int width : {20, 40, 80, 200}) {
    for (const std::string& line : run_frame(run, {}, 1201, width, 24)) {
      INFO(line);
      CHECK(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }) <= width);
      for (const char* moves : {"\033", "\u009b", "\x7f", "\xff", "\u202e"})
        CHECK(line.find(moves) == std::string::npos);
    }
  }
}

TEST_CASE("a sparkline has the mean of neighbours, and leaves out what is not finite") {
  CHECK(sparkline({}, 10).empty());
  CHECK(sparkline({1, 1, 1}, 10) == "▁▁▁");
  CHECK(sparkline({0, 0, 7, 7}, 2) == "▁█");
  CHECK(sparkline({0, std::numeric_limits<double>::quiet_NaN(), 7}, 10) == "▁█");
  CHECK(sparkline({1, 2}, 0).empty());
}

TEST_CASE("a host's name in wide characters moves no bar") {
  RunView run = training();
  run.hosts = {"模型"};
  run.rank_seconds = {1};
  CHECK_THAT(run_frame(run, {}, 1201, 80, 24)[7], Contains("rank 0     模型" + std::string(15, ' ') + "█"));
}

TEST_CASE("a low terminal gets no more lines than it has") {
  RunView run = training();
  run.warning = "x";
  run.rank_seconds.assign(100, 0.1);
  NodeView node;
  node.host = "a";
  for (const int rows : {1, 2, 5, 7, 8, 9}) {
    CHECK(run_frame(run, {node, node}, 1201, 80, rows).size() == static_cast<size_t>(rows));
  }
}
