#include <fmt/format.h>

#include <tuple>

#include "app/plan/command/plan_command.hpp"
#include "tests/app/error_from.hpp"
#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;
using Catch::Contains;

TEST_CASE("a plan requires no data, no GPU and no MPI") {
  const PlanOutput output = output_of({"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H200"});
  CHECK(output.exit_code == 0);
  CHECK_THAT(output.text, Contains("tokens/s/GPU") && Contains("Bottleneck") && Contains("Checkpoint"));
}

TEST_CASE("an FP8 plan includes the memory and time of FP8, and marks estimated times") {
  const std::vector<std::string> flags = {"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H200", "--json"};
  // Without FP8.
  const std::string calibration = "--calibration=" MPZERO_SOURCE_DIR "/tests/app/plan/roofline_calibration.json";
  const auto memory = [](const PlanOutput& output) {
    return nlohmann::json::parse(output.text)["memory"]["gpu_bytes"].dump();
  };
  const PlanOutput bf16 = plan_output({flags[0], flags[1], flags[2], calibration});
  const PlanOutput fp8 = plan_output({flags[0], flags[1], flags[2], calibration, "--fp8"});
  REQUIRE_FALSE(fp8.warnings.empty());
  CHECK_THAT(fp8.warnings.back(), Contains("estimated as 0.5x the bf16 times"));
  const auto of = [](const PlanOutput& output, const char* part, const char* key) {
    return nlohmann::json::parse(output.text)[part][key].get<double>();
  };
  CHECK(of(fp8, "step", "seconds") != of(bf16, "step", "seconds"));
  CHECK(of(fp8, "calibration", "relative_error") >= 0.2);
  const std::string with_fp8 = "--calibration=" MPZERO_SOURCE_DIR "/configs/calibrations/h200.json";
  const PlanOutput measured = plan_output({flags[0], "--gpu=H200", flags[2], "--fp8", with_fp8});
  CHECK(of(measured, "calibration", "relative_error") < 0.2);
  for (const std::string& warning : measured.warnings) CHECK_THAT(warning, !Contains("estimated as 0.5x"));
  // What the run would refuse.
  for (const auto& [gpu, flag, reason] : {std::tuple{"--gpu=A100", "--fp8", "A100 has compute capability 8.0"},
                                          std::tuple{"--instance=g5.48xlarge", "--fp8", "compute capability 8.6"},
                                          std::tuple{"--gpu=L40S", "--fp8=rowwise", "use tensorwise"}}) {
    CHECK_THAT(error_from([&] { plan_output({flags[0], gpu, flag}); }), Contains(reason));
  }
  CHECK(memory(fp8) != memory(bf16));
}

TEST_CASE("a checkpoint contains master weights and both moments, and all hosts write it together") {
  const std::vector<std::string> flags = {"--model_config=" + kModels + "qwen3_0_6b.json", "--instance=p5e.48xlarge",
                                          "--nodes=2", "--disk_rate=2"};
  const nlohmann::json plan = json_of(flags);
  const double parameters = plan["model"]["parameters"];
  CHECK(plan["checkpoint"]["bytes"].get<double>() == 12 * parameters);
  CHECK(plan["checkpoint"]["seconds"].get<double>() == Approx(12 * parameters / (2 * 2e9)));
  const TextFile file(R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
      "bf16": {"enabled": true, "bf16_optimizer_states": true}, "zero_optimization": {"stage": 2}})");
  std::vector<std::string> in_bf16 = flags;
  in_bf16.push_back(file.ds_config());
  CHECK(json_of(in_bf16)["checkpoint"]["bytes"].get<double>() == 12 * parameters);
  // A random base is in the checkpoint of its adapters: r (in + out) parameters for each of 7 projections of 28 layers.
  std::vector<std::string> with_adapters = flags;
  with_adapters.emplace_back("--lora_r=8");
  const double adapters = 8 * 28 * (3072 + 2 * 2048 + 3072 + 3 * 4096);
  CHECK(json_of(with_adapters)["checkpoint"]["bytes"].get<double>() == 4 * parameters + 12 * adapters);
  with_adapters.insert(with_adapters.end(), {"--model_config=" + kModels + "llama_3_8b.json"});
  with_adapters.erase(with_adapters.begin());
  const std::string text = plan_output(with_adapters).text;
  const size_t checkpoint = text.find("Checkpoint: ");
  REQUIRE(checkpoint != std::string::npos);
  CHECK_THAT(text.substr(checkpoint, text.find('\n', checkpoint) - checkpoint), Contains("GB with --init_from"));
  CHECK_THAT(text, !Contains(" 0.00 GiB"));
}

