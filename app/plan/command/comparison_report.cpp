#include "app/plan/command/comparison_report.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "app/plan/command/plan_report.hpp"

namespace mpzero::plan {
namespace {

using Json = nlohmann::ordered_json;

// Rows shown for a single requested host type, and for each of several types.
constexpr int kRowsOfAsked = 8, kRowsOfEach = 3;

std::optional<RunLength> length_of(const PlanCandidate& one, double tokens) {
  return run_length(one.machine, one.plan, tokens / static_cast<double>(one.plan.tokens_per_step));
}

// Returns the fastest candidate on the requested hosts, or null if no candidate fits.
const PlanCandidate* best_of_asked(const PlanComparison& comparison) {
  const auto best = std::ranges::find_if(comparison.ranked, [&](const PlanCandidate& one) {
    return std::ranges::find(comparison.asked, hosts_of(one.machine)) != comparison.asked.end();
  });
  return best == comparison.ranked.end() ? nullptr : &*best;
}

// Returns the candidate with the lowest cost per token, or null if fewer than two host types have a price.
const PlanCandidate* cheapest_of(const PlanComparison& comparison) {
  const auto cost = [](const PlanCandidate& one) {
    return *one.machine.price * one.machine.nodes * seconds_of_token(one);
  };
  const PlanCandidate* cheapest = nullptr;
  std::set<std::string> priced;
  for (const PlanCandidate& one : comparison.ranked) {
    if (!one.machine.price) continue;
    priced.insert(hosts_of(one.machine));
    if (cheapest == nullptr || cost(one) < cost(*cheapest)) cheapest = &one;
  }
  return priced.size() > 1 ? cheapest : nullptr;
}

void add_ds_config(std::vector<std::string>& lines, const std::string& which, const PlanCandidate& one) {
  lines.push_back(fmt::format("ds_config.json of the {}, for {} with --recompute {}, +/- {:.0f}%:", which,
                              hosts_of(one.machine), one.recompute, 100 * one.plan.error));
  if (!one.contradicting.empty()) {
    lines.push_back(
        fmt::format("Omit the flags that conflict with this file: {}.", fmt::join(one.contradicting, ", ")));
  }
  std::istringstream text(one.ds_config.dump(2));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
}

std::string placement(const PlanChoice& choice) {
  if (choice.offload_param) return "optimizer, parameters";
  return choice.offload_optimizer ? "optimizer" : "";
}

std::string duration(double seconds) {
  if (seconds < 100) return fmt::format("{:.1f} ms", seconds * 1e3);
  return seconds < 7200 ? fmt::format("{:.1f} min", seconds / 60) : fmt::format("{:.1f} h", seconds / 3600);
}

std::string recomputed(const LayerLevels& levels) {
  const std::string text = describe(levels);
  return text.find(',') == std::string::npos ? text.substr(0, text.find(' ')) : "mixed";
}

}  // namespace

std::vector<std::string> describe_comparison(const PlanComparison& comparison, double tokens) {
  const int64_t fitting = std::ssize(comparison.ranked) + comparison.without_times;
  const bool several = comparison.asked.size() > 1;
  const int64_t of_asked = std::ranges::count_if(
      comparison.ranked, [&](const auto& one) { return hosts_of(one.machine) == comparison.asked.front(); });
  const bool alternatives = std::ranges::any_of(
      comparison.ranked, [&](const auto& one) { return hosts_of(one.machine) != comparison.asked.front(); });
  std::vector<std::string> lines = {fmt::format(
      "{} configurations with global batch {}, of which {} fit{}. The fastest {}:", comparison.tried,
      comparison.train_batch_size, fitting,
      comparison.without_times > 0 ? fmt::format(", {} without kernel times", comparison.without_times) : "",
      several ? fmt::format("{} of each host type", kRowsOfEach)
              : fmt::format("{} on {}{}", std::clamp<int64_t>(of_asked, 1, kRowsOfAsked), comparison.asked.front(),
                            alternatives ? ", and the fastest on each alternative host type" : ""))};
  const auto add_left_out = [&] {
    for (const std::string& left_out : comparison.left_out) lines.push_back("  excluded: " + left_out);
  };
  if (comparison.ranked.empty()) {
    lines.emplace_back(comparison.without_times > 0
                           ? "No configuration can be ranked: the calibrations lack the required kernel times."
                       : comparison.refused == comparison.tried
                           ? "No configuration can be evaluated."
                           : "No configuration fits; use more ranks, more memory per rank, or a smaller model.");
    add_left_out();
    return lines;
  }
  const bool priced =
      std::ranges::any_of(comparison.ranked, [](const auto& one) { return one.machine.price.has_value(); });
  lines.push_back(fmt::format("  {:<22} {:>4} {:<21} {:>6} {:>14} {:<14} {:>9} {:>10} {:>4} {:>12} {:>6} {:>8} {:>9}",
                              "hosts", "ZeRO", "on the host", "groups", "batch", "recompute", "GiB", "step", "+/-",
                              "tokens/s/GPU", "MFU", "hours", "GPU hours") +
                  (priced ? fmt::format(" {:>9}", "cost") : ""));
  const auto shown_of = [](const std::optional<double>& value) { return value ? fmt::format("{:.2f}", *value) : ""; };
  std::map<std::string, int> shown;
  std::set<std::string> without = {comparison.asked.begin(), comparison.asked.end()};
  for (const PlanCandidate& one : comparison.ranked) {
    const std::string hosts = hosts_of(one.machine);
    without.erase(hosts);
    const int rows = several ? kRowsOfEach : hosts == comparison.asked.front() ? kRowsOfAsked : 1;
    if (shown[hosts]++ >= rows) continue;
    const std::optional<RunLength> length = length_of(one, tokens);
    const PlanEstimate::Memory& memory = one.plan.memory;
    const auto gibibytes = [](int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); };
    lines.push_back(fmt::format(
        "  {:<22} {:>4} {:<21} {:>6} {:>14} {:<14} {:>9} {:>10} {:>4} {:>12.0f} {:>6} {:>8} {:>9}", hosts,
        one.choice.stage, placement(one.choice), one.layout.nodes,
        fmt::format("{} x {} x {}", one.choice.micro_batch, one.choice.accumulation, one.layout.data_parallel_size()),
        recomputed(memory.levels),
        memory.of_gpu > 0 ? fmt::format("{:.0f} of {:.0f}", gibibytes(memory.total), gibibytes(memory.of_gpu))
                          : fmt::format("{:.1f}", gibibytes(memory.total)),
        duration(one.plan.step.seconds), fmt::format("{:.0f}%", 100 * one.plan.error),
        one.plan.tokens_per_second_per_gpu, one.plan.mfu ? fmt::format("{:.1f}%", 100 * *one.plan.mfu) : "",
        length ? hours_text(length->hours) : "", length ? hours_text(length->gpu_hours) : ""));
    if (priced) lines.back() += fmt::format(" {:>9}", length ? shown_of(length->cost) : "");
  }
  for (const std::string& hosts : comparison.asked) {
    if (without.contains(hosts))
      lines.push_back(fmt::format("  {}: no kernel times for any configuration that fits", hosts));
  }
  add_left_out();
  const PlanCandidate& best = comparison.ranked.front();
  const PlanCandidate* const asked = best_of_asked(comparison);
  constexpr const char* kFastest = "fastest configuration overall";
  if (asked != nullptr)
    add_ds_config(lines, several ? kFastest : "fastest configuration on the requested hosts", *asked);
  if (asked != &best) add_ds_config(lines, kFastest, best);
  if (const PlanCandidate* const cheapest = cheapest_of(comparison)) {
    const double million =
        *cheapest->machine.price * cheapest->machine.nodes * seconds_of_token(*cheapest) / 3600 * 1e6;
    lines.push_back(fmt::format("Cheapest: {}, {:.4g} per million tokens", hosts_of(cheapest->machine), million));
    if (cheapest != asked && cheapest != &best) add_ds_config(lines, "cheapest configuration", *cheapest);
  }
  return lines;
}

