#include "app/plan/command/plan_options.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;
using Catch::Contains;

TEST_CASE("the plan's own flags are parsed, and all others are passed to mpzero train") {
  const PlanOptions options = parse_plan_options({"--instance", "p5.48xlarge", "--seq_length=4096", "--nodes=4",
                                                  "--json", "--tokens", "15e9", "--price=55.04", "--bf16"});
  CHECK(options.instance == "p5.48xlarge");
  CHECK(options.nodes == 4);
  CHECK(options.tokens == 15e9);
  CHECK(options.price == 55.04);
  CHECK(options.json);
  CHECK_FALSE(options.compare);
  CHECK(options.rest == std::vector<std::string>{"--seq_length=4096", "--bf16"});
}

TEST_CASE("an error is one sentence with the flag") {
  const auto error = [](std::vector<std::string> arguments) {
    return error_from([&] { parse_plan_options(arguments); });
  };
  CHECK_THAT(error({}), Contains("--instance") && Contains("--gpu"));
  CHECK_THAT(error({"--instnce=p5.48xlarge"}), Contains("--instnce is not a known flag; did you mean --instance?"));
  CHECK_THAT(error({"--hlp"}), Contains("--hlp is not a known flag; did you mean --help?"));
  CHECK_THAT(error({"--instance=p5.48xlarge", "--gpu=H100"}), Contains("mutually exclusive"));
  CHECK_THAT(error({"--gpu=H100", "--nodes=0"}), Contains("--nodes 0"));
  CHECK_THAT(error({"--gpu=H100", "--nodes=1.5"}), Contains("--nodes"));
  CHECK_THAT(error({"--gpu=H100", "--tokens=many"}), Contains("--tokens") && Contains("many"));
  CHECK_THAT(error({"--gpu=H100", "--gpu=H200"}), Contains("given twice"));
  CHECK_THAT(error({"--gpu"}), Contains("--gpu needs a value"));
  CHECK_THAT(error({"--gpu=H100", "--json=yes"}), Contains("takes no value"));
  CHECK_THAT(error({"--gpu=H100", "--network_factor=0.5"}), Contains("1 or more and less than 100"));
  CHECK_THAT(error({"--gpu=H100", "--network_factor=101"}), Contains("1 or more and less than 100"));
  CHECK_THAT(error({"--gpu=H100", "--straggler_factor=1e30"}), Contains("1 or more and less than 100"));
  CHECK_THAT(error({"--gpu=H100", "--network_rate=4"}), Contains("--network_rate 4 has no effect with one host"));
  CHECK_THAT(error({"--gpu=H100", "--host_gigabits=400"}), Contains("--host_gigabits 400 has no effect with one host"));
  CHECK_THAT(error({"--gpu=H100", "--nodes=2", "--network_rate=4", "--host_gigabits=100"}), Contains("both set"));
  CHECK_THAT(error({"--gpu=H100", "--price=1", "--prices=p.json"}), Contains("both set"));
  CHECK_THAT(error({"--gpu=H100", "--host_memory=0"}), Contains("--host_memory"));
  CHECK_THAT(error({"--instance=p5.48xlarge", "--host_memory=512"}),
             Contains("--host_memory") && Contains("p5.48xlarge"));
  CHECK_THAT(error({"--device=cpu", "--host_gigabits=100"}), Contains("--host_gigabits") && Contains("--device cpu"));
}

TEST_CASE("a list of hosts is a comparison and replaces --instance and --nodes") {
  const PlanOptions options = parse_plan_options({"--instances=p4d.24xlarge:2,g6e.12xlarge:4,p5.48xlarge"});
  CHECK(options.instances ==
        std::vector<std::pair<std::string, int64_t>>{{"p4d.24xlarge", 2}, {"g6e.12xlarge", 4}, {"p5.48xlarge", 1}});
  CHECK(options.compare);
  CHECK(options.instance == "p4d.24xlarge");
  CHECK(options.nodes == 2);
  const auto error = [](const std::string& flag) {
    return error_from([&] { parse_plan_options({flag, "--instances=p4d.24xlarge:2,p5.48xlarge:1"}); });
  };
  for (const std::string flag :
       {"--instance=p5.48xlarge", "--gpu=H200", "--nodes=2", "--price=5", "--network_rate=4"}) {
    const std::string name = flag.substr(0, flag.find('='));
    CHECK_THAT(error(flag), Contains(name) && Contains("conflicts with --instances"));
  }
  const auto list = [](const std::string& text) {
    return error_from([&] { parse_plan_options({"--instances=" + text}); });
  };
  CHECK_THAT(list("p5.48xlarge:0"), Contains("--instances 0 is too small"));
  CHECK_THAT(list("p5.48xlarge:1.5"), Contains("\"1.5\""));
  CHECK_THAT(list(":2"), Contains("TYPE or TYPE:HOSTS"));
  CHECK_THAT(list("p5.48xlarge,"), Contains("TYPE or TYPE:HOSTS"));
  CHECK_THAT(list("p5.48xlarge:1,p5.48xlarge"), Contains("twice"));
}

TEST_CASE("a CPU plan requires no instance") {
  CHECK(parse_plan_options({"--device=cpu"}).rest == std::vector<std::string>{"--device=cpu"});
  CHECK(parse_plan_options({"--device", "cpu"}).instance.empty());
  CHECK_THAT(error_from([] { parse_plan_options({"--device", "auto"}); }), Contains("or --device cpu"));
}
