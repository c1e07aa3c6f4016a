#include "app/plan/command/plan_command.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "app/config/model_limits.hpp"
#include "app/flags/help.hpp"
#include "app/flags/options.hpp"
#include "app/gpu/gpu_models.hpp"
#include "app/machine/device_choice.hpp"
#include "app/plan/calibrate_command.hpp"
#include "app/plan/command/comparison_report.hpp"
#include "app/plan/command/plan_comparison.hpp"
#include "app/plan/command/plan_limit.hpp"
#include "app/plan/command/plan_options.hpp"
#include "app/plan/command/plan_report.hpp"
#include "app/plan/estimate/rates.hpp"
#include "base/command_line/arguments.hpp"
#include "base/error.hpp"
#include "base/output.hpp"
#include "base/text/printable.hpp"
#include "io/ds_config/ds_config.hpp"

namespace mpzero::plan {
namespace {

// Maximum of --world_size.
constexpr int64_t kMostRanks = 1'000'000;
// Bounds and step of --max_seq_length and --largest_model.
constexpr int64_t kSequenceStep = 256;
constexpr int64_t kLongestSequence = int64_t{1} << 26;
constexpr int64_t kMostLayers = 1024;

// Parses the flags of `mpzero train` as for a dry run.
CommandLine read_train_flags(std::vector<std::string> arguments) {
  const auto gives = [&](const std::string& flag) {
    return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
      return argument == flag || argument.starts_with(flag + "=");
    });
  };
  if (!gives("--dry_run")) arguments.emplace_back("--dry_run");
  CommandLine line = parse_command_line(arguments, plan_flag_names(), kListedByPlanHelp);
  if (line.world_size) {
    throw_user_error("--world_size {} does not apply to plans; pass --instance or --gpu, and --nodes.",
                     *line.world_size);
  }
  return line;
}

// Returns the training tokens, or 0 if unknown because the dataset determines the steps of --epochs.
double tokens_of(const PlanOptions& options, const RunConfig& config) {
  if (options.tokens > 0 || config.counts_epochs()) return options.tokens;
  return static_cast<double>(config.max_steps) * static_cast<double>(config.train_batch_size) *
         static_cast<double>(config.seq_length);
}

PlanMachine machine_of(const PlanOptions& options, const CommandLine& line) {
  if (line.nproc_per_node.value_or(1) > kMostRanks / options.nodes) {
    throw_user_error("--nodes {} with --nproc_per_node {} exceeds {} ranks; reduce one of them.", options.nodes,
                     *line.nproc_per_node, kMostRanks);
  }
  const std::optional<int> per_host =
      line.nproc_per_node ? std::optional(static_cast<int>(*line.nproc_per_node)) : std::nullopt;
  return find_machine(options, line.network, per_host, line.device == "cpu" ? at::kCPU : at::kCUDA);
}

// Returns one machine, or the machines of --instances.
std::vector<PlanMachine> asked_machines(const PlanOptions& options, const CommandLine& line) {
  if (options.instances.empty()) return {machine_of(options, line)};
  std::vector<PlanMachine> all;
  PlanOptions one = options;
  for (const auto& [type, nodes] : options.instances) {
    one.instance = type;
    one.nodes = nodes;
    all.push_back(machine_of(one, line));
  }
  return all;
}

// Returns the setup on the first hosts whose number of ranks divides the batch. If no hosts qualify, throws the first
// error with the requirements of a comparison.
RunSetup set_up_comparison(const CommandLine& line, const std::vector<PlanMachine>& asked) {
  std::optional<std::string> refused;
  for (const PlanMachine& machine : asked) {
    try {
      return set_up_run(line, machine.world_size(), DataFiles::kMayBeUnnamed);
    } catch (const BatchRefused& error) {
      if (!refused) refused = error.what();
    }
  }
  throw_user_error(
      "{} --compare chooses the micro-batch size and gradient accumulation; pass only --train_batch_size, a multiple "
      "of the number of ranks for at least one host type. With --deepspeed_config, add --deepspeed_config_yields true "
      "or set these keys to \"auto\".",
      *refused);
}

