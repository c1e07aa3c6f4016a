#include "app/plan/command/plan_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "app/flags/options.hpp"
#include "app/plan/calibrate_command.hpp"
#include "app/plan/command/plan_comparison.hpp"
#include "app/plan/command/plan_options.hpp"
#include "app/plan/command/plan_report.hpp"
#include "app/plan/command/rates.hpp"
#include "base/error.hpp"

namespace mpzero::plan {
namespace {

// The flags of `mpzero train`, as a dry run reads them.
CommandLine read_train_flags(std::vector<std::string> arguments) {
  const auto gives = [&](const std::string& flag) {
    return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
      return argument == flag || argument.starts_with(flag + "=");
    });
  };
  if (!gives("--dry_run")) arguments.emplace_back("--dry_run");
  CommandLine line = parse_command_line(arguments);
  if (line.world_size) {
    throw_user_error("--world_size {} is not for a plan: give --instance or --gpu, and --nodes.", *line.world_size);
  }
  if (line.device == "cpu") throw_user_error("--device cpu: a plan is of GPUs; leave it out.");
  return line;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

PlanOutput plan_output(const std::vector<std::string>& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    return {.text = plan_help(), .warnings = {}};
  }
  const PlanOptions options = parse_plan_options(arguments);
  const CommandLine line = read_train_flags(options.rest);
  if (line.nproc_per_node && !options.instance.empty()) {
    throw_user_error("--nproc_per_node {}: --instance {} says how many GPUs a host has; leave it out.",
                     *line.nproc_per_node, options.instance);
  }
  const PlanMachine machine = find_machine(options, line.network, static_cast<int>(line.nproc_per_node.value_or(1)));
  const Calibration calibration = calibration_of(machine.gpu_name(), options.calibration);
  RunSetup setup = set_up_run(line, machine.world_size(), DataFiles::kMayBeUnnamed);
  setup.layout = layout_of(setup, machine);
  if (options.compare) {
    const PlanComparison comparison = compare_plans(line, setup, machine, options);
    return {.text = options.json ? comparison_json(comparison).dump(2) + "\n"
                                 : joined(describe_comparison(comparison, options.tokens)),
            .warnings = setup.warnings,
            .exit_code = comparison.ranked.empty() ? kUserErrorExitCode : EXIT_SUCCESS};
  }
  const PlanAssumptions assumptions{.straggler_factor = options.straggler_factor,
                                    .network_factor = options.network_factor,
                                    .disk_rate = options.disk_rate};
  const PlanEstimate plan = estimate_plan(setup, machine, calibration, assumptions);
  const PlanFacts facts{.setup = setup, .machine = machine, .calibration = calibration, .tokens = options.tokens};
  return {.text = options.json ? plan_json(facts, plan).dump(2) + "\n" : joined(describe_plan(facts, plan)),
          .warnings = setup.warnings,
          .exit_code = plan.memory.fits ? EXIT_SUCCESS : kUserErrorExitCode};
}

int run_plan_command(const std::vector<std::string>& arguments) {
  if (asks_to_calibrate(arguments)) return calibrate_command(arguments);
  const PlanOutput output = plan_output(arguments);
  for (const std::string& warning : output.warnings) fmt::print(stderr, "mpzero: warning: {}\n", warning);
  std::fputs(output.text.c_str(), stdout);
  return output.exit_code;
}

}  // namespace mpzero::plan