TEST_CASE("the help explains one flag, of plan or of train") {
  const std::string own = plan_output({"--help", "instance"}).text;
  CHECK_THAT(own, Contains("--instance TYPE") && !Contains("--gpu NAME") && !Contains("--instances"));
  CHECK_THAT(plan_output({"--help", "seq_length"}).text, Contains("--seq_length") && !Contains("--instance"));
  CHECK_THAT(error_from([] { plan_output({"--help", "instnce_typ"}); }), Contains("instnce_typ"));
  CHECK(plan_output({"--help", "--instance"}).text == own);
  CHECK(plan_output({"--help", "--instance", "p5.48xlarge"}).text == plan_output({"--help"}).text);
  CHECK(plan_output({"--help", "-h"}).text == plan_output({"--help"}).text);
  CHECK_THAT(plan_output({"--help", "lr"}).text, Contains("--learning_rate"));
}

TEST_CASE("warns about a calibration for a different device, and increases the plan's error") {
  const auto plan = [](const std::string& gpu, const std::string& file) {
    return plan_output({"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=" + gpu, "--json", file});
  };
  const auto error = [](const PlanOutput& output) {
    return nlohmann::json::parse(output.text)["calibration"]["relative_error"].get<double>();
  };
  const PlanOutput other = plan("A100", kCalibration);
  REQUIRE_FALSE(other.warnings.empty());
  CHECK_THAT(other.warnings.front(), Contains("NVIDIA H200, but the plan is for A100"));
  CHECK(error(other) == Approx(0.5).margin(1e-3));
  const PlanOutput same = plan("H200", kCalibration);
  for (const std::string& warning : same.warnings) CHECK_THAT(warning, !Contains("--calibration"));
  CHECK(error(same) < 0.11);
  for (const auto& [gpu, device] :
       {std::pair<const char*, const char*>{"L4", "NVIDIA L40S"}, {"H200", "NVIDIA H200 NVL"}}) {
    const RenamedCalibration calibration(device);
    const PlanOutput output = plan(gpu, calibration.flag());
    REQUIRE_FALSE(output.warnings.empty());
    CHECK_THAT(output.warnings.front(), Contains(fmt::format("{}, but the plan is for {}", device, gpu)));
  }
}

TEST_CASE("a very uncertain step time omits hours") {
  const auto length = [](double error) {
    const RenamedCalibration calibration("NVIDIA H200", error);
    const PlanOutput output = plan_output(
        {"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H200", "--tokens=1e12", calibration.flag(), "--json"});
    return nlohmann::json::parse(output.text)["length"];
  };
  CHECK(length(0.5)["hours"].get<double>() > 0);
  CHECK(length(0.9).is_null());
}

TEST_CASE("small instances without EFA are planned") {
  const std::string model = "--model_config=" + kModels + "qwen3_0_6b.json";
  const nlohmann::json plan = json_of({model, "--instance=g6e.xlarge", "--nodes=2"});
  CHECK(plan["machine"]["network"] == "socket");
  CHECK(plan["memory"]["host_bytes"]["of"] == int64_t{32} << 30);
  CHECK_THAT(error_from([&] { plan_output({model, "--instance=g5.4xlarge", "--network=efa"}); }),
             Contains("g5.4xlarge has no EFA"));
}

TEST_CASE("if only the global batch is set, the largest micro-batch that fits is planned") {
  const std::string model = "--model_config=" + kModels + "llama_3_8b.json";
  const std::vector<std::string> flags = {model, "--gpu=H100", "--train_batch_size=64", "--seq_length=4096", "--json"};
  const PlanOutput output = plan_output(flags);
  const nlohmann::json plan = nlohmann::json::parse(output.text);
  const int64_t micro_batch = plan["run"]["train_micro_batch_size_per_gpu"];
  CHECK(plan["memory"]["fits"] == true);
  CHECK(plan["memory"]["host_bytes"]["layer_inputs"] == 0);
  REQUIRE(micro_batch < 64);
  CHECK(micro_batch * plan["run"]["gradient_accumulation_steps"].get<int64_t>() == 64);
  CHECK_THAT(output.warnings.front(), Contains(fmt::format("--train_micro_batch_size_per_gpu {}", micro_batch)));
  // The next divisor of 64, given by the user, does not fit without activations in host memory.
  std::vector<std::string> larger = flags;
  larger.push_back(fmt::format("--train_micro_batch_size_per_gpu={}", 2 * micro_batch));
  CHECK(nlohmann::json::parse(plan_output(larger).text)["memory"]["host_bytes"]["layer_inputs"] > 0);
  larger.emplace_back("--recompute=tiled");
  CHECK(nlohmann::json::parse(plan_output(larger).text)["memory"]["fits"] == false);
}