// If only the global batch is set and the implied micro-batch does not fit, selects the largest micro-batch that fits,
// if possible without activations in host memory. `margin`: require that the run leaves the margin of --recompute auto
// free.
void fit_micro_batch(RunSetup& setup, const PlanMachine& machine, const PlanAssumptions& assumptions, bool margin) {
  const auto computed = [&](const char* flag) {
    const Origin::Kind kind = setup.config.origins.of(flag).kind;
    return kind != Origin::Kind::kFlag && kind != Origin::Kind::kFile;
  };
  if (!computed("train_micro_batch_size_per_gpu") || !computed("gradient_accumulation_steps")) return;
  const int64_t of_rank = setup.config.micro_batch_size;
  std::vector<int64_t> choices;
  for (int64_t micro = 1; micro < of_rank; ++micro) {
    if (of_rank % micro == 0) choices.push_back(micro);
  }
  const auto with = [&](int64_t micro) {
    RunSetup tried = setup;
    tried.config.micro_batch_size = micro;
    tried.config.gradient_accumulation_steps = of_rank / micro;
    tried.layout = layout_of(tried, machine, nullptr, assumptions).layout;
    return tried;
  };
  // Every --recompute mode keeps the inputs of all layers, on the GPU or on the host. This check excludes micro-batches
  // without a simulation, which would take minutes for thousands of sequences.
  const double most = machine.is_cpu()
                          ? static_cast<double>(machine.host_bytes)
                          : static_cast<double>(machine.gpu_bytes) + static_cast<double>(machine.host_bytes);
  const auto is_possible = [&](int64_t micro) {
    RunConfig config = setup.config;
    config.micro_batch_size = micro;
    const double inputs = static_cast<double>(config.micro_batch_tokens()) *
                          static_cast<double>(setup.model.num_hidden_layers * setup.model.hidden_size) *
                          (config.dtype == "bf16" ? 2.0 : 4.0);
    return machine.host_bytes == 0 || inputs <= most;
  };
  for (const bool on_host : {false, true}) {
    const auto fits = [&](int64_t micro) {
      if (!is_possible(micro)) return false;
      const PlanEstimate::Memory memory = estimate_plan(with(micro), machine, nullptr, assumptions).memory;
      return memory.fits && (!margin || memory.beyond_margin == 0) && (on_host || !memory.needs_host);
    };
    // Without accumulation, gradients may need less memory. Otherwise, memory grows with the micro-batch.
    if (fits(of_rank)) {
      setup = with(of_rank);
      return;
    }
    const auto beyond = std::partition_point(choices.begin(), choices.end(), fits);
    if (beyond == choices.begin()) continue;
    const int64_t micro = *std::prev(beyond);
    RunSetup chosen = with(micro);
    chosen.warnings.push_back(fmt::format(
        "the micro-batch of {} implied by train_batch_size {} does not fit; this plan uses "
        "--train_micro_batch_size_per_gpu {} --gradient_accumulation_steps {}; pass these flags to `mpzero train`.",
        of_rank, setup.config.train_batch_size, micro, of_rank / micro));
    setup = std::move(chosen);
    return;
  }
}

struct LargestRun {
  RunSetup setup;
  std::string report;
};

