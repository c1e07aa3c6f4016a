#include "app/plan/command/plan_comparison.hpp"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "app/machine/device_choice.hpp"
#include "app/machine/instances.hpp"
#include "base/error.hpp"
#include "base/output.hpp"
#include "base/words.hpp"

namespace mpzero::plan {
namespace {

// Minimum ratio of consecutive micro-batches.
constexpr double kMicroBatchRatio = 1.5;
// Steps of the progress bar per host type.
constexpr int64_t kPartsOfBar = 100;

// Returns true if the GPUs of `hosts` support the run's FP8 recipe.
bool multiplies(const PlanMachine& hosts, const RunConfig& config) {
  if (!config.fp8_options || hosts.is_cpu()) return true;
  try {
    check_fp8_gpu(hosts.gpu, config.fp8 == "rowwise");
  } catch (const UserError&) {
    return false;
  }
  return true;
}

// Returns divisors of a rank's share of the global batch in ascending order, e.g. 1, 2, 3, 5, 9, 15, 30, … for 180.
std::vector<int64_t> micro_batches(int64_t of_rank) {
  std::vector<int64_t> divisors = {1};
  for (int64_t size = 2; size <= of_rank; ++size) {
    const bool apart = static_cast<double>(size) >= kMicroBatchRatio * static_cast<double>(divisors.back());
    if (of_rank % size == 0 && apart) divisors.push_back(size);
  }
  return divisors;
}

// Returns true if more memory would make the candidate faster.
bool recomputes_by_need(const PlanCandidate& candidate) {
  return candidate.choice.recompute == Recomputation::kAuto &&
         by_layer(candidate.plan.memory.levels).front() != model::Recompute::kNone;
}

// Returns `machine` and, without --instances, hosts of every other type: on GPUs, with the same total number of GPUs;
// on CPUs, with the same number of hosts and ranks per host.
std::vector<PlanMachine> machines(const PlanMachine& machine, const PlanOptions& options, const std::string& network,
                                  std::vector<std::string>& left_out) {
  std::vector<PlanMachine> all = {machine};
  if (options.instance.empty() || !options.instances.empty()) return all;
  for (const doctor::Instance& instance : doctor::all_instances()) {
    if (instance.type == machine.name || (instance.gpus == 0) != machine.is_cpu()) continue;
    const int per_host = machine.is_cpu() ? machine.gpus : instance.gpus;
    if (machine.world_size() % per_host != 0) {
      left_out.push_back(fmt::format("{}: {} cannot be divided into hosts of {}", instance.type,
                                     counted(machine.world_size(), "GPU"), counted(per_host, "GPU")));
      continue;
    }
    all.push_back(machine_of_instance(instance.type, machine.world_size() / per_host, network, machine.device().type(),
                                      per_host));
    if (!options.prices.empty()) all.back().price = price_in_file(options.prices, instance.type);
  }
  return all;
}

// Returns warnings about prices, rates and mixed estimates in the ranking.
std::vector<std::string> warnings_of(const PlanComparison& comparison, const PlanOptions& options) {
  const std::vector<PlanCandidate>& ranked = comparison.ranked;
  std::vector<std::string> warnings;
  std::set<std::string> without_price, without_rate;
  bool measured = false, estimated = false;
  for (const PlanCandidate& one : ranked) {
    if (!one.machine.price) without_price.insert(one.machine.name);
    if (one.machine.nodes > 1 && hosts_of(one.machine) != comparison.asked.front())
      without_rate.insert(one.machine.name);
    if (one.choice.offload_optimizer) (one.host_is_measured ? measured : estimated) = true;
  }
  if (options.network_rate && !without_rate.empty()) {
    warnings.push_back(fmt::format("--network_rate {} applies only to the requested hosts; {} use data-sheet rates.",
                                   *options.network_rate, fmt::join(without_rate, ", ")));
  }
  if (options.price && !without_price.empty()) {
    warnings.push_back(
        fmt::format("--price {} applies only to the requested hosts; set the prices of {} with --prices.",
                    *options.price, fmt::join(without_price, ", ")));
  }
  if (!options.prices.empty() && !without_price.empty()) {
    warnings.push_back(fmt::format("--prices {} has no price for {}, so their cost is unknown.", options.prices,
                                   fmt::join(without_price, ", ")));
  }
  if (measured && estimated) {
    warnings.emplace_back(
        "AdamW on the host is measured on some of these hosts and estimated from data sheets on others, so rows with "
        "offload are not directly comparable.");
  }
  return warnings;
}

}  // namespace

PlanComparison compare_plans(const CommandLine& line, const RunSetup& setup, const std::vector<PlanMachine>& asked,
                             const PlanOptions& options) {
  const PlanMachine& machine = asked.front();
  const bool several = asked.size() > 1;
  std::vector<Recomputation> recomputations = {Recomputation::kAuto};
  if (setup.config.recompute != Recomputation::kAuto) recomputations.push_back(setup.config.recompute);
  PlanComparison comparison{
      .ranked = {}, .asked = {}, .train_batch_size = setup.config.train_batch_size, .left_out = {}, .warnings = {}};
  for (const PlanMachine& one : asked) comparison.asked.push_back(hosts_of(one));
  std::vector<std::string> other_batches;
  std::map<std::string, std::vector<std::string>> excluded;  // reason -> instances
  std::map<std::string, int64_t> without_times, refused;     // reason -> number of configurations
  const std::vector<PlanMachine> compared =
      several ? asked : machines(machine, options, line.network, comparison.left_out);
  ProgressBar bar("Comparing", kPartsOfBar * std::ssize(compared), /*enabled=*/::isatty(STDERR_FILENO) == 1);
  int64_t begun = 0;  // hosts
  for (const PlanMachine& hosts : compared) {
    ++begun;
    const int ranks = hosts.world_size();
    int64_t batch = setup.config.train_batch_size;
    if (batch % ranks != 0) {
      if (!several) continue;
      batch = (batch / ranks + 1) * ranks;
      other_batches.push_back(fmt::format("{} has {} per step", hosts_of(hosts), counted(batch, "sequence")));
    }
    if (!multiplies(hosts, setup.config)) {
      excluded[fmt::format("{} does not support FP8 recipe {}", hosts.gpu, setup.config.fp8)].push_back(hosts.name);
      continue;
    }
    std::optional<Calibration> calibration;
    try {
      calibration = calibration_of(hosts, hosts.name == machine.name ? options.calibration : "");
    } catch (const UserError&) {
      if (!several && hosts.name == machine.name) throw;
      excluded["no calibration for " + hosts.device_name()].push_back(hosts.name);
      continue;
    }
    const int64_t of_rank = batch / ranks;
    bool fits = false;  // a configuration with this micro-batch fits, or was rejected for a reason other than memory
    // Returns true if offload cannot make the configuration faster.
    const auto try_one = [&](const PlanChoice& choice) {
      ++comparison.tried;
      std::optional<PlanCandidate> candidate;
      const auto reason = [&](const UserError& error) {
        return fmt::format("on {}: {}", hosts_of(hosts), error.what());
      };
      try {
        candidate = evaluate(line, setup, hosts, *calibration, options.assumptions, choice);
      } catch (const MissingTimes& error) {  // the configuration fits
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
    const std::vector<int64_t> sizes = micro_batches(of_rank);
    const int64_t count = std::ssize(recomputations) * std::ssize(sizes);
    for (size_t first = 0; first < recomputations.size(); ++first) {
      const Recomputation recompute = recomputations[first];
      int64_t done = static_cast<int64_t>(first) * std::ssize(sizes);
      for (const int64_t micro_batch : sizes) {
        bar.update(kPartsOfBar * (begun - 1) + kPartsOfBar * done++ / count, hosts_of(hosts));
        fits = false;
        for (const int stage : ranks == 1 ? std::vector<int>{0} : std::vector<int>{1, 2, 3}) {
          for (const bool node_a_host : {false, true}) {
            if (node_a_host && hosts.nodes == 1) continue;
            PlanChoice choice{.stage = stage,
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
        if (!fits) break;  // larger micro-batches do not fit either
      }
    }
  }
  bar.clear();
  for (const auto& [reason, types] : excluded) {
    comparison.left_out.push_back(fmt::format("{}: {}", fmt::join(types, ", "), reason));
  }
  const auto add_up = [&](const std::map<std::string, int64_t>& reasons, int64_t& total) {
    for (const auto& [reason, count] : reasons) {
      total += count;
      comparison.left_out.push_back(fmt::format("{} {}", counted(count, "configuration"), reason));
    }
  };
  add_up(without_times, comparison.without_times);
  add_up(refused, comparison.refused);
  std::stable_sort(comparison.ranked.begin(), comparison.ranked.end(),
                   [](const auto& a, const auto& b) { return seconds_of_token(a) < seconds_of_token(b); });
  comparison.warnings = warnings_of(comparison, options);
  if (!other_batches.empty()) {
    comparison.warnings.push_back(fmt::format("the global batch of {} is not divisible by all rank counts: {}.",
                                              setup.config.train_batch_size, fmt::join(other_batches, ", ")));
  }
  return comparison;
}

}  // namespace mpzero::plan