TEST_CASE("an fp32 plan on GPUs uses data sheets, and reports this") {
  const std::vector<std::string> flags = {"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H200"};
  std::vector<std::string> in_fp32 = flags;
  in_fp32.emplace_back("--bf16=false");
  const PlanOutput output = output_of(in_fp32);
  CHECK(output.exit_code == 0);
  REQUIRE_FALSE(output.warnings.empty());
  CHECK_THAT(output.warnings.back(), Contains("fp32") && Contains("14.8x the bf16 times") && Contains("TF32 off"));
  CHECK_THAT(output.text, Contains("+/- 50%"));
  const nlohmann::json fp32 = json_of(in_fp32), bf16 = json_of(flags);
  const auto busy = [](const nlohmann::json& plan, const char* part) {
    return plan["step"]["busy_seconds"][part].get<double>();
  };
  // 989 and 67 TFLOP/s; what adds into another type in bf16 does not here.
  CHECK(busy(fp32, "matmuls") == Approx(989.0 / 67 * busy(bf16, "matmuls")).epsilon(0.15));
  CHECK(busy(fp32, "attention") == Approx(989.0 / 67 * busy(bf16, "attention")).epsilon(0.15));
  CHECK(fp32["memory"]["gpu_bytes"]["parameters"] == 2 * bf16["memory"]["gpu_bytes"]["parameters"].get<int64_t>());
}

TEST_CASE("without calibrated times, a plan covers only memory") {
  const RenamedCalibration calibration("NVIDIA T4");
  const PlanOutput output =
      plan_output({"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H200", "--bf16=false", calibration.flag()});
  CHECK(output.exit_code == 0);
  REQUIRE_FALSE(output.warnings.empty());
  CHECK_THAT(output.warnings.back(), Contains("only memory is estimated") && Contains("matmuls in fp32"));
  CHECK_THAT(output.text, Contains("Memory per GPU") && Contains("only memory is estimated") && !Contains("Step:"));
}

TEST_CASE("a ZeRO-3 plan gathers FP8 weights, and bf16 weights with rowwise scaling") {
  const TextFile file(R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
      "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}})");
  const auto plan = [&](const std::string& recipe) {
    const PlanOutput output = plan_output({"--model_config=" + kModels + "llama_3_1_8b.json", "--gpu=H200",
                                           "--nproc_per_node=8", "--json", file.ds_config(), "--fp8=" + recipe});
    return nlohmann::json::parse(output.text);
  };
  const nlohmann::json none = plan("none"), tensorwise = plan("tensorwise"), rowwise = plan("rowwise");
  const auto in_flight = [](const nlohmann::json& plan) {
    return plan["memory"]["gpu_bytes"]["units_in_flight"].get<double>();
  };
  CHECK(in_flight(rowwise) == in_flight(none));
  // Half of the layers, all of embedding and head.
  CHECK(in_flight(tensorwise) < 0.8 * in_flight(none));
}

TEST_CASE("a plan for a GPU without a calibration covers only memory") {
  const std::vector<std::string> flags = {"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=B200"};
  const PlanOutput output = plan_output(flags);
  CHECK(output.exit_code == 0);
  CHECK_THAT(output.text, Contains("Memory per GPU") && Contains("only memory is estimated") && !Contains("Step:"));
  CHECK_THAT(output.warnings.back(), Contains("no calibration for B200") && Contains("--calibration"));
  const nlohmann::json json = nlohmann::json::parse(plan_output({flags[0], flags[1], "--json"}).text);
  CHECK(json["calibration"].is_null());
  CHECK(json["step"].is_null());
  CHECK(json["memory"]["fits"] == true);
  CHECK_THAT(error_from([&] { plan_output({flags[0], flags[1], "--compare"}); }), Contains("no calibration"));
}

