#include "app/dry_run/dry_run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "app/checkpoint/resume_preview.hpp"
#include "app/config/settings_table.hpp"
#include "app/config/zero_options.hpp"
#include "app/dry_run/tokenizer_file.hpp"
#include "app/gpu/gpu_models.hpp"
#include "app/machine/device_choice.hpp"
#include "app/memory/layout_choice.hpp"
#include "app/plan/estimate/predicted_step.hpp"
#include "app/schedule/schedule_rates.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/output.hpp"
#include "base/process_group.hpp"
#include "base/saturating_product.hpp"
#include "base/words.hpp"
#include "model/decoder.hpp"

namespace mpzero {
namespace {

std::string describe_length(const RunSetup& setup, const RunPosition& at) {
  const RunConfig& config = setup.config;
  const int64_t tokens = config.train_batch_size * config.seq_length;
  if (!setup.knows_length()) {
    return fmt::format("unknown until --train_data is prepared; {} tokens per step", tokens);
  }
  const int64_t steps = std::max<int64_t>(0, config.max_steps - at.step);
  const int64_t left = saturating_product(steps, tokens);
  const bool countable = left < std::numeric_limits<int64_t>::max() - at.tokens_seen;
  const std::string done = at.step > 0 ? fmt::format("{} done, ", counted(at.step, "step")) : std::string();
  const std::string length =
      fmt::format("{}{} of {} x {}: {}{} tokens in total", done, counted(steps, "step"),
                  counted(config.train_batch_size, "sequence"), counted(config.seq_length, "token"),
                  countable ? "" : "more than ", countable ? at.tokens_seen + left : left);
  if (setup.train_windows == 0) return length;
  const double sequences = static_cast<double>(at.sequences_seen) +
                           static_cast<double>(steps) * static_cast<double>(config.train_batch_size);
  return fmt::format("{}, {:.4g} epochs of the training data", length,
                     sequences / static_cast<double>(setup.train_windows));
}

// Describes the first learning rate after `step`, the peak and the last one.
std::string learning_rates(const RunSetup& setup, int64_t step) {
  const RunConfig& config = setup.config;
  if (!setup.knows_length() && (config.schedule_ends_at_max_steps || step > 0)) {
    return "unknown until --train_data is prepared, since the schedule depends on the number of steps";
  }
  const parallel::LrSchedule& schedule = config.schedule_in_force();
  if (setup.knows_length() && step >= config.max_steps) return "none, since no steps remain";
  const int64_t last = setup.knows_length() ? config.max_steps : step + schedule.warmup_num_steps() + 2;
  return describe_rates(schedule, step + 1, std::max(last, step + 1));
}

std::string describe_data(const RunSetup& setup) {
  const std::string data = setup.data_order.empty() ? "--train_data " + setup.config.train_data
                                                    : setup.data_order + ", " + setup.config.train_data;
  if (setup.missing_data.empty()) return data;
  const std::string missing = fmt::format("not prepared: {}", fmt::join(setup.missing_data, ", "));
  // Set by the launch scripts, which prepare the data before they train.
  if (const std::string source = parallel::process_environment("MPZERO_PREPARES_FROM").value_or(""); !source.empty()) {
    return fmt::format("{}; the launch script prepares the data from {}", missing, source);
  }
  return fmt::format("{}; to create the data, run: {}", missing, setup.prepare_command);
}

std::string describe_start(const RunSetup& setup, const ResumePreview& preview) {
  const RunConfig& config = setup.config;
  const std::optional<Resumed>& resumed = preview.resumed;
  const std::string moves = preview.moved_to
                                ? fmt::format("; --overwrite moves the other run's checkpoints in {} to {}",
                                              config.checkpoint_dir, preview.moved_to->string())
                                : std::string();
  if (!resumed) {
    const std::string adapters = config.init_adapters.empty() ? "" : " and the adapters of " + config.init_adapters;
    const std::string weights = config.init_from.empty() ? fmt::format("random weights from seed {}", config.seed)
                                                         : "the weights of " + config.init_from;
    const std::string nothing =
        moves.empty() ? fmt::format("; {} contains no checkpoint", config.checkpoint_dir) : moves;
    return fmt::format("from step 0, with {}{}{}", weights, adapters, nothing);
  }
  const int64_t step = resumed->position.step;
  std::string rest;
  if (setup.knows_length()) {
    const int64_t left = config.max_steps - step;
    rest = left > 0 ? fmt::format("; {} remain{}", counted(left, "step"), left == 1 ? "s" : "")
                    : fmt::format(", which is the end of the run ({}); raise --max_steps to continue",
                                  counted(config.max_steps, "step"));
  }
  return fmt::format("after step {}, from {}{}{}", step, resumed->checkpoint.string(), rest, moves);
}

void check_tokenizer(const CommandLine& line, const model::ModelConfig& model, std::vector<std::string>& warnings) {
  if (line.tokenizer.empty()) return;
  const std::optional<TokenizerSize> size = read_tokenizer_size(line.tokenizer);
  if (!size || size->all <= model.vocab_size) return;
  const std::string sentence = fmt::format(
      "--tokenizer {} has {} ids, but the largest id in the model's vocabulary is {}; use the model's tokenizer, or "
      "--vocab_size {}.",
      line.tokenizer, size->all, model.vocab_size - 1, size->all);
  if (size->regular > model.vocab_size) throw UserError(sentence);
  warnings.push_back(sentence);
}

}  // namespace

DryRunRanks dry_run_ranks(const CommandLine& line, const parallel::LaunchSize& launch) {
  DryRunRanks ranks{.world_size = static_cast<int>(line.world_size.value_or(launch.world_size)), .per_host = 1};
  const int all = ranks.world_size;
  const int placed = line.world_size ? all : launch.per_host.value_or(all);
  ranks.per_host = static_cast<int>(line.nproc_per_node.value_or(placed));
  ranks.started = !line.world_size && launch.world_size > 1;
  ranks.consecutive = line.world_size.has_value() || !launch.around_hosts;
  if (all % ranks.per_host != 0) {
    throw_user_error("the number of ranks, {}, is not a multiple of --nproc_per_node {}; change either number.", all,
                     ranks.per_host);
  }
  return ranks;
}

RankPlacement placement_of(const DryRunRanks& ranks) {
  const int hosts = ranks.world_size / ranks.per_host;
  std::vector<int> host_of;
  for (int rank = 0; rank < ranks.world_size; ++rank) {
    host_of.push_back(ranks.consecutive ? rank / ranks.per_host : rank % hosts);
  }
  return placement_of(host_of);
}

bool chooses_for_gpus(const std::string& device, const DryRunRanks& ranks, const MachineMemory& machine) {
  if (device != "auto") return device == "cuda";
  return machine.gpus > 0 || (!ranks.started && ranks.world_size > ranks.per_host);
}

std::vector<std::string> describe_run(const RunSetup& setup, const DryRunRanks& ranks, const ResumePreview& preview) {
  const RunConfig& config = setup.config;
  const std::optional<Resumed>& resumed = preview.resumed;
  const int hosts = ranks.world_size / ranks.per_host;
  const RunPosition at = resumed ? resumed->position : RunPosition{};
  std::vector<std::string> lines = {
      fmt::format("Dry run: no training, no files written."),
      fmt::format("  {:<14} {}, {} parameters, {}", "model", config.model_type, model::num_parameters(setup.model),
                  counted(setup.model.num_hidden_layers, "layer")),
      fmt::format("  {:<14} {} on {}, ZeRO-{}{}, {}", "ranks", ranks.world_size, counted(hosts, "host"),
                  config.zero.stage, describe_levels(setup.layout), config.dtype),
      fmt::format("  {:<14} {} = {} x {} x {}", "global batch", config.train_batch_size, config.micro_batch_size,
                  config.gradient_accumulation_steps, setup.layout.data_parallel_size()),
      fmt::format("  {:<14} {}", "length", describe_length(setup, at)),
      fmt::format("  {:<14} {}", "learning rate", learning_rates(setup, at.step)),
      fmt::format("  {:<14} {}", "data", describe_data(setup))};
  if (setup.knows_length()) {
    for (const std::string& line : describe_mixture(setup, std::max<int64_t>(0, config.max_steps - at.step))) {
      lines.push_back(fmt::format("  {:<14} {}", "mixture", line));
    }
  }
  for (const std::string& line : describe_validation(setup)) {
    lines.push_back(fmt::format("  {:<14} {}", "validation", line));
  }
  lines.push_back(fmt::format("  {:<14} {}", "starts", describe_start(setup, preview)));
  for (const std::string& change : resumed ? resumed->changes : std::vector<std::string>()) {
    lines.push_back("  " + change);
  }
  return lines;
}

int dry_run(const CommandLine& line, const parallel::LaunchSize& launch) {
  const DryRunRanks ranks = dry_run_ranks(line, launch);
  RunSetup setup = set_up_run(line, ranks.world_size, DataFiles::kMayBeMissing);
  check_tokenizer(line, setup.model, setup.warnings);
  SingleProcess alone;
  if (setup.missing_data.empty()) setup.data = identify_data(setup.config, alone);
  const model::Decoder decoder(setup.model);
  const ResumePreview preview = preview_resume(setup, decoder.units(), setup.warnings);
  if (preview.resumed) setup.config = preview.resumed->config;
  const MachineMemory machine = this_machine();
  const bool maybe_on_gpus = setup.config.device != "cpu";
  const bool on_gpus = chooses_for_gpus(setup.config.device, ranks, machine);
  simulate_hardware(machine.gpu_name, /*threads=*/0);
  const MemoryNeed limit = memory_limit(ranks, machine, on_gpus);
  const GpuModel* gpu = find_gpu_model(machine.gpu_name);
  setup.peer_gpus = gpu != nullptr && gpu->nvlink == 0 ? 1 : ranks.per_host;
  std::optional<plan::PlannedRun> run;
  if (on_gpus && can_be_host_of(machine, ranks)) {
    run.emplace(plan::planned_run(setup, machine.gpu_name, *machine.smallest_gpu, ranks.world_size / ranks.per_host,
                                  ranks.per_host, machine.host));
  }
  PredictStep predict;
  if (run) predict = [&](const parallel::ParallelLayout& layout) { return plan::predicted_step(*run, layout); };
  const LayoutChoice nodes =
      choose_layout(setup, at::Device(on_gpus ? at::kCUDA : at::kCPU), placement_of(ranks), limit, predict);
  setup.layout = nodes.layout;
  setup.hosts = ranks.world_size / ranks.per_host;
  setup.device = !on_gpus ? "cpu" : machine.gpu_name.empty() ? "cuda" : machine.gpu_name;
  warn_of_device(setup);
  if (!nodes.warning.empty()) setup.warnings.push_back(nodes.warning);
  if (maybe_on_gpus) {
    if (setup.config.fp8_options && can_be_host_of(machine, ranks)) {
      check_fp8_gpu(machine.gpu_name, setup.config.fp8 == "rowwise");
    }
    if (const auto problem = memory_problem(setup, ranks, machine)) throw UserError(*problem);
  }
  std::vector<std::string> lines = describe_run(setup, ranks, preview);
  const auto add = [&](const std::vector<std::string>& more) { lines.insert(lines.end(), more.begin(), more.end()); };
  if (!nodes.line.empty()) lines.push_back("  " + nodes.line);
  add(memory_report(setup, ranks, on_gpus, limit, run ? plan::predicted_release(*run) : std::nullopt));
  add(settings_table(setup));
  lines.emplace_back(
      "Not checked: GPUs and network (run mpzero doctor), and the checksums of the data, weights and checkpoint.");
  for (const std::string& warning : setup.warnings) print_warning(warning);
  for (const std::string& text : lines) print_out("{}\n", text);
  return EXIT_SUCCESS;
}

}  // namespace mpzero
