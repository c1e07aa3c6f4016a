#include "app/plan/command/plan_comparison.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "app/config/zero_options.hpp"
#include "app/machine/device_choice.hpp"
#include "app/machine/instances.hpp"
#include "app/plan/command/rates.hpp"
#include "base/error.hpp"
#include "base/words.hpp"
#include "io/files/scratch_file.hpp"

namespace mpzero::plan {
namespace {

using Json = nlohmann::ordered_json;

// Of a micro-batch that is tried to the one before.
constexpr double kMicroBatchRatio = 1.5;
// Rows of one kind of hosts that was asked for, and of each of several.
constexpr int kRowsOfAsked = 8, kRowsOfEach = 3;

// What a candidate changes.
struct Choice {
  int stage = 0;
  bool offload_optimizer = false, offload_param = false;
  bool node_a_host = false;  // two levels
  int64_t batch = 1, micro_batch = 1, accumulation = 1;
  std::string recompute;
};

std::string hosts_of(const PlanMachine& machine) { return fmt::format("{} x {}", machine.nodes, machine.name); }

// `scheduler`; nothing where a flag gives the schedule, or the rate is constant.
std::optional<Json> scheduler_of(const RunConfig& config) {
  // Not known before the data are.
  const bool open = config.counts_epochs();
  const auto steps = [](int64_t count, bool unknown) { return unknown ? Json("auto") : Json(count); };
  const auto section = [&](const char* type, Json params, const auto& schedule) {
    params["warmup_num_steps"] = steps(schedule.warmup_num_steps, open && config.warmup_ratio.has_value());
    params["warmup_type"] = schedule.warmup_type == parallel::WarmupType::kLog ? "log" : "linear";
    if constexpr (requires { schedule.total_num_steps; }) {
      params["total_num_steps"] = steps(schedule.total_num_steps, open && config.schedule_ends_at_max_steps);
    }
    return Json{{"type", type}, {"params", std::move(params)}};
  };
  const parallel::LrSchedule::Variant& variant = config.schedule.variant();
  if (const auto* one = std::get_if<parallel::WarmupLr>(&variant)) {
    return section("WarmupLR", {{"warmup_min_lr", one->min_lr}, {"warmup_max_lr", one->max_lr}}, *one);
  }
  if (const auto* one = std::get_if<parallel::WarmupDecayLr>(&variant)) {
    return section("WarmupDecayLR", {{"warmup_min_lr", one->min_lr}, {"warmup_max_lr", one->max_lr}}, *one);
  }
  if (const auto* one = std::get_if<parallel::WarmupCosineLr>(&variant)) {
    return section("WarmupCosineLR",
                   {{"warmup_min_ratio", one->warmup_min_ratio}, {"cos_min_ratio", one->cos_min_ratio}}, *one);
  }
  return std::nullopt;
}

// What the run trains with, whether flags, the file or defaults say it.
void add_training(Json& json, const RunConfig& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  Json& section = json["optimizer"];
  if (!section.is_object()) section = {{"type", "AdamW"}};
  Json& params = section["params"];
  if (!params.is_object()) params = Json::object();
  params["lr"] = optimizer.lr;
  params["betas"] = {optimizer.beta1, optimizer.beta2};
  params["eps"] = optimizer.eps;
  params["weight_decay"] = optimizer.weight_decay;
  json["gradient_clipping"] = config.gradient_clipping;
  json.erase("scheduler");
  if (const auto scheduler = scheduler_of(config)) json["scheduler"] = *scheduler;
}

// The flags that say otherwise than a candidate.
std::vector<std::string> contradicting(const CommandLine& line, const Choice& choice) {
  std::vector<std::string> flags;
  const auto add = [&](const char* flag, int64_t given, int64_t chosen) {
    if (line.gives(flag) && given != chosen) flags.push_back(fmt::format("--{} {}", line.name_of(flag), given));
  };
  add("train_batch_size", line.train_batch_size, choice.batch);
  add("train_micro_batch_size_per_gpu", line.micro_batch_size, choice.micro_batch);
  add("gradient_accumulation_steps", line.gradient_accumulation_steps, choice.accumulation);
  if (line.gradient_checkpointing) {
    flags.push_back(fmt::format("--{} {}", line.name_of("gradient_checkpointing"), *line.gradient_checkpointing));
  }
  return flags;
}

// The user's file with a candidate's keys; all of them can be read by `mpzero train`.
Json ds_config_of(const RunSetup& setup, const PlanMachine& machine, const Choice& choice) {
  Json json = setup.config.ds_config_json.empty() ? Json{{"bf16", {{"enabled", setup.config.dtype == "bf16"}}}}
                                                  : Json::parse(setup.config.ds_config_json);
  add_training(json, setup.config);
  json["train_batch_size"] = choice.batch;
  json["train_micro_batch_size_per_gpu"] = choice.micro_batch;
  json["gradient_accumulation_steps"] = choice.accumulation;
  if (setup.config.fp8 != "none" || json.contains("fp8")) {
    json["fp8"]["enabled"] = setup.config.fp8 != "none";
    if (setup.config.fp8 != "none") json["fp8"]["recipe"] = setup.config.fp8;
  }
  Json& zero = json["zero_optimization"];
  if (!zero.is_object()) zero = Json::object();
  zero["stage"] = choice.stage;
  for (const char* key : {"offload_optimizer", "offload_param", "cpu_offload", "cpu_offload_param",
                          "zero_hpz_partition_size", "mics_shard_size"}) {
    zero.erase(key);
  }
  if (choice.offload_optimizer) zero["offload_optimizer"] = {{"device", "cpu"}, {"pin_memory", true}};
  if (choice.offload_param) zero["offload_param"] = {{"device", "cpu"}, {"pin_memory", true}};
  if (machine.nodes > 1 && choice.stage > 0)
    zero["mics_shard_size"] = choice.node_a_host ? machine.gpus : machine.world_size();
  return json;
}

Recomputation recomputation_of(const std::string& name) {
  const std::map<std::string, Recomputation> names = {{"none", Recomputation::kNone},
                                                      {"selective", Recomputation::kSelective},
                                                      {"full", Recomputation::kFull},
                                                      {"auto", Recomputation::kAuto}};
  return names.at(name);
}

// `sentence` without the path of the file that nobody has seen.
std::string without_path(std::string sentence, const std::string& path) {
  for (size_t at = sentence.find(path); at != std::string::npos; at = sentence.find(path)) {
    sentence.replace(at, path.size(), "its ds_config.json");
  }
  return sentence;
}

// Throws MissingTimes, and UserError where the run would refuse it.
PlanCandidate evaluate(const CommandLine& line, const RunSetup& base, const PlanMachine& machine,
                       const Calibration& calibration, const PlanAssumptions& assumptions, const Choice& choice) {
  PlanCandidate candidate{.machine = machine,
                          .ds_config = ds_config_of(base, machine, choice),
                          .contradicting = contradicting(line, choice),
                          .recompute = choice.recompute,
                          .stage = choice.stage,
                          .offload_optimizer = choice.offload_optimizer,
                          .offload_param = choice.offload_param,
                          .layout = {},
                          .plan = {}};
  const io::ScratchFile file;
  std::ofstream(file.path()) << candidate.ds_config.dump(2);
  CommandLine changed = line;
  changed.deepspeed_config = file.path().string();
  changed.recompute = recomputation_of(choice.recompute);
  changed.gradient_checkpointing.reset();
  for (const char* flag : {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}) {
    changed.given.erase(flag);
  }
  try {
    RunSetup setup = set_up_run(changed, machine.world_size(), DataFiles::kMayBeUnnamed);
    setup.layout = layout_of(setup, machine, &calibration, assumptions).layout;
    candidate.layout = setup.layout;
    candidate.plan = estimate_plan(setup, machine, &calibration, assumptions);
    candidate.host_is_measured = host_estimate(calibration, machine).bytes_per_second == 0;
  } catch (const MissingTimes&) {
    throw;
  } catch (const UserError& error) {
    throw UserError(without_path(error.what(), file.path().string()));
  }
  return candidate;
}

// Whether the GPUs of these hosts have the run's products in FP8.
bool multiplies(const PlanMachine& hosts, const RunConfig& config) {
  if (!config.fp8_options || hosts.is_cpu()) return true;
  try {
    check_fp8_gpu(hosts.gpu, config.fp8 == "rowwise");
  } catch (const UserError&) {
    return false;
  }
  return true;
}

// Divisors of a rank's part of the global batch, ascending: 1, 2, 3, 5, 9, 15, 30, … of 180.
std::vector<int64_t> micro_batches(int64_t of_rank) {
  std::vector<int64_t> divisors = {1};
  for (int64_t size = 2; size <= of_rank; ++size) {
    const bool apart = static_cast<double>(size) >= kMicroBatchRatio * static_cast<double>(divisors.back());
    if (of_rank % size == 0 && apart) divisors.push_back(size);
  }
  return divisors;
}

// Whether more memory would make it faster.
bool recomputes_by_need(const PlanCandidate& candidate) {
  const LayerLevels& levels = candidate.plan.memory.levels;
  return candidate.recompute == "auto" && levels.none != levels.count();
}

// Of a type of instances.
void add_price(PlanMachine& machine, const PlanOptions& options) {
  if (!options.prices.empty()) machine.price = price_in_file(options.prices, machine.name);
}

// Hosts of other types without GPUs, as many, with as many ranks on each.
std::vector<PlanMachine> cpu_machines(const PlanMachine& machine, const PlanOptions& options,
                                      const std::string& network) {
  std::vector<PlanMachine> all = {machine};
  for (const doctor::CpuInstance& instance : doctor::all_cpu_instances()) {
    if (instance.type == machine.name) continue;
    all.push_back(machine_of_cpu_instance(instance.type, machine.nodes, machine.gpus, network));
    add_price(all.back(), options);
  }
  return all;
}

// Hosts of other types with as many GPUs in all.
std::vector<PlanMachine> machines(const PlanMachine& machine, const PlanOptions& options, const std::string& network,
                                  std::vector<std::string>& left_out) {
  std::vector<PlanMachine> all = {machine};
  if (options.instance.empty()) return all;
  if (machine.is_cpu()) return cpu_machines(machine, options, network);
  for (const doctor::Instance& instance : doctor::all_instances()) {
    if (instance.type == machine.name) continue;
    if (machine.world_size() % instance.gpus != 0) {
      left_out.push_back(
          fmt::format("{}: {} GPUs do not fill hosts of {}", instance.type, machine.world_size(), instance.gpus));
      continue;
    }
    PlanMachine other = machine_of_instance(instance.type, machine.world_size() / instance.gpus, network);
    add_price(other, options);
    all.push_back(other);
  }
  return all;
}

// Of prices, rates and what the ranking compares.
std::vector<std::string> warnings_of(const PlanComparison& comparison, const PlanOptions& options) {
  const std::vector<PlanCandidate>& ranked = comparison.ranked;
  std::vector<std::string> warnings;
  std::set<std::string> without_price, without_rate;
  bool measured = false, estimated = false;
  for (const PlanCandidate& one : ranked) {
    if (!one.machine.price) without_price.insert(one.machine.name);
    if (one.machine.nodes > 1 && hosts_of(one.machine) != comparison.asked.front())
      without_rate.insert(one.machine.name);
    if (one.offload_optimizer) (one.host_is_measured ? measured : estimated) = true;
  }
  if (options.network_rate && !without_rate.empty()) {
    warnings.push_back(fmt::format("--network_rate {} is of the asked hosts alone: {} have the rates of data sheets.",
                                   *options.network_rate, fmt::join(without_rate, ", ")));
  }
  if (options.price && !without_price.empty()) {
    warnings.push_back(fmt::format("--price {} is of the asked hosts alone: {} have no cost; give all with --prices.",
                                   *options.price, fmt::join(without_price, ", ")));
  }
  if (!options.prices.empty() && !without_price.empty()) {
    warnings.push_back(fmt::format("--prices {} has no price of {}, so that there is no cost of them.", options.prices,
                                   fmt::join(without_price, ", ")));
  }
  if (measured && estimated) {
    warnings.emplace_back(
        "AdamW on the host is measured on some of these hosts and an estimate by data sheets on others: compare those "
        "that offload with care.");
  }
  return warnings;
}

// Of all ranks together: batches may differ.
double seconds_of_token(const PlanCandidate& one) {
  return one.plan.step.seconds / static_cast<double>(one.plan.tokens_per_step);
}

// Of the whole training.
struct RowLength {
  double hours = 0, gpu_hours = 0;
  std::optional<double> cost;
};

// Nothing where the tokens are not known.
std::optional<RowLength> length_of(const PlanCandidate& one, double tokens) {
  if (!(tokens > 0)) return std::nullopt;
  const PlanMachine& machine = one.machine;
  const double hours = tokens * seconds_of_token(one) / 3600;
  return RowLength{.hours = hours,
                   .gpu_hours = machine.is_cpu() ? 0 : hours * machine.world_size(),
                   .cost = machine.price ? std::optional(*machine.price * machine.nodes * hours) : std::nullopt};
}

// The fastest on one of the asked hosts; null: none fits there.
const PlanCandidate* best_of_asked(const PlanComparison& comparison) {
  const auto best = std::ranges::find_if(comparison.ranked, [&](const PlanCandidate& one) {
    return std::ranges::find(comparison.asked, hosts_of(one.machine)) != comparison.asked.end();
  });
  return best == comparison.ranked.end() ? nullptr : &*best;
}

void add_ds_config(std::vector<std::string>& lines, const std::string& whose, const PlanCandidate& one) {
  lines.push_back(fmt::format("ds_config.json of the fastest {}, for {} with --recompute {}, give or take {:.0f}%:",
                              whose, hosts_of(one.machine), one.recompute, 100 * one.plan.error));
  if (!one.contradicting.empty()) {
    lines.push_back(fmt::format("Leave out {}, which it contradicts.", fmt::join(one.contradicting, ", ")));
  }
  lines.push_back(one.ds_config.dump(2));
}

std::string placement(const PlanCandidate& candidate) {
  if (candidate.offload_param) return "optimizer, parameters";
  return candidate.offload_optimizer ? "optimizer" : "";
}

std::string recomputed(const LayerLevels& levels) {
  if (levels.none == levels.count()) return "none";
  if (levels.full == levels.count()) return "full";
  if (levels.selective == levels.count()) return "selective";
  return "mixed";
}

}  // namespace

PlanComparison compare_plans(const CommandLine& line, const RunSetup& setup, const std::vector<PlanMachine>& asked,
                             const PlanOptions& options) {
  const PlanMachine& machine = asked.front();
  const bool several = asked.size() > 1;
  const PlanAssumptions assumptions{.straggler_factor = options.straggler_factor,
                                    .network_factor = options.network_factor,
                                    .disk_rate = options.disk_rate};
  std::vector<std::string> recomputations = {"auto"};
  if (setup.config.recompute == Recomputation::kFull) recomputations.emplace_back("full");
  if (setup.config.recompute == Recomputation::kSelective) recomputations.emplace_back("selective");
  if (setup.config.recompute == Recomputation::kNone) recomputations.emplace_back("none");
  PlanComparison comparison{
      .ranked = {}, .asked = {}, .train_batch_size = setup.config.train_batch_size, .left_out = {}, .warnings = {}};
  for (const PlanMachine& one : asked) comparison.asked.push_back(hosts_of(one));
  std::vector<std::string> other_batches;
  std::map<std::string, std::vector<std::string>> uncalibrated;  // instances by GPU
  std::map<std::string, std::vector<std::string>> without_fp8;   // likewise
  std::map<std::string, int64_t> without_times, refused;         // configurations by the reason, with the hosts
  for (const PlanMachine& hosts : several ? asked : machines(machine, options, line.network, comparison.left_out)) {
    const int ranks = hosts.world_size();
    int64_t batch = setup.config.train_batch_size;
    if (batch % ranks != 0) {
      if (!several) continue;
      batch = (batch / ranks + 1) * ranks;
      other_batches.push_back(fmt::format("{} has {} sequences a step", hosts_of(hosts), batch));
    }
    if (!multiplies(hosts, setup.config)) {
      without_fp8[hosts.gpu].push_back(hosts.name);
      continue;
    }
    std::optional<Calibration> calibration;
    try {
      calibration = calibration_of(hosts, hosts.name == machine.name ? options.calibration : "");
    } catch (const UserError&) {
      if (!several && hosts.name == machine.name) throw;
      uncalibrated[hosts.device_name()].push_back(hosts.name);
      continue;
    }
    const int64_t of_rank = batch / ranks;
    bool fits = false;  // some configuration of this micro-batch, or none was refused for its memory
    // Whether offloading cannot make it faster.
    const auto try_one = [&](const Choice& choice) {
      ++comparison.tried;
      std::optional<PlanCandidate> candidate;
      const auto reason = [&](const UserError& error) {
        return fmt::format("on {}: {}", hosts_of(hosts), error.what());
      };
      try {
        candidate = evaluate(line, setup, hosts, *calibration, assumptions, choice);
      } catch (const MissingTimes& error) {  // it fits
        ++without_times[reason(error)];
        return fits = true;
      } catch (const UserError& error) {  // a larger micro-batch may be allowed
        ++refused[reason(error)];
        fits = true;
        return false;
      }
      if (!candidate->plan.memory.fits) return false;
      fits = true;
      comparison.ranked.push_back(*std::move(candidate));
      return !recomputes_by_need(comparison.ranked.back());
    };
    for (const std::string& recompute : recomputations) {
      for (const int64_t micro_batch : micro_batches(of_rank)) {
        fits = false;
        for (const int stage : ranks == 1 ? std::vector<int>{0} : std::vector<int>{1, 2, 3}) {
          for (const bool node_a_host : {false, true}) {
            if (node_a_host && hosts.nodes == 1) continue;
            Choice choice{.stage = stage,
                          .node_a_host = node_a_host,
                          .batch = batch,
                          .micro_batch = micro_batch,
                          .accumulation = of_rank / micro_batch,
                          .recompute = recompute};
            if (try_one(choice) || hosts.is_cpu()) continue;
            choice.offload_optimizer = true;
            if (try_one(choice) || stage != 3) continue;
            choice.offload_param = true;
            try_one(choice);
          }
        }
        if (!fits) break;  // nor do larger ones
      }
    }
  }
  for (const auto& [gpu, types] : uncalibrated) {
    comparison.left_out.push_back(fmt::format("{}: there is no calibration of {}", fmt::join(types, ", "), gpu));
  }
  for (const auto& [gpu, types] : without_fp8) {
    comparison.left_out.push_back(
        fmt::format("{}: {} has no products of FP8 {}", fmt::join(types, ", "), gpu, setup.config.fp8));
  }
  for (const auto& [reason, count] : without_times) {
    comparison.without_times += count;
    comparison.left_out.push_back(fmt::format("{} {}", counted(count, "configuration"), reason));
  }
  for (const auto& [reason, count] : refused) {
    comparison.refused += count;
    comparison.left_out.push_back(fmt::format("{} {}", counted(count, "configuration"), reason));
  }
  std::stable_sort(comparison.ranked.begin(), comparison.ranked.end(),
                   [](const auto& a, const auto& b) { return seconds_of_token(a) < seconds_of_token(b); });
  comparison.warnings = warnings_of(comparison, options);
  if (!other_batches.empty()) {
    comparison.warnings.push_back(fmt::format("the ranks do not divide the global batch of {} everywhere: {}.",
                                              setup.config.train_batch_size, fmt::join(other_batches, ", ")));
  }
  return comparison;
}

std::vector<std::string> describe_comparison(const PlanComparison& comparison, double tokens) {
  const int64_t fitting = std::ssize(comparison.ranked) + comparison.without_times;
  const bool several = comparison.asked.size() > 1;
  std::vector<std::string> lines = {fmt::format(
      "{} configurations of global batch {}, {} of them fit{}. The fastest {}:", comparison.tried,
      comparison.train_batch_size, fitting,
      comparison.without_times > 0 ? fmt::format(", {} without times", comparison.without_times) : "",
      several ? fmt::format("{} of each kind of hosts", kRowsOfEach)
              : fmt::format("{} of {}, and the fastest one of each other", kRowsOfAsked, comparison.asked.front()))};
  const auto add_left_out = [&] {
    for (const std::string& left_out : comparison.left_out) lines.push_back("  left out: " + left_out);
  };
  if (comparison.ranked.empty()) {
    lines.emplace_back(comparison.without_times > 0 ? "None can be ranked: what fits has no times."
                       : comparison.refused == comparison.tried
                           ? "None can be tried."
                           : "None fits: use more or larger GPUs, or a smaller model.");
    add_left_out();
    return lines;
  }
  lines.push_back(
      fmt::format("  {:<22} {:>4} {:<21} {:>5} {:>14} {:<9} {:>9} {:>10} {:>4} {:>12} {:>6} {:>8} {:>9} {:>9}", "hosts",
                  "ZeRO", "on the host", "nodes", "batch", "recompute", "GiB", "step", "+/-", "tokens/s/GPU", "MFU",
                  "hours", "GPU hours", "cost"));
  const auto shown_of = [](const std::optional<double>& value) { return value ? fmt::format("{:.2f}", *value) : ""; };
  std::map<std::string, int> shown;
  std::set<std::string> without = {comparison.asked.begin(), comparison.asked.end()};
  for (const PlanCandidate& one : comparison.ranked) {
    const std::string hosts = hosts_of(one.machine);
    without.erase(hosts);
    const int rows = several ? kRowsOfEach : hosts == comparison.asked.front() ? kRowsOfAsked : 1;
    if (shown[hosts]++ >= rows) continue;
    const std::optional<RowLength> length = length_of(one, tokens);
    const PlanEstimate::Memory& memory = one.plan.memory;
    const auto gibibytes = [](int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); };
    lines.push_back(fmt::format(
        "  {:<22} {:>4} {:<21} {:>5} {:>14} {:<9} {:>9} {:>7.1f} ms {:>4} {:>12.0f} {:>6} {:>8} {:>9} {:>9}", hosts,
        one.stage, placement(one), one.layout.nodes,
        fmt::format("{} x {} x {}", one.plan.micro_batch, one.plan.accumulation, one.machine.world_size()),
        recomputed(memory.levels),
        memory.of_gpu > 0 ? fmt::format("{:.0f} of {:.0f}", gibibytes(memory.total), gibibytes(memory.of_gpu))
                          : fmt::format("{:.1f}", gibibytes(memory.total)),
        one.plan.step.seconds * 1e3, fmt::format("{:.0f}%", 100 * one.plan.error), one.plan.tokens_per_second_per_gpu,
        one.plan.mfu ? fmt::format("{:.1f}%", 100 * *one.plan.mfu) : "",
        length ? fmt::format("{:.1f}", length->hours) : "", length ? fmt::format("{:.1f}", length->gpu_hours) : "",
        length ? shown_of(length->cost) : ""));
  }
  for (const std::string& hosts : comparison.asked) {
    if (without.contains(hosts)) lines.push_back(fmt::format("  {}: nothing that fits and has times", hosts));
  }
  add_left_out();
  const PlanCandidate& best = comparison.ranked.front();
  const PlanCandidate* const asked = best_of_asked(comparison);
  if (asked != nullptr) add_ds_config(lines, several ? "of all" : "on the asked hosts", *asked);
  if (asked != &best) add_ds_config(lines, "of all", best);
  return lines;
}