// The run with the longest sequences or the most layers that fits.
LargestRun largest_run(PlanLimit limit, const CommandLine& line, const PlanMachine& machine,
                       const PlanAssumptions& assumptions) {
  const bool layers = limit == PlanLimit::kLayers;
  const char* const search = layers ? "largest_model" : "max_seq_length";
  const std::string flag = layers ? "num_hidden_layers" : "seq_length";
  if (line.gives(flag)) {
    throw_user_error("--{} and --{} {} conflict; pass one of them.", search, line.name_of(flag),
                     layers ? *line.model_overrides.num_hidden_layers : line.seq_length);
  }
  // For --max_seq_length, a multiple of the sequence-parallel ranks within the limits of all presets.
  CommandLine first = line;
  if (!layers) {
    const int64_t ranks =
        line.deepspeed_config.empty() ? 1 : io::read_ds_config(line.deepspeed_config).sequence_parallel_size.value;
    first.seq_length = std::max(ranks, kSequenceStep / ranks * ranks);
  }
  const RunSetup base = set_up_run(first, machine.world_size(), DataFiles::kMayBeUnnamed);
  if (base.model.t5) {
    throw_user_error(
        "--{} does not support encoder-decoder models ({}); omit it, and pass --seq_length and --source_length.",
        search, base.model.model_type);
  }
  // --recompute auto and host offload activations.
  const bool offloads_activations = !machine.is_cpu() && base.config.recompute > Recomputation::kTiled;
  if (machine.host_bytes == 0 && (base.config.zero.offload_optimizer || offloads_activations)) {
    throw_user_error("--{} with offload requires the size of host memory; pass --host_memory or --instance.", search);
  }
  const int64_t of_model = base.model.max_position_embeddings;
  const auto set_up = [&](int64_t value) {
    CommandLine changed = line;
    if (layers) {
      changed.model_overrides.num_hidden_layers = value;
    } else {
      changed.seq_length = value;
      if (value > of_model) changed.model_overrides.max_position_embeddings = value;
    }
    RunSetup one = set_up_run(changed, machine.world_size(), DataFiles::kMayBeUnnamed);
    fit_micro_batch(one, machine, assumptions, /*margin=*/true);
    one.layout = layout_of(one, machine, nullptr, assumptions).layout;
    return one;
  };
  const auto problem = [&](int64_t value) -> Problem {
    return estimate_plan(set_up(value), machine, nullptr, assumptions).memory.problem;
  };
  const LargestFit largest =
      layers ? largest_fit(1, kMostLayers, problem)
             : largest_fit(kSequenceStep * base.config.sequence_parallel_size, kLongestSequence, problem);
  LargestRun run{.setup = set_up(largest.value), .report = ""};
  const std::string value = fmt::format("{} {}", largest.value, layers ? "layers" : "tokens");
  run.report = !largest.fits
                   ? fmt::format("the run does not fit even with {}, the smallest value: {}", value, largest.problem)
               : layers ? fmt::format("largest model with these dimensions: {}", value)
                        : fmt::format("maximum sequence length: {}", value);
  if (largest.fits) {
    run.report += largest.problem.empty() ? "; larger values were not tried"
                                          : "; the next larger value fails: " + largest.problem;
  }
  if (!layers && largest.value > of_model) {
    run.setup.warnings.push_back(fmt::format(
        "sequences of {} tokens exceed the model's max_position_embeddings {}: train with --max_position_embeddings {}",
        largest.value, of_model, largest.value));
  }
  return run;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += printable(line) + "\n";
  return text;
}

}  // namespace

