#include "app/train/train.hpp"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "app/checkpoint/resume_checks.hpp"
#include "app/checkpoint/resume_choice.hpp"
#include "app/config/run_setup.hpp"
#include "app/config/settings_table.hpp"
#include "app/config/zero_options.hpp"
#include "app/ec2/ec2_watch.hpp"
#include "app/gpu/gpu_models.hpp"
#include "app/gpu/nvml.hpp"
#include "app/health/stop_request.hpp"
#include "app/log/warning_queue.hpp"
#include "app/machine/cpu_share.hpp"
#include "app/machine/device.hpp"
#include "app/machine/device_choice.hpp"
#include "app/machine/host_limits.hpp"
#include "app/machine/system.hpp"
#include "app/memory/gpu_memory.hpp"
#include "app/memory/layout_choice.hpp"
#include "app/memory/run_memory.hpp"
#include "app/plan/estimate/predicted_step.hpp"
#include "app/train/communicators/network.hpp"
#include "app/train/same_settings.hpp"
#include "app/train/trainer.hpp"
#include "app/train/watched_run.hpp"
#include "app/watchdog/watchdog.hpp"
#include "base/collectives.hpp"
#include "base/device/simulated.hpp"
#include "base/error.hpp"
#include "base/output.hpp"
#include "base/process_group.hpp"
#include "base/text/times.hpp"
#include "base/words.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "parallel/comm/gpu_address.hpp"
#include "parallel/comm/nccl_communicator.hpp"
#include "parallel/host/tensor_memory.hpp"
#include "parallel/mpi/deadline.hpp"

