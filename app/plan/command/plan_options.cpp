#include "app/plan/command/plan_options.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <tuple>

#include "app/flags/command_flags.hpp"
#include "app/flags/training_flags.hpp"
#include "base/error.hpp"

namespace mpzero::plan {
namespace {

double number(const char* flag, const std::string& text, double least, const char* what, double most = 1e30) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= least) || value > most) {
    throw_user_error("--{} must be {}, not \"{}\".", flag, what, text);
  }
  return value;
}

constexpr double kMostFactor = 100;
constexpr const char* kFactor = "a number from 1 to 100";
constexpr const char* kHosts = "an integer number of hosts from 1 to 100000";

int64_t hosts_of(const char* flag, const std::string& text) {
  const double nodes = number(flag, text, 1, kHosts);
  if (std::floor(nodes) != nodes || nodes > 100'000) {
    throw_user_error("--{} must be {}, not \"{}\".", flag, kHosts, text);
  }
  return static_cast<int64_t>(nodes);
}

// Parses "p4d.24xlarge:2,p5.48xlarge": instance types with numbers of hosts (default: 1).
std::vector<std::pair<std::string, int64_t>> instances_of(const std::string& text) {
  std::vector<std::pair<std::string, int64_t>> all;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string one = text.substr(begin, end - begin);
    const size_t colon = one.find(':');
    if (one.empty() || colon == 0) {
      throw_user_error("--instances must be instance types with counts, e.g. p4d.24xlarge:2,p5.48xlarge:1, not \"{}\".",
                       text);
    }
    all.emplace_back(one.substr(0, colon),
                     colon == std::string::npos ? 1 : hosts_of("instances", one.substr(colon + 1)));
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
  return {
      {"instance", [&o](const std::string& value) { o.instance = value; }},
      {"gpu", [&o](const std::string& value) { o.gpu = value; }},
      {"nodes", [&o](const std::string& value) { o.nodes = hosts_of("nodes", value); }},
      {"instances", [&o](const std::string& value) { o.instances = instances_of(value); }},
      {"tokens",
       [&o](const std::string& value) { o.tokens = number("tokens", value, 1, "a number of tokens, e.g. 15e9"); }},
      {"json", [&o](const std::string&) { o.json = true; }, true},
      {"compare", [&o](const std::string&) { o.compare = true; }, true},
      {"max_seq_length", [&o](const std::string&) { set_limit(o, PlanLimit::kSeqLength); }, true},
      {"largest_model", [&o](const std::string&) { set_limit(o, PlanLimit::kLayers); }, true},
      {"host_gigabits",
       [&o](const std::string& value) {
         o.host_gigabits = number("host_gigabits", value, 1e-3, "Gb/s per host, e.g. 400");
       }},
      {"network_rate",
       [&o](const std::string& value) {
         o.network_rate = number("network_rate", value, 1e-3, "GB/s per host in collectives, e.g. 4.6");
       }},
      {"straggler_factor",
       [&o](const std::string& value) {
         o.straggler_factor = number("straggler_factor", value, 1, kFactor, kMostFactor);
       }},
      {"network_factor",
       [&o](const std::string& value) { o.network_factor = number("network_factor", value, 1, kFactor, kMostFactor); }},
      {"price",
       [&o](const std::string& value) { o.price = number("price", value, 0, "the price per host-hour, e.g. 55.04"); }},
      {"prices", [&o](const std::string& value) { o.prices = value; }},
      {"calibration", [&o](const std::string& value) { o.calibration = value; }},
      {"disk_rate",
       [&o](const std::string& value) { o.disk_rate = number("disk_rate", value, 1e-3, "GB/s per host, e.g. 2.5"); }},
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
  if (gives_nodes) refuse("--nodes", "the list contains the number of hosts, e.g. p4d.24xlarge:2");
  if (options.price) refuse("--price", "a price applies to one host type (--prices sets several)");
  if (options.network_rate) refuse("--network_rate", "a rate applies to one host type");
  options.compare = true;
  std::tie(options.instance, options.nodes) = options.instances.front();
}

}  // namespace