PlanOutput plan_output(const std::vector<std::string>& arguments) {
  // The simulation requires no autograd, which would take a quarter of the time.
  const at::AutoDispatchBelowADInplaceOrView without_autograd;
  if (std::ranges::any_of(arguments, asks_for_help)) {
    const std::string flag = flag_after_help(arguments);
    const std::string own = plan_help(flag);
    return {.text = own.empty() ? flag_help(flag) : own, .warnings = {}};
  }
  const PlanOptions options = parse_plan_options(arguments);
  const CommandLine line = read_train_flags(options.rest);
  if (options.tokens > 0 && line.gives("max_steps")) {
    throw_user_error("--tokens and --max_steps both set the run's length; remove one of them.");
  }
  const bool on_cpu = line.device == "cpu";
  if (on_cpu && !options.gpu.empty()) {
    throw_user_error("--gpu {} and --device cpu are mutually exclusive; remove one of them.", options.gpu);
  }
  if (line.nproc_per_node && !options.instance.empty() && !on_cpu) {
    throw_user_error(
        "--nproc_per_node {} conflicts with --instance {}, which sets the GPUs per host; remove one of them.",
        *line.nproc_per_node, options.instance);
  }
  const std::vector<PlanMachine> asked = asked_machines(options, line);
  const PlanMachine& machine = asked.front();
  simulate_hardware(machine.gpu, machine.threads);
  std::optional<Calibration> calibration;
  std::string memory_only;
  try {
    calibration = calibration_of(machine, options.calibration);
  } catch (const UserError& error) {
    // With several host types, types without a calibration are excluded.
    if ((options.compare && asked.size() == 1) || !options.calibration.empty()) throw;
    memory_only = fmt::format("only memory is estimated: {}", error.what());
  }
  const PlanAssumptions& assumptions = options.assumptions;
  const LargestRun run =
      options.limit != PlanLimit::kNone
          ? largest_run(options.limit, line, machine, assumptions)
          : LargestRun{.setup = options.compare ? set_up_comparison(line, asked)
                                                : set_up_run(line, machine.world_size(), DataFiles::kMayBeUnnamed),
                       .report = ""};
  RunSetup setup = run.setup;
  if (!options.prices.empty()) {
    const std::string sentence = unknown_in_price_file(options.prices, machine.name);
    if (!sentence.empty()) setup.warnings.push_back(sentence);
  }
  if (setup.config.fp8_options && !machine.is_cpu() && asked.size() == 1)
    check_fp8_gpu(machine.gpu, setup.config.fp8 == "rowwise");
  if (calibration && !options.calibration.empty()) {
    const std::string sentence = of_another_device(*calibration, machine);
    if (!sentence.empty()) setup.warnings.push_back(sentence);
  }
  if (setup.config.fp8_options && on_cpu && calibration) {
    if (options.compare) {
      throw_user_error(
          "--fp8 (fp8.enabled): --compare requires FP8 kernel times, which CPUs lack; disable FP8, or plan for GPUs.");
    }
    memory_only =
        "only memory is estimated: there are no FP8 kernel times for CPUs, which compute FP8 matmuls in fp32.";
    calibration.reset();
  }
  if (!options.compare && options.limit == PlanLimit::kNone)
    fit_micro_batch(setup, machine, assumptions, /*margin=*/false);
  // If the calibration lacks times, estimates only memory.
  const auto with_times = [&](const auto& plan) {
    try {
      return plan(calibration ? &*calibration : nullptr);
    } catch (const MissingTimes& error) {
      memory_only = fmt::format("only memory is estimated: {}", error.what());
      calibration.reset();
      return plan(nullptr);
    }
  };
  // compare_plans() chooses the layouts of a comparison.
  const LayoutChoice nodes = with_times([&](const Calibration* times) {
    return layout_of(setup, machine, options.compare ? nullptr : times, assumptions);
  });
  setup.layout = nodes.layout;
  if (!nodes.warning.empty()) setup.warnings.push_back(nodes.warning);
  if (calibration) {
    const std::string sentence = estimated_products(*calibration, setup.config);
    if (!sentence.empty()) setup.warnings.push_back(sentence);
  }
  if (options.compare) {
    const PlanComparison comparison = compare_plans(line, setup, asked, options);
    setup.warnings.insert(setup.warnings.end(), comparison.warnings.begin(), comparison.warnings.end());
    const double tokens = tokens_of(options, setup.config);
    return {.text = options.json ? comparison_json(comparison, tokens).dump(2) + "\n"
                                 : joined(describe_comparison(comparison, tokens)),
            .warnings = setup.warnings,
            .exit_code = comparison.ranked.empty() ? kUserErrorExitCode : EXIT_SUCCESS};
  }
  if (!options.prices.empty() && !machine.price) {
    setup.warnings.push_back(
        fmt::format("--prices {} has no price for {}, so costs are unknown.", options.prices, machine.name));
  }
  const PlanEstimate plan =
      with_times([&](const Calibration* times) { return estimate_plan(setup, machine, times, assumptions); });
  const Calibration* const times = calibration ? &*calibration : nullptr;
  if (!memory_only.empty()) setup.warnings.push_back(memory_only);
  const PlanFacts facts{.setup = setup,
                        .machine = machine,
                        .calibration = times,
                        .clipped_seconds = clipped_seconds(setup, machine, times, assumptions, plan),
                        .tokens = options.tokens,
                        .nodes = nodes.line,
                        .largest = run.report};
  return {.text = options.json ? plan_json(facts, plan).dump(2) + "\n" : joined(describe_plan(facts, plan)),
          .warnings = setup.warnings,
          .exit_code = plan.memory.fits ? EXIT_SUCCESS : kUserErrorExitCode};
}

int run_plan_command(const std::vector<std::string>& arguments) {
  if (asks_to_calibrate(arguments) && std::ranges::none_of(arguments, asks_for_help)) {
    return calibrate_command(arguments);
  }
  const PlanOutput output = plan_output(arguments);
  for (const std::string& warning : output.warnings) print_warning(warning);
  write_output(Output::kStdout, output.text);
  return output.exit_code;
}

}  // namespace mpzero::plan