Json comparison_json(const PlanComparison& comparison, double tokens) {
  const auto optional = [](const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); };
  const auto positive = [](int64_t bytes) { return bytes > 0 ? Json(bytes) : Json(nullptr); };
  Json ranked = Json::array();
  for (const PlanCandidate& one : comparison.ranked) {
    const std::optional<RowLength> length = length_of(one, tokens);
    const PlanEstimate::Memory& memory = one.plan.memory;
    ranked.push_back({{"instance", one.machine.name},
                      {"nodes", one.machine.nodes},
                      {"ranks", one.machine.world_size()},
                      {"zero_stage", one.stage},
                      {"nodes_of_zero", one.layout.nodes},
                      {"offload_optimizer", one.offload_optimizer},
                      {"offload_param", one.offload_param},
                      {"train_batch_size", one.plan.micro_batch * one.plan.accumulation * one.machine.world_size()},
                      {"train_micro_batch_size_per_gpu", one.plan.micro_batch},
                      {"gradient_accumulation_steps", one.plan.accumulation},
                      {"recompute", one.recompute},
                      {"memory",
                       {{one.machine.is_cpu() ? "rank_bytes" : "gpu_bytes", memory.total},
                        {"of", positive(memory.of_gpu)},
                        {"host_bytes", memory.host},
                        {"of_host", positive(memory.of_host)}}},
                      {"step_seconds", one.plan.step.seconds},
                      {"relative_error", one.plan.error},
                      {"tokens_per_second_per_gpu", one.plan.tokens_per_second_per_gpu},
                      {"mfu", optional(one.plan.mfu)},
                      {"hours", length ? Json(length->hours) : Json(nullptr)},
                      {"gpu_hours", length ? Json(length->gpu_hours) : Json(nullptr)},
                      {"cost", length ? optional(length->cost) : Json(nullptr)},
                      {"price", optional(one.machine.price)}});
  }
  Json json = {{"format", "mpzero-plan-comparison"}, {"version", 1},
               {"asked", comparison.asked},          {"train_batch_size", comparison.train_batch_size},
               {"tried", comparison.tried},          {"without_times", comparison.without_times},
               {"refused", comparison.refused},      {"ranked", ranked},
               {"left_out", comparison.left_out}};
  const auto add_best = [&](const std::string& whose, const PlanCandidate* one) {
    json[whose + "_hosts"] = one != nullptr ? Json(hosts_of(one->machine)) : Json(nullptr);
    json[whose + "_ds_config"] = one != nullptr ? one->ds_config : Json(nullptr);
    json[whose + "_leave_out"] = one != nullptr ? Json(one->contradicting) : Json(nullptr);
  };
  add_best("best", comparison.ranked.empty() ? nullptr : comparison.ranked.data());
  add_best("asked", best_of_asked(comparison));
  return json;
}

}  // namespace mpzero::plan
