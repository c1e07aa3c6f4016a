#include "app/plan/command/plan_options.hpp"

#include <algorithm>
#include <tuple>

#include "app/flags/options.hpp"
#include "app/flags/training_flags.hpp"
#include "app/flags/unknown_flags.hpp"
#include "base/command_line/command_flags.hpp"
#include "base/error.hpp"

namespace mpzero::plan {
namespace {

constexpr int64_t kMostHosts = 100'000;

// Parses "p4d.24xlarge:2,p5.48xlarge": instance types with numbers of hosts (default: 1).
std::vector<std::pair<std::string, int64_t>> instances_of(const std::string& text) {
  std::vector<std::pair<std::string, int64_t>> all;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string one = text.substr(begin, end - begin);
    const size_t colon = one.find(':');
    if (one.empty() || colon == 0) {
      throw_user_error("--instances must be a list of TYPE or TYPE:HOSTS, e.g. p4d.24xlarge:2,p5.48xlarge, not \"{}\".",
                       text);
    }
    all.emplace_back(one.substr(0, colon),
                     colon == std::string::npos ? 1 : parse_integer("instances", one.substr(colon + 1), 1, kMostHosts));
    if (std::count(all.begin(), all.end(), all.back()) > 1) {
      throw_user_error("--instances lists {} twice; remove one entry.", one);
    }
    begin = end + 1;
  }
  return all;
}

void set_limit(PlanOptions& options, PlanLimit limit) {
  if (options.limit != PlanLimit::kNone && options.limit != limit) {
    throw_user_error("--max_seq_length and --largest_model are mutually exclusive; pass one of them.");
  }
  options.limit = limit;
}

std::vector<CommandFlag> plan_flags(PlanOptions& o) {
  const FlagValue instances{
      .read = [&o](const std::string&, const std::string& text) { o.instances = instances_of(text); }};
  const auto limit = [&o](PlanLimit limit) {
    return FlagValue{.read = [&o, limit](const auto&, const auto&) { set_limit(o, limit); }, .takes = Takes::kNothing};
  };
  constexpr double kLeastRate = 1e-3, kFactorLimit = 100;
  return {
      {"instance", text(o.instance), "TYPE", "EC2 instance type (GPU types: docs/ec2.md, CPU types: docs/plan.md)"},
      {"gpu", text(o.gpu), "NAME",
       "GPU instead of an instance type, e.g. H200 or A100-80GB; --nproc_per_node sets the GPUs per host (default: 1)"},
      {"nodes", integer(o.nodes, 1, kMostHosts), "N", "number of hosts"},
      {"host_gigabits", real(o.host_gigabits, kLeastRate), "N",
       "network bandwidth per host in Gb/s, with --gpu (default: 100)"},
      {"host_memory", real(o.host_memory, kLeastRate), "N", "memory per host in GiB, with --gpu (default: unlimited)"},
      {"tokens",
       {.read = real(o.tokens, 1).read},
       "N",
       "number of training tokens, e.g. 15e9, to estimate hours and cost"},
      {"compare", switch_on(o.compare), "",
       "rank instance types, ZeRO stages, offload, layouts, micro-batches and recomputation, and print the fastest "
       "ds_config.json"},
      {"instances", instances, "LIST", "compare only these hosts, e.g. p4d.24xlarge:2,g6e.12xlarge:4,p5.48xlarge:1"},
      {"max_seq_length", limit(PlanLimit::kSeqLength), "",
       "plan the run with the longest sequences that fit in memory"},
      {"largest_model", limit(PlanLimit::kLayers), "",
       "plan the run with the largest number of layers that fits in memory"},
      {"json", switch_on(o.json), "", "print JSON (docs/formats.md)"},
      {"calibration", text(o.calibration), "FILE", "file with kernel times (default: a file in configs/calibrations)"},
      {"price", real(o.price, 0), "N", "price per host-hour, in any currency"},
      {"prices", text(o.prices), "FILE", "JSON file with prices for --compare, e.g. {\"p5.48xlarge\": 55.04}"},
      {"disk_rate", real(o.assumptions.disk_rate, kLeastRate), "N",
       "checkpoint write rate per host in GB/s (default: from the calibration)"},
      {"network_rate", real(o.network_rate, kLeastRate), "N",
       "collective bandwidth per host in GB/s, as measured by `mpzero doctor --bandwidth` (default: estimated from the "
       "network bandwidth)"},
      {"straggler_factor", real(o.assumptions.straggler_factor, 1, kFactorLimit), "X",
       "compute time of the slowest rank relative to the others"},
      {"network_factor", real(o.assumptions.network_factor, 1, kFactorLimit), "X",
       "duration of collectives relative to the estimate"},
      // Parsed by calibrate_command().
      {"calibrate",
       {.read = [](const auto&, const auto&) {}},
       "FILE",
       "measure this machine's kernels for N seconds (--calibrate_seconds N, default: 60) and write the calibration to "
       "FILE; pass it as --calibration FILE. On CPUs: mpirun -n RANKS mpzero plan --calibrate FILE --device cpu"},
  };
}

// Returns true if `rest`, unparsed flags of `mpzero train`, contains --device cpu.
bool asks_for_cpu(const std::vector<std::string>& rest) {
  for (size_t i = 0; i < rest.size(); ++i) {
    if (rest[i] == "--device=cpu") return true;
    if (rest[i] == "--device" && i + 1 < rest.size() && rest[i + 1] == "cpu") return true;
  }
  return false;
}

// Sets `instance` and `nodes` to the first entry of --instances. Throws UserError for flags that conflict with
// --instances.
void read_instances(PlanOptions& options, bool gives_nodes) {
  if (options.instances.empty()) return;
  const auto refuse = [](const std::string& flag, const char* why) {
    throw_user_error("{} conflicts with --instances: {}; remove one of them.", flag, why);
  };
  if (!options.instance.empty()) refuse("--instance " + options.instance, "both select hosts");
  if (!options.gpu.empty()) refuse("--gpu " + options.gpu, "both select hosts");
  if (gives_nodes) refuse("--nodes", "--instances also sets the number of hosts, e.g. p4d.24xlarge:2");
  if (options.price) refuse("--price", "--price applies to a single host type (--prices sets several prices)");
  if (options.network_rate) refuse("--network_rate", "--network_rate applies to a single host type");
  options.compare = true;
  std::tie(options.instance, options.nodes) = options.instances.front();
}

}  // namespace