TEST_CASE("a GPU whose host was not measured uses an instance's host, and reports this") {
  for (const auto& [gpu, file, host] : {std::tuple{"H100", "h100", "p5.48xlarge"},
                                        {"A100", "a100_40gb", "p4d.24xlarge"},
                                        {"L40S", "l40s", "g6e.48xlarge"}}) {
    const CalibrationData data =
        read_calibration(MPZERO_SOURCE_DIR "/configs/calibrations/" + std::string(file) + ".json");
    const PlanOutput output = plan_output({"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu", gpu});
    INFO(gpu);
    CHECK(output.exit_code == 0);
    const std::string estimate = "estimated from " + std::string(host) + "'s data sheets";
    // A file that is measured one day has the host that it was measured on.
    const bool measured = data.host.adamw_parameters_per_second > 0;
    CHECK_THAT(output.text, Contains("AdamW on the host"));
    CHECK((output.text.find(estimate) == std::string::npos) == measured);
  }
}

TEST_CASE("a plan explains its layout, which is chosen under the plan's assumptions") {
  const TextFile file(R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4,
      "bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "mics_shard_size": "auto"}})");
  const auto text = [&](const std::string& more) {
    return output_of({"--model_config=" + kModels + "llama_3_8b.json", "--instance=p5e.48xlarge", "--nodes=2",
                      "--network=socket", "--network_rate=200", file.ds_config(), more})
        .text;
  };
  // 641 and 668 ms are as long, within the error; 4.3 and 8.0 s are not.
  CHECK_THAT(text("--network_factor=1"), Contains("between shard groups: ") && !Contains("(predicted)"));
  CHECK_THAT(text("--network_factor=20"), Contains("between shard groups: ") && Contains("(predicted)"));
}

TEST_CASE("without ds_config.json, remedies contain a valid file") {
  const TextFile file;
  const auto write_file_in = [&](const std::string& text, const std::string& end) {
    const size_t begin = text.find('{', text.find("--deepspeed_config"));
    REQUIRE(begin != std::string::npos);
    file.write(text.substr(begin, text.find(end, begin) - begin));
  };
  const std::vector<std::string> large = {"--model_config=" + kModels + "llama_3_1_70b.json", "--instance=p5.48xlarge",
                                          "--nodes=4"};
  const auto with_file = [&](std::vector<std::string> flags) {
    flags.push_back(file.ds_config());
    return flags;
  };
  const PlanOutput refused = plan_output(large);
  CHECK(refused.exit_code == 2);
  // The report and the message count the same memory.
  const size_t total = refused.text.find("Memory per GPU: ") + 16;
  const std::string needed = refused.text.substr(total, refused.text.find(" of ", total) - total);
  CHECK_THAT(refused.text, Contains("needs " + needed + " of GPU memory") && Contains("oes not fit"));
  write_file_in(refused.text, " (saves");
  const PlanOutput fits = plan_output(with_file(large));
  CHECK(fits.exit_code == 0);
  CHECK_THAT(fits.text, Contains("ZeRO-3") && Contains("bf16"));

  const std::vector<std::string> small = {"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H200",
                                          "--nproc_per_node=4"};
  const std::string slow = output_of(small).text;
  CHECK_THAT(slow, Contains("AdamW on the host"));
  write_file_in(slow.substr(slow.find("Bottleneck: ")), "\n");
  CHECK_THAT(output_of(with_file(small)).text, !Contains("AdamW on the host") && Contains("bf16"));
}

TEST_CASE("--help is not an error") { CHECK_THAT(plan_output({"--help"}).text, Contains("mpzero plan")); }