Json comparison_json(const PlanComparison& comparison, double tokens) {
  const auto optional = [](const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); };
  const auto positive = [](int64_t bytes) { return bytes > 0 ? Json(bytes) : Json(nullptr); };
  Json ranked = Json::array();
  for (const PlanCandidate& one : comparison.ranked) {
    const std::optional<RunLength> length = length_of(one, tokens);
    const PlanEstimate::Memory& memory = one.plan.memory;
    ranked.push_back({{"instance", one.machine.name},
                      {"nodes", one.machine.nodes},
                      {"ranks", one.machine.world_size()},
                      {"zero_stage", one.choice.stage},
                      {"nodes_of_zero", one.layout.nodes},
                      {"offload_optimizer", one.choice.offload_optimizer},
                      {"offload_param", one.choice.offload_param},
                      {"train_batch_size", one.choice.batch},
                      {"train_micro_batch_size_per_gpu", one.choice.micro_batch},
                      {"gradient_accumulation_steps", one.choice.accumulation},
                      {"recompute", one.recompute},
                      {"memory",
                       {{one.machine.is_cpu() ? "rank_bytes" : "gpu_bytes", memory.total},
                        {"of", positive(memory.of_gpu)},
                        {"host_bytes", memory.host},
                        {"of_host", positive(memory.of_host)}}},
                      {"step_seconds", one.plan.step.seconds},
                      {"clipped_seconds", optional(one.clipped_seconds)},
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
  add_best("cheapest", cheapest_of(comparison));
  return json;
}

}  // namespace mpzero::plan