PlanOptions parse_plan_options(const std::vector<std::string>& arguments) {
  PlanOptions options;
  const std::vector<CommandFlag> known = plan_flags(options);
  options.rest = read_flags(arguments, known);
  read_instances(options, std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
                   return argument == "--nodes" || argument.starts_with("--nodes=");
                 }));
  if (options.instance.empty() && options.gpu.empty() && !asks_for_cpu(options.rest)) {
    for (const std::string& argument : options.rest) {
      if (!argument.starts_with("--") || find_flag(argument.substr(2, argument.find('=') - 2)) != nullptr) continue;
      const auto nearest = nearest_flag(argument, known);
      const bool of_others = unknown_flags().contains(argument.substr(2, argument.find('=') - 2));
      if (!nearest || of_others) refuse_flag(argument, plan_flag_names(), kListedByPlanHelp);
      throw_user_error("{} is not a known flag; did you mean --{}?", argument.substr(0, argument.find('=')), *nearest);
    }
    throw_user_error("--instance, --gpu or --device cpu is missing; pass e.g. --instance p5.48xlarge or --gpu H200.");
  }
  if (!options.instance.empty() && !options.gpu.empty()) {
    throw_user_error("--instance {} and --gpu {} are mutually exclusive; remove one of them.", options.instance,
                     options.gpu);
  }
  for (const auto& [flag, value] :
       {std::pair("host_gigabits", options.host_gigabits), {"host_memory", options.host_memory}}) {
    if (!value || !options.gpu.empty()) continue;
    throw_user_error("--{} {} is only supported with --gpu; remove it, or pass --gpu instead of {}.", flag, *value,
                     options.instance.empty() ? "--device cpu" : "--instance " + options.instance);
  }
  if (options.host_gigabits && options.nodes == 1) {
    throw_user_error("--host_gigabits {} has no effect with one host; pass --nodes, or remove the flag.",
                     *options.host_gigabits);
  }
  if (options.network_rate && options.host_gigabits) {
    throw_user_error("--network_rate and --host_gigabits both set the network bandwidth; remove one of them.");
  }
  if (options.network_rate && options.nodes == 1) {
    throw_user_error("--network_rate {} has no effect with one host; pass --nodes, or remove the flag.",
                     *options.network_rate);
  }
  if (options.limit != PlanLimit::kNone && options.compare) {
    throw_user_error("--compare and {} are mutually exclusive; remove one of them.",
                     options.limit == PlanLimit::kLayers ? "--largest_model" : "--max_seq_length");
  }
  if (options.price && !options.prices.empty()) {
    throw_user_error("--price and --prices both set the price; remove one of them.");
  }
  return options;
}

std::vector<std::string> plan_flag_names() {
  PlanOptions unused;
  std::vector<std::string> names;
  for (const CommandFlag& flag : plan_flags(unused)) names.push_back(flag.name);
  return names;
}

std::string plan_help(const std::string& flag) {
  PlanOptions defaults;
  std::vector<CommandFlag> flags = plan_flags(defaults);
  if (!flag.empty()) {
    std::erase_if(flags, [&](const CommandFlag& one) { return one.name != flag; });
    return describe_flags(flags);
  }
  return "Usage: mpzero plan --instance p5.48xlarge --nodes 4 --model_type llama_3_8b\n"
         "\n"
         "Estimates the memory, step time, training hours and cost of a run by simulating\n"
         "a step with measured kernel times. Requires neither a GPU nor MPI.\n"
         "\n" +
         describe_flags(flags, {{"--device cpu",
                                 "train on the CPUs of --instance, or of hosts like this machine; --nproc_per_node "
                                 "sets the ranks per host (default: 1; with --instance, its number of sockets)"}}) +
         "\n"
         "All flags of `mpzero train` are accepted, and --train_data is optional.\n"
         "--network socket plans for TCP.\n";
}

}  // namespace mpzero::plan