TEST_CASE("flags that a plan cannot use are refused in one sentence") {
  const auto error = [](std::vector<std::string> flags) { return error_from([&] { output_of(flags); }); };
  CHECK_THAT(error({"--gpu=H200", "--world_size=4"}), Contains("--world_size 4"));
  CHECK_THAT(error({"--gpu=H200", "--device=cpu"}), Contains("--device cpu are mutually exclusive"));
  CHECK_THAT(error({"--device=cpu"}), Contains("calibration of") && Contains("for a CPU"));
  CHECK_THAT(error({"--device=cpu", "--instance=p5.48xlarge"}), Contains("remove --device cpu"));
  CHECK_THAT(error({"--instance=c7i.48xlarge"}), Contains("has no GPUs; use --device cpu"));
  CHECK_THAT(error({"--device=cpu", "--instance=c7i.48xlrge"}), Contains("did you mean c7i.48xlarge?"));
  CHECK_THAT(error({"--instance=p5.48xlarge", "--nproc_per_node=2"}), Contains("--nproc_per_node 2"));
  CHECK_THAT(error({"--gpu=H200", "--nodes=100000", "--nproc_per_node=1000000"}),
             Contains("--nodes 100000 with --nproc_per_node 1000000"));
  CHECK_THAT(error({"--instance=c7i.48xlarge", "--device=cpu", "--nodes=100000", "--nproc_per_node=11"}),
             Contains("--nodes 100000 with --nproc_per_node 11"));
  CHECK_THAT(error({"--gpu=H200", "--sequence_length=4"}), Contains("--seq_length"));
  CHECK_THAT(error({"--instance=p4d"}), Contains("did you mean p4d.24xlarge?"));
  CHECK_THAT(error({"--instance=p5"}), Contains("p5.4xlarge") && Contains("p5.48xlarge") && !Contains("p5e"));
  CHECK_THAT(error({"--gpu=H200", "--gpus=8"}), Contains("--nproc_per_node"));
  CHECK_THAT(error({"--gpus", "8"}), Contains("--nproc_per_node"));
  CHECK_THAT(error({"--gpu=H200", "--lr=1"}), Contains("did you mean --learning_rate?") && !Contains("mpzero train"));
  CHECK_THAT(error({"--gpu=H200", "--node=2"}), Contains("--node is not a known flag; did you mean --nodes?"));
  CHECK_THAT(error({"--gpu=H200", "--tokns", "1e9"}), Contains("did you mean --tokens?"));
  CHECK_THAT(error({"--gpu=H200", "--qqqqqqqqqq"}), Contains("mpzero plan --help and mpzero train --help"));
  CHECK_THAT(error({"--gpu=H200", "--model_config=nowhere.json"}), Contains("nowhere.json"));
}