namespace mpzero {

namespace {

// Converts GPU out-of-memory errors to a UserError with the memory breakdown.
int explain_out_of_memory(const RunMemory& memory, at::Device device, const std::function<int()>& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (device.is_cpu() || !is_out_of_gpu_memory(error)) throw;
    throw UserError(memory.explain_out_of_memory(error), error.scope());
  } catch (const std::exception& error) {
    if (device.is_cpu() || !is_out_of_gpu_memory(error)) throw;
    throw UserError(memory.explain_out_of_memory(error));
  }
}

// Returns the timeout for connecting the hosts and the function that handles it.
parallel::StartPatience start_patience(double stuck_after, Watchdog& watchdog) {
  return {.limit = parallel::to_milliseconds(stuck_after), .overdue = [&watchdog](const std::string& message) {
            watchdog.fail(Why::kStuck, fmt::format("{}: {}", message, parallel::kUnconnectedRemedy), kFailureExitCode);
          }};
}

// Returns a watch on one rank of each EC2 host, else null. The watch adds warnings to `warnings`. Collective.
std::unique_ptr<Ec2Watch> watch_ec2(const RunConfig& config, double began, StopRequest& stop, WarningQueue& warnings,
                                    parallel::MpiRuntime& mpi) {
  std::unique_ptr<Ec2Watch> watch;
  run_on_all_ranks(mpi, [&] {
    if (!config.ec2_notices || mpi.local_rank() != 0) return;
    const std::optional<Ec2WatchOptions> options = ec2_watch_options(began);
    const auto warn = [&warnings](const std::string& text) { warnings.warn(text + "."); };
    if (options) watch = std::make_unique<Ec2Watch>(*options, stop, warn);
  });
  return watch;
}

// Rank 0 reads `latest` for all ranks because another run may change it at any time. Collective.
io::InitialFolder find_init_from_on_rank_0(const CommandLine& command_line, parallel::MpiRuntime& mpi) {
  io::InitialFolder init;
  run_on_all_ranks(mpi, [&] {
    if (mpi.rank() == 0) init = find_init_from(command_line);
  });
  std::string folder = init.folder.string(), adapters = init.adapters.string();
  auto& [r, alpha, targets, rslora, dropout] = init.adapter_settings;
  std::tie(folder, init.is_checkpoint, init.is_latest, init.is_gone, init.model_config_json, init.eos_token_ids,
           init.tokenizer_hash, init.warnings, adapters, init.adapters_latest, r, alpha, targets, rslora, dropout,
           init.base_hash) =
      broadcast(mpi, std::tuple(folder, init.is_checkpoint, init.is_latest, init.is_gone, init.model_config_json,
                                init.eos_token_ids, init.tokenizer_hash, init.warnings, adapters, init.adapters_latest,
                                r, alpha, targets, rslora, dropout, init.base_hash));
  init.folder = folder;
  init.adapters = adapters;
  return init;
}

// Returns the NVLink domain of this host's GPUs; empty if there is none or if the GPUs belong to several domains.
std::string nvlink_domain() {
  const doctor::GpuSurvey survey = doctor::survey_gpus(doctor::System{}.nvml);
  if (survey.gpus.empty()) return "";
  const std::string& first = survey.gpus.front().nvlink_domain;
  const bool same = std::all_of(survey.gpus.begin(), survey.gpus.end(),
                                [&](const doctor::GpuState& gpu) { return gpu.nvlink_domain == first; });
  return same ? first : "";
}

// Collective.
void check_fp8(const RunConfig& config, at::Device device, parallel::MpiRuntime& mpi) {
  if (!config.fp8_options || !device.is_cuda()) return;
  const parallel::GpuProperties gpu = parallel::gpu_properties(device.index());
  run_on_all_ranks(mpi, [&] { check_fp8_gpu(gpu.name, gpu.capability, config.fp8 == "rowwise"); });
}

// Collective. Each host is identified by its first rank.
RankPlacement find_placement(at::Device device, parallel::MpiRuntime& mpi) {
  const int first = broadcast(*mpi.this_machine(), mpi.rank());
  RankPlacement ranks = placement_of(all_gather(mpi, first));
  if (!device.is_cuda() || ranks.hosts() == 1) return ranks;
  const std::vector<std::string> domains = all_gather(mpi, nvlink_domain());
  ranks.one_nvlink_domain =
      !domains.front().empty() &&
      std::all_of(domains.begin(), domains.end(), [&](const auto& one) { return one == domains.front(); });
  return ranks;
}

// Collective.
LayoutChoice find_nodes(const RunSetup& setup, at::Device device, const RankPlacement& ranks,
                        parallel::MpiRuntime& mpi) {
  PredictStep predict;
  if (device.is_cuda() && ranks.per_host) {
    predict = [run = plan::planned_run(setup, device, *ranks.per_host, available_host_bytes())](
                  const parallel::ParallelLayout& layout) { return plan::predicted_step(run, layout); };
  }
  return choose_layout_of_rank_0(mpi, setup, device, ranks, memory_limit(device, mpi), predict);
}

// Returns the settings after a resume, for the settings table. Ignores errors, because the resume reports them.
RunConfig expected_config(const RunSetup& setup) {
  if (setup.config.resume_from_checkpoint == "none") return setup.config;
  SingleProcess alone;
  try {
    const ResumeChoices choices = choose_checkpoints(setup.config, alone);
    if (choices.folders.empty()) return setup.config;
    return continue_run(*io::open_checkpoint(choices.folders.front()), setup).config;
  } catch (const Error&) {
    return setup.config;
  }
}

// Resolves and prints the settings of the run, and returns this rank's device. Collective.
at::Device set_up(const CommandLine& command_line, parallel::MpiRuntime& mpi, RunSetup& setup) {
  const io::InitialFolder init = find_init_from_on_rank_0(command_line, mpi);
  run_on_all_ranks(mpi, [&] { setup = set_up_run(command_line, init, mpi.world_size()); });
  check_same_settings(setup, mpi);
  configure_gpu_allocator();
  const DeviceChoice choice = choose_device(setup.config.device, mpi);
  if (!choice.warning.empty()) setup.warnings.push_back(choice.warning);
  check_fp8(setup.config, choice.device, mpi);
  if (choice.device.is_cpu()) parallel::use_tensor_memory();
  // Must precede find_nodes(), because the mode affects the kernels and therefore the estimated memory.
  at::globalContext().setDeterministicAlgorithms(setup.config.deterministic, /*warn_only=*/false);
  // mpzero never reads uninitialized memory, so filling it would only cost time.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  const CpuUse cpu = share_cores(choice.device, mpi);
  if (cpu.warning) setup.warnings.push_back(*cpu.warning);
  const RankPlacement ranks = find_placement(choice.device, mpi);
  setup.hosts = ranks.hosts();
  setup.device = broadcast(mpi, device_name(choice.device));
  simulate_hardware(setup.device, /*threads=*/0);
  if (choice.device.is_cuda()) {
    // Use the maximum, because all ranks must plan the same recomputation and layout.
    simulated_target().multiprocessors = max(mpi, parallel::gpu_properties(choice.device.index()).multiprocessors);
  }
  if (choice.device.is_cuda()) setup.peer_gpus = parallel::copy_engine_ranks(mpi);
  warn_of_device(setup);
  const LayoutChoice nodes = find_nodes(setup, choice.device, ranks, mpi);
  setup.layout = nodes.layout;
  if (!nodes.warning.empty()) setup.warnings.push_back(nodes.warning);
  if (mpi.rank() == 0) {
    for (const std::string& warning : setup.warnings) print_warning(warning);
    RunSetup expected = setup;
    expected.config = expected_config(setup);
    const RunConfig& config = expected.config;
    print_out("Training {} on {}: {} of {} x {} tokens, ZeRO-{}{}, {}\n", config.model_type,
              describe_devices(choice.device, mpi), counted(config.max_steps, "step"),
              counted(config.train_batch_size, "sequence"), config.seq_length, config.zero.stage,
              describe_levels(setup.layout), config.dtype);
    for (const std::string& line : describe_mixture(setup, config.max_steps)) print_out("Mixture {}\n", line);
    for (const std::string& line : describe_validation(setup)) print_out("Validation {}\n", line);
    if (!cpu.line.empty()) print_out("{}\n", cpu.line);
    if (!nodes.line.empty()) print_out("{}\n", nodes.line);
    for (const std::string& line : settings_table(expected)) print_out("{}\n", line);
  }
  return choice.device;
}

}  // namespace

