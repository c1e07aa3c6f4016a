#include <arpa/inet.h>

#include <charconv>

#include "app/flags/training_flags.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

constexpr int64_t kMaxPort = 65535;
// Limit for --dry_run. MPI ranks are 32-bit integers.
constexpr int64_t kMaxRanks = 1'000'000;

// Accepts only IP addresses, since a host name may resolve to several addresses, or to different addresses on different
// nodes.
void read_metrics_address(CommandLine& line, const std::string& flag, const std::string& text) {
  in6_addr parsed;
  if (::inet_pton(AF_INET, text.c_str(), &parsed) != 1 && ::inet_pton(AF_INET6, text.c_str(), &parsed) != 1) {
    throw_user_error(
        "--{} \"{}\" is not an IP address; pass 127.0.0.1 (local access only), 0.0.0.0 (all interfaces) or an address "
        "of the host.",
        flag, text);
  }
  line.metrics_address = text;
}

std::string show_metrics_address(const Settings& settings) { return settings.metrics_address; }

// Parses "5-7", or "5" for a single step.
void read_profile_steps(CommandLine& line, const std::string& flag, const std::string& text) {
  const size_t dash = text.find('-');
  const auto step = [&](const std::string& bound) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(bound.data(), bound.data() + bound.size(), number);
    if (error != std::errc() || end != bound.data() + bound.size() || number < 1) {
      throw_user_error("--{} must be a range of steps such as 5-7, counted from 1, not \"{}\".", flag, text);
    }
    return number;
  };
  StepRange range{.first = step(text.substr(0, dash)), .last = 0};
  range.last = dash == std::string::npos ? range.first : step(text.substr(dash + 1));
  if (range.last < range.first) {
    throw_user_error("--{} {} ends before it begins; did you mean {}-{}?", flag, text, range.last, range.first);
  }
  line.profile_steps = range;
}

std::string show_profile_steps(const Settings& settings) {
  if (!settings.profile_steps) return "";
  return fmt::format("{}-{}", settings.profile_steps->first, settings.profile_steps->last);
}

std::vector<Flag> length_flags() {
  return {{.name = "max_steps",
           .value = Integer{.field = field<&Settings::max_steps>, .minimum = 1},
           .help = "total number of optimizer steps",
           .unit = "STEPS",
           .default_text = fmt::format("{}, or set by --epochs", Settings{}.max_steps),
           .trainer = TrainersFlag{},
           .recorded = Recorded{.section = Recorded::Section::kSchedule, .label = "steps", .key = "max_steps"}},
          {.name = "epochs",
           .value = Integer{.field = field<&Settings::epochs>, .minimum = 1},
           .help = "number of passes over --train_data; if --max_steps is also set, the smaller limit applies",
           .default_text = "set by --max_steps"},
          {.name = "num_train_epochs",
           .value = Real{.field = field<&Settings::num_train_epochs>, .may_be_minimum = false},
           .help = "number of epochs, counted as in the Trainer: X times the number of complete optimizer steps per "
                   "epoch, rounded up",
           .default_text = "set by --max_steps",
           .trainer = TrainersFlag{}}};
}

std::vector<Flag> observing_flags() {
  return {
      {.name = "logging_freq",
       .value = Integer{.field = field<&Settings::logging_freq>, .minimum = 1},
       .help = "number of steps between log lines",
       .unit = "STEPS",
       .file = FileKey{.name = "steps_per_print",
                       .read = [](const io::DsConfig& file) { return file.steps_per_print; },
                       .conflict = FileKey::Conflict::kFlagHolds},
       .trainer = TrainersFlag{.name = "logging_steps"}},
      {.name = "wall_clock_breakdown",
       .value = Boolean{field<&Settings::wall_clock_breakdown>},
       .help = "add a breakdown of the step time to each log line",
       .file = FileKey{.name = "wall_clock_breakdown",
                       .read = [](const io::DsConfig& file) { return file.wall_clock_breakdown; },
                       .conflict = FileKey::Conflict::kFlagHolds}},
      {.name = "validation_freq",
       .value = Integer{.field = field<&Settings::validation_freq>},
       .help = "number of steps between validations; 0 disables validation",
       .unit = "STEPS"},
      {.name = "validation_sequences",
       .value = Integer{.field = field<&Settings::validation_sequences>},
       .help =
           "number of sequences to validate on, from the start of each --validation_data file; 0 uses all sequences",
       .unit = "SEQUENCES",
       .recorded = Recorded{.key = "validation_sequences"}},
      {.name = "validation_batches",
       .value = Integer{.field = field<&Settings::validation_batches>, .minimum = 1},
       .help = "deprecated: set --validation_sequences to N x train_micro_batch_size_per_gpu x ranks instead",
       .default_text = "set by --validation_sequences"},
      {.name = "metrics_file",
       .value = Text{field<&Settings::metrics_file>},
       .help = "output file for metrics, with one JSON object per step; none: no file",
       .unit = "FILE",
       .default_text = "metrics.jsonl in --checkpoint_dir"},
      {.name = "metrics_port",
       .value = Integer{.field = field<&Settings::metrics_port>, .maximum = kMaxPort},
       .help = "port of the Prometheus endpoint on each node; 0 disables the endpoint",
       .unit = "PORT"},
      {.name = "metrics_address",
       .value = Custom{.read = read_metrics_address, .show = show_metrics_address},
       .help = "IP address to which the Prometheus endpoint binds on each node; 0.0.0.0 binds to all interfaces",
       .unit = "ADDRESS"},
      {.name = "metrics_sd_dir",
       .value = Text{field<&Settings::metrics_sd_dir>},
       .help = "folder for a Prometheus service discovery file (file_sd_configs) that lists the run's nodes; requires "
               "a --metrics_address that is reachable from other hosts",
       .unit = "DIR",
       .default_text = "none"}};
}

