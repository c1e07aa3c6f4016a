#include <arpa/inet.h>

#include <charconv>

#include "app/flags/training_flags.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

constexpr int64_t kMaxPort = 65535;
// Limit of --dry_run; MPI counts ranks in 32 bits.
constexpr int64_t kMaxRanks = 1'000'000;

// Requires an address: a host name may have several, which may differ between nodes.
void read_metrics_address(CommandLine& line, const std::string& flag, const std::string& text) {
  in6_addr parsed;
  if (::inet_pton(AF_INET, text.c_str(), &parsed) != 1 && ::inet_pton(AF_INET6, text.c_str(), &parsed) != 1) {
    throw_user_error(
        "--{} \"{}\" is not an IP address; pass 127.0.0.1 (only this host), 0.0.0.0 (all addresses) or an address of "
        "the host.",
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
      throw_user_error("--{} must be a range of steps, counted from 1, e.g. 5-7, not \"{}\".", flag, text);
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
  return {
      {.name = "max_steps",
       .value = Integer{.field = field<&Settings::max_steps>, .minimum = 1},
       .help = "optimizer steps",
       .unit = "STEPS",
       .default_text = fmt::format("{}, or set by --epochs", Settings{}.max_steps),
       .trainer = TrainersFlag{},
       .recorded = Recorded{.section = Recorded::Section::kSchedule, .label = "steps", .key = "max_steps"}},
      {.name = "epochs",
       .value = Integer{.field = field<&Settings::epochs>, .minimum = 1},
       .help = "passes over --train_data; with --max_steps, whichever ends first",
       .default_text = "set by --max_steps"},
      {.name = "num_train_epochs",
       .value = Real{.field = field<&Settings::num_train_epochs>, .may_be_minimum = false},
       .help = "epochs as the Trainer counts them: X times the complete optimizer steps in --train_data, rounded up",
       .default_text = "set by --max_steps",
       .trainer = TrainersFlag{}}};
}

std::vector<Flag> observing_flags() {
  return {{.name = "logging_freq",
           .value = Integer{.field = field<&Settings::logging_freq>, .minimum = 1},
           .help = "steps between log lines",
           .unit = "STEPS",
           .file = FileKey{.name = "steps_per_print",
                           .read = [](const io::DsConfig& file) { return file.steps_per_print; },
                           .conflict = FileKey::Conflict::kFlagHolds},
           .trainer = TrainersFlag{.name = "logging_steps"}},
          {.name = "validation_freq",
           .value = Integer{.field = field<&Settings::validation_freq>},
           .help = "steps between validations; 0 disables validation",
           .unit = "STEPS"},
          {.name = "validation_sequences",
           .value = Integer{.field = field<&Settings::validation_sequences>},
           .help = "sequences per validation, from the beginning of each --validation_data file; 0 validates on all",
           .unit = "SEQUENCES",
           .recorded = Recorded{.key = "validation_sequences"}},
          {.name = "validation_batches",
           .value = Integer{.field = field<&Settings::validation_batches>, .minimum = 1},
           .help = "deprecated: use --validation_sequences N x train_micro_batch_size_per_gpu x ranks",
           .default_text = "set by --validation_sequences"},
          {.name = "metrics_file",
           .value = Text{field<&Settings::metrics_file>},
           .help = "write one JSON object per step to this file; none disables it",
           .unit = "FILE",
           .default_text = "metrics.jsonl in --checkpoint_dir"},
          {.name = "metrics_port",
           .value = Integer{.field = field<&Settings::metrics_port>, .maximum = kMaxPort},
           .help = "port of the Prometheus endpoint on each node; 0 disables it. If the port is in use, mpzero warns "
                   "and trains without it",
           .unit = "PORT"},
          {.name = "metrics_address",
           .value = Custom{.read = read_metrics_address, .show = show_metrics_address},
           .help = "IP address that --metrics_port binds on each node; 0.0.0.0 binds all",
           .unit = "ADDRESS"},
          {.name = "metrics_sd_dir",
           .value = Text{field<&Settings::metrics_sd_dir>},
           .help = "folder for a file_sd_configs file that lists the run's nodes for Prometheus; needs a "
                   "--metrics_address that other hosts reach",
           .unit = "DIR",
           .default_text = "none"}};
}

std::vector<Flag> machine_flags() {
  return {{.name = "device",
           .value = choice(field<&Settings::device>, std::vector<std::string>{"auto", "cuda", "cpu"}),
           .help = "device to train on: auto (a GPU if there is one), cuda or cpu"},
          {.name = "network",
           .value = choice(field<&Settings::network>, std::vector<std::string>{"auto", "efa", "socket"}),
           .help = "transport between GPUs of different nodes: efa (or fail), socket (TCP), auto (efa on nodes with "
                   "EFA devices, else NCCL's choice)"},
          {.name = "grace_period",
           .value = Real{.field = field<&Settings::grace_period>},
           .help = "time between a stop signal and the kill (Slurm's KillWait, or the lead time of --signal); a "
                   "checkpoint that would take longer is skipped. 0: unknown, always save",
           .unit = "SECONDS"},
          {.name = "ec2_notices",
           .value = Boolean{field<&Settings::ec2_notices>},
           .help = "on EC2, save and stop on a spot interruption or maintenance notice"},
          {.name = "stuck_after",
           .value = Real{.field = field<&Settings::stuck_after>},
           .help = "end the run with a failure report if a rank makes no progress for this long; while training, also "
                   "after max(300 s, 10 median steps). Set-up, the first step, validation and checkpoints get 3 times "
                   "as long; 0 disables it",
           .unit = "SECONDS"}};
}

std::vector<Flag> profile_flags() {
  return {{.name = "profile_steps",
           .value = Custom{.read = read_profile_steps, .show = show_profile_steps},
           .help = "trace these steps for https://ui.perfetto.dev",
           .unit = "FIRST-LAST",
           .default_text = "none"},
          {.name = "profile_ranks",
           .value = choice<bool>(field<&Settings::profile_all_ranks>, {{"0", false}, {"all", true}}),
           .help = "ranks to trace: 0 or all"},
          {.name = "profile_dir",
           .value = Text{field<&Settings::profile_dir>},
           .help = "folder of the traces",
           .unit = "DIR",
           .default_text = "folder of --metrics_file, else --checkpoint_dir"}};
}

std::vector<Flag> dry_run_flags() {
  return {{.name = "dry_run",
           .value = Boolean{field<&Settings::dry_run>},
           .help = "check flags, files, data, memory and checkpoint, print the resolved run, and exit; needs no GPU "
                   "and no mpirun, writes nothing"},
          {.name = "world_size",
           .value = Integer{.field = field<&Settings::world_size>, .minimum = 1, .maximum = kMaxRanks},
           .help = "with --dry_run: number of ranks",
           .unit = "RANKS",
           .default_text = "ranks of mpirun or srun, else 1"},
          {.name = "nproc_per_node",
           .value = Integer{.field = field<&Settings::nproc_per_node>, .minimum = 1, .maximum = kMaxRanks},
           .help = "with --dry_run: ranks per host",
           .unit = "RANKS",
           .default_text = "as mpirun placed them, else all"}};
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