int train(const CommandLine& command_line, parallel::MpiRuntime& mpi) {
  const double began = seconds_since_1970();
  StopRequest stop;
  // Start the watchdog before accessing files, GPUs and the network, which may hang.
  Watchdog watchdog(mpi, stop,
                    {.checkpoint_dir = command_line.checkpoint_dir, .stuck_after = command_line.stuck_after});
  if (mpi.rank() == 0 && !watchdog.warning().empty()) {
    print_warning(watchdog.warning());
  }
  WarningQueue warnings;
  std::unique_ptr<Ec2Watch> ec2;
  RunControl control{
      .stop = stop, .watchdog = watchdog, .began = began, .ec2 = nullptr, .warnings = &warnings, .plans = true};
  // These objects must outlive the error report: the report reads the state of their collectives, and their destructors
  // may wait for collectives that never complete.
  RunSetup setup;
  std::optional<Network> network;
  std::optional<RunMemory> memory;
  std::optional<Trainer> trainer;
  return run_watched(watchdog, [&] {
    const at::Device device = set_up(command_line, mpi, setup);
    watchdog.use_device(device);
    ec2 = watch_ec2(setup.config, began, stop, warnings, mpi);
    control.ec2 = ec2.get();
    // Must precede NCCL's start, because the expected limit subtracts NCCL's memory from the free GPU memory.
    memory.emplace(setup, device, mpi);
    watchdog.enter(RunPhase::kNetwork, /*step=*/0);
    network.emplace(setup.config.network, device, mpi, start_patience(setup.config.stuck_after, watchdog));
    control.network = network->proven();
    if (!control.network.empty() && setup.hosts * mpi.local_size() == mpi.world_size()) {
      const plan::PlannedRun run = plan::planned_run(setup, device, mpi.local_size(), memory->host_at_start());
      const std::string warning = plan::assumed_network_warning(run, control.network);
      if (!warning.empty()) print_warning(warning);
    }
    watchdog.enter(RunPhase::kSetUp, /*step=*/0);
    memory->check_micro_batch(mpi);
    return explain_out_of_memory(*memory, device, [&] {
      trainer.emplace(mpi, *network, std::move(setup), device, *memory, control);
      const TrainingEnd end = trainer->run();
      stop.ignore_signals();
      return end == TrainingEnd::kStopped ? kStoppedExitCode : EXIT_SUCCESS;
    });
  });
}

}  // namespace mpzero