std::vector<Flag> machine_flags() {
  return {{.name = "device",
           .value = choice(field<&Settings::device>, std::vector<std::string>{"auto", "cuda", "cpu"}),
           .help = "training device: auto (GPU if available), cuda or cpu"},
          {.name = "network",
           .value = choice(field<&Settings::network>, std::vector<std::string>{"auto", "efa", "socket"}),
           .help = "network transport between GPUs on different nodes: efa (fail if unavailable), socket (TCP) or auto "
                   "(efa if the nodes have EFA devices, otherwise selected by NCCL)"},
          {.name = "grace_period",
           .value = Real{.field = field<&Settings::grace_period>},
           .help = "time between a stop signal and SIGKILL (Slurm's KillWait, or the lead time of --signal). A "
                   "checkpoint that would take longer is skipped. 0 means unknown: the checkpoint is always saved",
           .unit = "SECONDS"},
          {.name = "ec2_notices",
           .value = Boolean{field<&Settings::ec2_notices>},
           .help = "on EC2, save a checkpoint and stop after a Spot interruption or maintenance notice"},
          {.name = "stuck_after",
           .value = Real{.field = field<&Settings::stuck_after>},
           .help = "maximum time without progress before the run ends with a failure report. For training steps, the "
                   "limit is at most max(300 s, 10 x median step, 3 x longest step). Setup, the first step, validation "
                   "and checkpoints may take 3 times as long. 0 disables the limit",
           .unit = "SECONDS"}};
}

std::vector<Flag> profile_flags() {
  return {{.name = "profile_steps",
           .value = Custom{.read = read_profile_steps, .show = show_profile_steps},
           .help = "steps to trace; view the traces at https://ui.perfetto.dev",
           .unit = "FIRST-LAST",
           .default_text = "none"},
          {.name = "profile_ranks",
           .value = choice<bool>(field<&Settings::profile_all_ranks>, {{"0", false}, {"all", true}}),
           .help = "ranks to trace: 0 or all"},
          {.name = "profile_dir",
           .value = Text{field<&Settings::profile_dir>},
           .help = "output folder for traces",
           .unit = "DIR",
           .default_text = "folder of --metrics_file, or --checkpoint_dir if there is no metrics file"}};
}

std::vector<Flag> dry_run_flags() {
  return {{.name = "dry_run",
           .value = Boolean{field<&Settings::dry_run>},
           .help = "validate flags, files, data, memory and checkpoint, print the resolved configuration, and exit. "
                   "Requires neither a GPU nor mpirun, and writes no files"},
          {.name = "world_size",
           .value = Integer{.field = field<&Settings::world_size>, .minimum = 1, .maximum = kMaxRanks},
           .help = "number of ranks assumed by --dry_run",
           .unit = "RANKS",
           .default_text = "set by mpirun or srun, otherwise 1"},
          {.name = "nproc_per_node",
           .value = Integer{.field = field<&Settings::nproc_per_node>, .minimum = 1, .maximum = kMaxRanks},
           .help = "number of ranks per host assumed by --dry_run",
           .unit = "RANKS",
           .default_text = "set by mpirun or srun, otherwise all ranks"}};
}

}  // namespace

FlagGroup loop_flags() {
  FlagGroup group{"Training loop", {}};
  for (const std::vector<Flag>& flags :
       {length_flags(), observing_flags(), machine_flags(), profile_flags(), dry_run_flags()}) {
    group.flags.insert(group.flags.end(), flags.begin(), flags.end());
  }
  return group;
}

}  // namespace mpzero