PlanOptions parse_plan_options(const std::vector<std::string>& arguments) {
  PlanOptions options;
  const std::vector<CommandFlag> known = plan_flags(options);
  read_command_flags(arguments, known, [&](const std::string& argument) { options.rest.push_back(argument); });
  read_instances(options, std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
                   return argument == "--nodes" || argument.starts_with("--nodes=");
                 }));
  if (options.instance.empty() && options.gpu.empty() && !asks_for_cpu(options.rest)) {
    for (const std::string& argument : options.rest) {
      if (!argument.starts_with("--") || find_flag(argument.substr(2, argument.find('=') - 2)) != nullptr) continue;
      const auto nearest = nearest_flag(argument, known);
      if (!nearest) continue;
      throw_user_error("{} is not a known flag; did you mean --{}?", argument.substr(0, argument.find('=')), *nearest);
    }
    throw_user_error("--instance, --gpu or --device cpu is missing; pass e.g. --instance p5.48xlarge or --gpu H200.");
  }
  if (!options.instance.empty() && !options.gpu.empty()) {
    throw_user_error("--instance {} and --gpu {} are mutually exclusive; remove one of them.", options.instance,
                     options.gpu);
  }
  if (options.host_gigabits && options.gpu.empty()) {
    throw_user_error("--host_gigabits {} conflicts with --instance {}, which sets the bandwidth; remove one of them.",
                     *options.host_gigabits, options.instance);
  }
  if (options.host_gigabits && options.nodes == 1) {
    throw_user_error("--host_gigabits {} has no effect on one host; pass --nodes, or remove the flag.",
                     *options.host_gigabits);
  }
  if (options.network_rate && options.host_gigabits) {
    throw_user_error("--network_rate and --host_gigabits both set the network bandwidth; remove one of them.");
  }
  if (options.network_rate && options.nodes == 1) {
    throw_user_error("--network_rate {} has no effect on one host; pass --nodes, or remove the flag.",
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
  std::vector<std::string> names = {"calibrate"};
  for (const CommandFlag& flag : plan_flags(unused)) names.push_back(flag.name);
  return names;
}

std::string plan_help() {
  return "Usage: mpzero plan --instance p5.48xlarge --nodes 4 --model_type llama_3_8b --deepspeed_config FILE\n"
         "\n"
         "Estimates memory, step time, training hours and cost of a run. Simulates the engine with measured kernel\n"
         "times. Requires neither a GPU nor MPI.\n"
         "\n"
         "  --instance TYPE          EC2 instance type (GPU types: docs/ec2.md, CPU types: docs/plan.md)\n"
         "  --gpu NAME               GPU instead of an instance type, e.g. H200 or A100-80GB;\n"
         "                           --nproc_per_node sets the GPUs per host (default: 1)\n"
         "  --device cpu             train on the CPUs of --instance, or of hosts like this machine;\n"
         "                           --nproc_per_node sets the ranks per host (default: 1, or the instance's sockets)\n"
         "  --nodes N                number of hosts (default: 1)\n"
         "  --host_gigabits N        network bandwidth per host in Gb/s, with --gpu (default: 100)\n"
         "  --tokens N               number of training tokens, e.g. 15e9, to estimate hours and cost\n"
         "  --compare                rank instance types, ZeRO stages, offload, layouts, micro-batches and\n"
         "                           recomputation, and print the fastest ds_config.json\n"
         "  --instances LIST         compare only these hosts, e.g. p4d.24xlarge:2,g6e.12xlarge:4,p5.48xlarge:1\n"
         "  --max_seq_length         plan the run with the longest sequences that fit in memory\n"
         "  --largest_model          plan the run with the largest number of layers that fits in memory\n"
         "  --json                   print JSON (docs/formats.md)\n"
         "  --calibration FILE       file with kernel times (default: a file in configs/calibrations)\n"
         "  --price N                price per host-hour, in any currency\n"
         "  --prices FILE            JSON file with prices for --compare, e.g. {\"p5.48xlarge\": 55.04}\n"
         "  --disk_rate N            checkpoint write rate per host in GB/s (default: from the calibration)\n"
         "  --network_rate N         collective bandwidth per host in GB/s, as measured by `mpzero doctor "
         "--bandwidth`\n"
         "                           (default: estimated from the network bandwidth)\n"
         "  --straggler_factor X     compute time of the slowest rank relative to the others (default: 1)\n"
         "  --network_factor X       duration of collectives relative to the estimate (default: 1)\n"
         "\n"
         "  --calibrate FILE         measure this machine's kernels and write FILE, for --calibration; on CPUs:\n"
         "                           mpirun -n RANKS mpzero plan --calibrate FILE --device cpu\n"
         "\n"
         "All flags of `mpzero train` are accepted, and --train_data is optional. --network socket plans for TCP.\n";
}

}  // namespace mpzero::plan