namespace {

std::vector<std::string> on_cpus(const CpuCalibration& calibration, const std::vector<std::string>& more) {
  std::vector<std::string> flags = {"--model_config=" + kModels + "qwen3_tiny.json", "--device=cpu", "--seq_length=128",
                                    calibration.flag()};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

nlohmann::json json_on_cpus(const CpuCalibration& calibration, std::vector<std::string> more) {
  more.emplace_back("--json");
  return nlohmann::json::parse(plan_output(on_cpus(calibration, more)).text);
}

}  // namespace

TEST_CASE("a CPU plan covers memory and time, on hosts like the calibrated host") {
  const CpuCalibration calibration;
  const PlanOutput output = plan_output(on_cpus(calibration, {"--nproc_per_node=2"}));
  CHECK(output.exit_code == 0);
  CHECK_THAT(output.text, Contains("1 x a CPU (2 ranks of 2 threads)") && Contains("Memory per rank") &&
                              Contains("program and libraries") && Contains("LM head") && Contains("all-gather") &&
                              Contains("tokens/s/rank") && Contains("Bottleneck: ") && Contains("Memory per host"));
  CHECK_THAT(output.text, !Contains("GPU") && !Contains("PCIe") && !Contains("scaled"));
  const nlohmann::json plan = json_on_cpus(calibration, {"--nproc_per_node=2"});
  CHECK(plan["machine"]["gpu"].is_null());
  CHECK(plan["machine"]["threads"] == 2);
  CHECK(plan["machine"]["ranks_per_node"] == 2);
  const nlohmann::json& memory = plan["memory"]["rank_bytes"];
  CHECK(plan["memory"]["host_bytes"]["total"].get<int64_t>() == 2 * memory["total"].get<int64_t>());
  CHECK_FALSE(plan["memory"].contains("gpu_bytes"));
  const nlohmann::json& step = plan["step"];
  CHECK(step["busy_seconds"]["head"].get<double>() > 0);
  CHECK(step["busy_seconds"]["host_optimizer"] == 0);
  // Its few sizes are far from the run's.
  const double distant = plan["calibration"]["extrapolated_share"];
  CHECK(plan["calibration"]["relative_error"].get<double>() == Approx(0.1 + 0.1 * distant));
  double sum = 0;
  for (const char* part : {"forward_seconds", "backward_seconds", "optimizer_seconds", "exposed_parameters_seconds",
                           "exposed_gradients_seconds", "data_seconds"}) {
    sum += step[part].get<double>();
  }
  CHECK(sum == Approx(step["seconds"].get<double>()).epsilon(0.01));
}

TEST_CASE("networks and slow ranks also cost time on CPUs") {
  const CpuCalibration calibration;
  const auto seconds = [&](const std::vector<std::string>& more) {
    return json_on_cpus(calibration, more)["step"]["seconds"].get<double>();
  };
  const double two = seconds({"--nproc_per_node=2"});
  CHECK(seconds({"--nproc_per_node=2", "--network_factor=5"}) > two);
  CHECK(seconds({"--nproc_per_node=2", "--straggler_factor=2"}) > 1.5 * two);
  // Over TCP, and nothing beside it.
  CHECK(seconds({"--nproc_per_node=2", "--nodes=2", "--network=socket"}) > two);
}

TEST_CASE("a CPU plan with a different number of threads than calibrated is an estimate") {
  const CpuCalibration calibration;
  const nlohmann::json one = json_on_cpus(calibration, {"--nproc_per_node=1"});
  CHECK(one["machine"]["threads"] == 4);
  CHECK(one["calibration"]["relative_error"] == 0.5);
  CHECK_THAT(plan_output(on_cpus(calibration, {})).text, Contains("scaled to this thread count (estimate)"));
  // There are none on CPUs.
  CHECK(one["length"]["hours"].get<double>() > 0);
  CHECK(one["length"]["gpu_hours"] == 0);
  // Twice the threads: half of the time of what computes.
  const nlohmann::json two = json_on_cpus(calibration, {"--nproc_per_node=2"});
  CHECK(one["step"]["busy_seconds"]["matmuls"].get<double>() ==
        Approx(0.5 * two["step"]["busy_seconds"]["matmuls"].get<double>()));
}

TEST_CASE("an instance without GPUs determines ranks, memory and network") {
  const CpuCalibration calibration;
  const nlohmann::json plan = json_on_cpus(calibration, {"--instance=c7i.48xlarge", "--nodes=2"});
  CHECK(plan["machine"]["ranks_per_node"] == 2);
  CHECK(plan["machine"]["threads"] == 48);
  CHECK(plan["machine"]["processor"] == "Intel(R) Xeon(R) Platinum 8488C");
  CHECK(plan["memory"]["host_bytes"]["of"] == int64_t{384} << 30);
  CHECK(json_on_cpus(calibration, {"--instance=c7i.48xlarge", "--nproc_per_node=4"})["machine"]["threads"] == 24);
  // 85% of 50 Gb/s.
  CHECK(plan["machine"]["network_rate"].get<double>() == Approx(0.85 * 50 / 8));
  const PlanOutput alone = plan_output(
      {"--model_config=" + kModels + "qwen3_tiny.json", "--seq_length=128", "--device=cpu", "--instance=c7i.48xlarge"});
  CHECK(alone.exit_code == 0);
  REQUIRE_FALSE(alone.warnings.empty());
  CHECK_THAT(alone.warnings.back(), Contains("no calibration for Intel(R) Xeon(R) Platinum 8488C") &&
                                        Contains("mpirun -n 2 mpzero plan --calibrate FILE --device cpu"));
  CHECK_THAT(alone.text, Contains("only memory is estimated") && !Contains("Step:"));
}

TEST_CASE("a run that exceeds host memory gets suggestions that fit") {
  const CpuCalibration calibration;
  const std::vector<std::string> flags = {"--model_config=" + kModels + "llama_3_8b.json",
                                          "--device=cpu",
                                          "--instance=c7i.48xlarge",
                                          "--nproc_per_node=1",
                                          "--train_micro_batch_size_per_gpu=64",
                                          "--seq_length=8192",
                                          calibration.flag()};
  const auto output_with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), more.begin(), more.end());
    return plan_output(all);
  };
  const PlanOutput output = output_with({"--recompute=none"});
  CHECK(output.exit_code == 2);
  CHECK_THAT(output.text, Contains("(saves ") && !Contains("offload"));
  // As in a run, auto recomputes on a CPU if memory is short.
  const PlanOutput automatic = output_with({"--recompute=auto", "--json"});
  CHECK(automatic.exit_code == 0);
  CHECK(nlohmann::json::parse(automatic.text)["run"]["recompute"]["none"].get<int>() < 32);
}

TEST_CASE("CPU comparisons exclude offloading") {
  const CpuCalibration calibration;
  std::vector<std::string> flags = on_cpus(calibration, {"--nproc_per_node=2", "--train_batch_size=8", "--compare"});
  const PlanOutput output = plan_output(flags);
  CHECK(output.exit_code == 0);
  flags.emplace_back("--json");
  const nlohmann::json ranked = nlohmann::json::parse(plan_output(flags).text)["ranked"];
  CHECK(ranked.size() >= 6);
  for (const nlohmann::json& one : ranked) CHECK(one["offload_optimizer"] == false);
}
