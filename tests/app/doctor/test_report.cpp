#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/doctor/bandwidth.hpp"
#include "app/doctor/doctor_options.hpp"
#include "app/doctor/report.hpp"
#include "app/doctor/versions.hpp"
#include "app/machine/instances.hpp"
#include "base/collectives.hpp"
#include "base/error.hpp"
#include "base/gpu_kernels.hpp"
#include "tests/app/doctor/doctor_checks.hpp"

namespace mpzero::doctor {
namespace {

const HostReport kReport = {.host = "node1",
                            .findings = {ok("gpus", "8 x NVIDIA \"H100\""), warning("driver", "570.1", "reboot"),
                                         failure("memlock", "64 KiB\nmay be locked", "ulimit -l unlimited")}};

std::vector<Fact> facts(const std::string& nccl, const std::string& kernel) {
  return {{.what = "mpzero", .value = "f00"},
          {.what = "NCCL", .value = nccl},
          {.what = "kernel", .value = kernel, .decisive = false}};
}

}  // namespace

TEST_CASE("a report is unchanged by serialization and JSON") {
  SingleProcess alone;
  const HostReport read = all_gather(alone, kReport).front();
  CHECK(read.host == "node1");
  REQUIRE(read.findings.size() == 3);
  CHECK(read.findings[2].message == kReport.findings[2].message);
  CHECK(read.findings[2].status == Status::kFailure);

  const auto json = nlohmann::json::parse(
      to_json({.id = "41", .restart = 2}, {kReport, {.host = "node2", .findings = {ok("gpus", "8")}}}));
  CHECK(json["job"] == "41");
  CHECK(json["restart"] == 2);
  CHECK(json["hosts"].size() == 2);
  CHECK(json["hosts"][0]["status"] == "failure");
  CHECK(json["hosts"][1]["status"] == "ok");
  CHECK(json["hosts"][0]["findings"][1]["remedy"] == "reboot");
}

TEST_CASE("a report describes one attempt of one job") {
  const auto start = [](const std::map<std::string, std::string>& variables) {
    return job_start([&](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  };
  CHECK(start({{"SLURM_JOB_ID", "41"}, {"SLURM_RESTART_COUNT", "2"}}).id == "41");
  CHECK(start({{"SLURM_JOB_ID", "41"}, {"SLURM_RESTART_COUNT", "2"}}).restart == 2);
  CHECK(start({{"SLURM_JOB_ID", "41"}}).restart == 0);
  CHECK(start({}).id.empty());
}

TEST_CASE("a table begins with the worst finding and ends with a summary") {
  const std::string table = to_table({kReport}, {});
  CHECK(table.rfind("node1: failure\n", 0) == 0);
  CHECK(table.find("memlock") < table.find("driver"));
  CHECK(table.find("driver") < table.find("gpus"));
  CHECK_THAT(table, Catch::Contains("-> ulimit -l unlimited\n"));
  CHECK_THAT(table, Catch::Contains("1 host: 1 failure, 1 warning\n"));
}

TEST_CASE("hosts with equal findings share a line, and no finding is lost") {
  std::vector<HostReport> reports;
  for (int i = 0; i < 64; ++i) {
    // Numbers of one host alone do not set it apart.
    reports.push_back(
        {.host = fmt::format("node{}", i), .findings = {ok("gpus", "8 x H100"), ok("clock", fmt::format("{} ms", i))}});
  }
  CHECK(to_table(reports, {.brief = true}) ==
        "node0, node1, node2, node3, node4, node5, node6, node7 and 56 more: ok (2 checks)\n"
        "64 hosts: 0 failures, 0 warnings\n");
  reports[7].findings.push_back(failure("memlock", "64 KiB", "ulimit -l unlimited"));
  const std::string table = to_table(reports, {.brief = true});
  CHECK(table ==
        "node7: failure (2 checks ok)\n"
        "  failure  memlock  64 KiB\n"
        "                    -> ulimit -l unlimited\n"
        "node0, node1, node2, node3, node4, node5, node6, node8 and 55 more: ok (2 checks)\n"
        "64 hosts: 1 failure, 0 warnings\n");
  // In full, the checks of one of them stand for those of all.
  CHECK_THAT(to_table(reports, {}), Catch::Contains("and 55 more: ok, findings of node0\n  ok       gpus     8 x"));
}

TEST_CASE("if all hosts fail, the summary states whether other hosts would help") {
  const auto table = [](const Finding& a, const Finding& b) {
    std::vector<HostReport> reports = {{.host = "a", .findings = {a}}, {.host = "b", .findings = {b}}};
    tell_job_from_hosts(reports);
    return to_table(reports, {.brief = true});
  };
  const Finding limit = failure("memlock", "64 KiB", "raise it"), gpu = failure("gpus", "7", "replace");
  CHECK_THAT(table(limit, limit),
             Catch::Contains("a, b: failure\n") && Catch::Contains("All 2 hosts fail these checks: memlock. "));
  CHECK_THAT(table(gpu, gpu), Catch::Contains("All 2 hosts fail for host-specific reasons"));
  CHECK_THAT(table(gpu, ok("gpus", "8")), !Catch::Contains("All 2 hosts"));
}

TEST_CASE("a failure of settings on all hosts is attributed to the job, and on one host to that host") {
  const auto reports = [](std::vector<Finding> a, std::vector<Finding> b) {
    std::vector<HostReport> both = {{.host = "a", .findings = std::move(a)}, {.host = "b", .findings = std::move(b)}};
    tell_job_from_hosts(both);
    return both;
  };
  const Finding disk = failure("checkpoint_space", "full", "make room"), gpu = failure("gpus", "7", "replace");
  const Finding network = failure("network", "NCCL_NET=Socket", "unset it");
  CHECK(exit_code(reports({ok("gpus", "8")}, {warning("driver", "570.1", "update")})) == 0);
  CHECK(exit_code(reports({ok("gpus", "8")}, {gpu})) == kFailureExitCode);
  const Finding limit = failure("memlock", "64 KiB", "raise it");
  CHECK(exit_code(reports({limit}, {limit})) == kUserErrorExitCode);
  CHECK(exit_code(reports({limit}, {ok("memlock", "unlimited")})) == kFailureExitCode);
  CHECK(exit_code(reports({disk}, {disk})) == kUserErrorExitCode);
  CHECK(exit_code(reports({disk}, {ok("checkpoint_space", "free")})) == kFailureExitCode);
  CHECK(exit_code(reports({network}, {ok("network", "EFA")})) == kUserErrorExitCode);
  const std::vector<HostReport> mixed = reports({disk}, {disk, gpu});
  CHECK(exit_code(mixed) == kFailureExitCode);
  const auto json = nlohmann::json::parse(to_json({}, mixed));
  CHECK(json["hosts"][1]["findings"][0]["blame"] == "job");
  CHECK(json["hosts"][1]["findings"][1]["blame"] == "host");
  SingleProcess group;
  CHECK(all_gather(group, mixed[1]).front().findings[0].of_job);

  std::vector<HostReport> alone = {{.host = "a", .findings = {disk}}};
  tell_job_from_hosts(alone);
  CHECK(exit_code(alone) == kUserErrorExitCode);
  alone = {{.host = "a", .findings = {gpu}}};
  tell_job_from_hosts(alone);
  CHECK(exit_code(alone) == kFailureExitCode);
}

TEST_CASE("two failing hosts are not attributed to the job") {
  const auto of_two = [](const Finding& finding) {
    std::vector<HostReport> both = {{.host = "a", .findings = {finding}}, {.host = "b", .findings = {finding}}};
    tell_job_from_hosts(both);
    return exit_code(both);
  };
  CHECK(of_two(failure("gpus", "7 GPUs", "replace")) == kFailureExitCode);
  CHECK(of_two(failure("cuda", "cuInit fails", "replace")) == kFailureExitCode);
  CHECK(of_two(failure("gpu_memory", "7 GiB in use", "end them")) == kFailureExitCode);
  CHECK(of_two(failure("gpu_memory_errors", "3 uncorrected errors", "reset")) == kFailureExitCode);
  CHECK(of_two(failure("throttling", "HW Slowdown", "cool")) == kFailureExitCode);
  CHECK(of_two(failure("efa_ports", "DOWN", "reboot")) == kFailureExitCode);
  CHECK(of_two(failure("libfabric", "no provider efa", "install it")) == kUserErrorExitCode);
  // More ranks than GPUs, and no GPU where the job asks for some, are requests of the job.
  CHECK(of_two(failure("ranks_per_gpu", "4 ranks share 2 GPUs", "fewer ranks")) == kUserErrorExitCode);
  CHECK(of_two(failure("driver", "detects no GPU", "request some")) == kUserErrorExitCode);
}

TEST_CASE("versions are compared with those of the majority of hosts") {
  const std::vector<std::string> hosts = {"a", "b", "c"};
  const std::vector<std::vector<Fact>> all = {facts("2.27.3", "6.1"), facts("2.28.9", "6.1"), facts("2.28.9", "6.2")};
  CHECK(compare_facts(0, hosts, all).status == Status::kFailure);
  CHECK(compare_facts(0, hosts, all).message == "NCCL 2.27.3 here, 2.28.9 on b and 1 more");
  CHECK(compare_facts(1, hosts, all).status == Status::kOk);
  CHECK(compare_facts(2, hosts, all).status == Status::kWarning);
  // Of two hosts, it is unknown which one is wrong.
  const std::vector<std::vector<Fact>> two = {facts("2.28.9", ""), facts("", "")};
  CHECK(compare_facts(0, {"a", "b"}, two).message == "NCCL 2.28.9 here, none on b");
  CHECK(compare_facts(1, {"a", "b"}, two).message == "NCCL none here, 2.28.9 on a");
}

TEST_CASE("the versions of this process are reported") {
  const FakeRoot root;
  root.write("proc/sys/kernel/osrelease", "6.1.0\n");
  const std::vector<Fact> own = collect_facts(root.system(), {}, {}, {});
  CHECK(own[0].value.size() == 16);
  CHECK(own[2].what == "NCCL");
  CHECK((own[2].value.find('.') != std::string::npos) == built_with_gpu_kernels());
  CHECK(own[3].value.find("MPI") != std::string::npos);
}

TEST_CASE("NCCL's plugin and libfabric are compared by version; with EFA, a difference is a failure") {
  const FakeRoot root;
  const auto fact = [&](const std::string& what, const std::string& plugin) {
    System system = root.system();
    system.plugin_files = {stand_in(plugin)};
    const auto search =
        parallel::find_libfabric_plugin([](const std::string&) { return std::nullopt; }, {stand_in(plugin)});
    const FabricSurvey fabric = {
        .library = true, .problem = {}, .version = "2.1.0amzn3.0", .file = {}, .providers = {}};
    for (const Fact& one : collect_facts(system, {}, fabric, search)) {
      if (one.what == what) return one;
    }
    return Fact{};
  };
  CHECK(fact("NCCL's plugin", "fake_plugin").value == "aws-ofi-nccl 1.16.2");
  CHECK_FALSE(fact("NCCL's plugin", "fake_plugin").decisive);
  root.make_efa(1);
  CHECK(fact("NCCL's plugin", "fake_old_plugin").value == "aws-ofi-nccl 1.7.4-aws");
  CHECK(fact("NCCL's plugin", "fake_old_plugin").decisive);
  CHECK(fact("libfabric", "fake_plugin").value == "2.1.0amzn3.0");
  CHECK(fact("libfabric", "fake_plugin").decisive);
  CHECK(fact("NCCL's plugin", "fake_absent").value.empty());

  const auto compared = [&](const std::string& plugin) {
    return compare_facts(1, {"a", "b"}, {{fact("NCCL's plugin", "fake_plugin")}, {fact("NCCL's plugin", plugin)}});
  };
  CHECK(compared("fake_plugin").status == Status::kOk);
  CHECK(compared("fake_old_plugin").status == Status::kFailure);
  CHECK(compared("fake_old_plugin").message == "NCCL's plugin aws-ofi-nccl 1.7.4-aws here, aws-ofi-nccl 1.16.2 on a");
}

TEST_CASE("bandwidth is compared with the instance type's specification") {
  const auto measured = [](double rate) {
    return std::vector<Measurement>{{"all-gather", 1 << 20, 1e9},
                                    {"reduce-scatter", 1 << 20, 1e9},
                                    {"all-gather", 64 << 20, 2 * rate},
                                    {"reduce-scatter", 64 << 20, rate}};
  };
  const double promised = find_instance("p4d.24xlarge")->gigabits / 8 * 1e9;
  CHECK(promised == 50e9);
  CHECK(judge_bandwidth("bandwidth_between", measured(40e9), promised, "p4d").status == Status::kOk);
  CHECK(judge_bandwidth("bandwidth_between", measured(20e9), promised, "p4d").status == Status::kWarning);
  CHECK(judge_bandwidth("bandwidth_between", measured(4e9), promised, "p4d").status == Status::kFailure);
  CHECK(judge_bandwidth("bandwidth_between", measured(4e9), 0, "").status == Status::kOk);
  CHECK_THAT(judge_bandwidth("bandwidth_between", measured(4e9), promised, "a p4d").message,
             Catch::Contains("all-gather 1 MiB 1.00 GB/s, 64 MiB 8.00 GB/s; reduce-scatter") &&
                 Catch::Contains("(8% of the 50 GB/s of a p4d)"));
}

TEST_CASE("a brief interruption of the machine does not affect the measured bandwidth") {
  const auto typical = [](std::vector<double> seconds, size_t expected_calls) {
    size_t calls = 0;
    const double found = typical_seconds([&] { return seconds.at(calls++); });
    CHECK(calls == expected_calls);
    return found;
  };
  // Three are enough where they take a second.
  CHECK(typical({0.5, 4.0, 0.6}, 3) == 0.6);
  // Quick ones are repeated: five times 0.2 s, or nine times at most.
  CHECK(typical({0.2, 0.2, 0.2, 0.2, 0.2}, 5) == 0.2);
  CHECK(typical({0.9, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.02}, 9) == 0.01);
}

TEST_CASE("the doctor's flags") {
  const Options options =
      parse_options({"--quick", "--json=out.json", "--checkpoint_dir", "/fsx/c", "--network", "efa"});
  CHECK(options.quick);
  CHECK(options.json == "out.json");
  CHECK(options.checkpoint_dir == "/fsx/c");
  CHECK(options.network == parallel::NetworkChoice::kEfa);
  CHECK(options.device == "auto");
  CHECK(parse_options({"--device=cpu"}).device == "cpu");
  CHECK_THROWS_WITH(parse_options({"--device", "gpu"}), Catch::Contains("auto, cuda, cpu, not \"gpu\""));
  CHECK_THROWS_WITH(parse_options({"--quik"}), Catch::Contains("did you mean --quick?"));
  CHECK_THROWS_WITH(parse_options({"--json"}), Catch::Contains("--json needs a value"));
  CHECK_THROWS_WITH(parse_options({"--network", "tcp"}), Catch::Contains("auto, efa or socket"));
  CHECK_THROWS_WITH(parse_options({"quick"}), Catch::Contains("is not a flag"));
  CHECK_THROWS_WITH(parse_options({"--quick=1"}), Catch::Contains("takes no value"));
  CHECK_THROWS_AS(parse_options({"--quick", "--bandwidth"}), UserError);
}

}  // namespace mpzero::doctor
