#include <arpa/inet.h>

#include <charconv>

#include "app/flags/training_flags.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

constexpr int64_t kMaxPort = 65535;
// What a dry run plans for; MPI counts ranks in 32 bits.
constexpr int64_t kMaxRanks = 1'000'000;

// An address and no name: a name may have several, and not the same on each node.
void read_metrics_address(CommandLine& line, const std::string& flag, const std::string& text) {
  in6_addr parsed;
  if (::inet_pton(AF_INET, text.c_str(), &parsed) != 1 && ::inet_pton(AF_INET6, text.c_str(), &parsed) != 1) {
    throw_user_error(
        "--{} \"{}\" is no IP address; give 127.0.0.1 for this host alone, 0.0.0.0 for all of its addresses, or one of "
        "them.",
        flag, text);
  }
  line.metrics_address = text;
}

std::string show_metrics_address(const Settings& settings) { return settings.metrics_address; }

// "5-7", or "5" for that step alone.
void read_profile_steps(CommandLine& line, const std::string& flag, const std::string& text) {
  const size_t dash = text.find('-');
  const auto step = [&](const std::string& bound) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(bound.data(), bound.data() + bound.size(), number);
    if (error != std::errc() || end != bound.data() + bound.size() || number < 1) {
      throw_user_error("--{} must be the first and the last step, counted from 1, as in 5-7, not \"{}\".", flag, text);
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
           .help = "optimizer steps",
           .unit = "STEPS",
           .default_text = fmt::format("{}, or as --epochs says", Settings{}.max_steps),
           .trainer = TrainersFlag{},
           .recorded = Recorded{.section = Recorded::Section::kSchedule, .label = "steps", .key = "max_steps"}},
          {.name = "epochs",
           .value = Integer{.field = field<&Settings::epochs>, .minimum = 1},
           .help = "passes over --train_data; with --max_steps the smaller holds",
           .default_text = "as --max_steps says"},
          {.name = "num_train_epochs",
           .value = Real{.field = field<&Settings::num_train_epochs>, .may_be_minimum = false},
           .help = "as the Trainer counts them: so many times the whole optimizer steps in --train_data, rounded up",
           .default_text = "as --max_steps says",
           .trainer = TrainersFlag{}}};
}

std::vector<Flag> observing_flags() {
  return {
      {.name = "logging_freq",
       .value = Integer{.field = field<&Settings::logging_freq>, .minimum = 1},
       .help = "steps between log lines",
       .unit = "STEPS",
       .file = FileKey{.name = "steps_per_print",
                       .read = [](const io::DsConfig& file) { return file.steps_per_print; },
                       .conflict = FileKey::Conflict::kFlagHolds},
       .trainer = TrainersFlag{.name = "logging_steps"}},
      {.name = "validation_freq",
       .value = Integer{.field = field<&Settings::validation_freq>},
       .help = "steps between validations; 0: never",
       .unit = "STEPS"},
      {.name = "validation_sequences",
       .value = Integer{.field = field<&Settings::validation_sequences>},
       .help =
           "sequences of each --validation_data file in a validation, from its beginning and the same on any number "
           "of ranks; of a shorter file all; 0: all",
       .unit = "SEQUENCES",
       .recorded = Recorded{.key = "validation_sequences"}},
      {.name = "validation_batches",
       .value = Integer{.field = field<&Settings::validation_batches>, .minimum = 1},
       .help = "deprecated: N x train_micro_batch_size_per_gpu x ranks is --validation_sequences",
       .default_text = "as --validation_sequences says"},
      {.name = "metrics_file",
       .value = Text{field<&Settings::metrics_file>},
       .help = "write one JSON object a step; none: no file",
       .unit = "FILE",
       .default_text = "metrics.jsonl in --checkpoint_dir"},
      {.name = "metrics_port",
       .value = Integer{.field = field<&Settings::metrics_port>, .maximum = kMaxPort},
       .help = "answer Prometheus on this port of each node; 0: do not. Where the port cannot be opened, a warning "
               "names the node and training continues without it",
       .unit = "PORT"},
      {.name = "metrics_address",
       .value = Custom{.read = read_metrics_address, .show = show_metrics_address},
       .help = "the IP address of each node on which --metrics_port listens; 0.0.0.0: all",
       .unit = "ADDRESS"},
      {.name = "metrics_sd_dir",
       .value = Text{field<&Settings::metrics_sd_dir>},
       .help =
           "write a file there that tells Prometheus the run's nodes (file_sd_configs); needs a --metrics_address that "
           "other hosts reach",
       .unit = "DIR",
       .default_text = "none"}};
}

std::vector<Flag> machine_flags() {
  return {
      {.name = "device",
       .value = choice(field<&Settings::device>, std::vector<std::string>{"auto", "cuda", "cpu"}),
       .help = "auto, cuda or cpu"},
      {.name = "network",
       .value = choice(field<&Settings::network>, std::vector<std::string>{"auto", "efa", "socket"}),
       .help = "what carries data between the GPUs of several nodes: efa: EFA or the run ends; socket: TCP; auto: as "
               "efa where nodes have EFA devices, else what NCCL finds"},
      {.name = "grace_period",
       .value = Real{.field = field<&Settings::grace_period>},
       .help = "how long the run lives on after it is asked to stop (Slurm's KillWait, or the time of --signal before "
               "the limit): a checkpoint that would take longer is not begun; 0: not known, every stop saves",
       .unit = "SECONDS"},
      {.name = "ec2_notices",
       .value = Boolean{field<&Settings::ec2_notices>},
       .help = "on an instance of EC2: save and stop when EC2 says that it takes back the instance or works on it"},
      {.name = "stuck_after",
       .value = Real{.field = field<&Settings::stuck_after>},
       .help = "a rank that makes no progress for so long ends the run and leaves evidence; while it trains, after 10 "
               "times the median step, but not before 300 seconds, if that is less. Three times as long during set-up, "
               "the first step, validation and checkpoints; 0: never",
       .unit = "SECONDS"}};
}

std::vector<Flag> profile_flags() {
  return {{.name = "profile_steps",
           .value = Custom{.read = read_profile_steps, .show = show_profile_steps},
           .help = "take a trace of these steps, for https://ui.perfetto.dev",
           .unit = "FIRST-LAST",
           .default_text = "none"},
          {.name = "profile_ranks",
           .value = choice<bool>(field<&Settings::profile_all_ranks>, {{"0", false}, {"all", true}}),
           .help = "the ranks that take it: 0 or all"},
          {.name = "profile_dir",
           .value = Text{field<&Settings::profile_dir>},
           .help = "where the trace goes",
           .unit = "DIR",
           .default_text = "the folder of --metrics_file, else --checkpoint_dir"}};
}

std::vector<Flag> dry_run_flags() {
  return {{.name = "dry_run",
           .value = Boolean{field<&Settings::dry_run>},
           .help = "check flags, files, data, memory and checkpoint, print what would be trained, and end; needs no "
                   "GPU and no mpirun, and writes nothing"},
          {.name = "world_size",
           .value = Integer{.field = field<&Settings::world_size>, .minimum = 1, .maximum = kMaxRanks},
           .help = "with --dry_run: the ranks of the run that it describes",
           .unit = "RANKS",
           .default_text = "those that mpirun or srun started, else 1"},
          {.name = "nproc_per_node",
           .value = Integer{.field = field<&Settings::nproc_per_node>, .minimum = 1, .maximum = kMaxRanks},
           .help = "with --dry_run: how many of these run on a host",
           .unit = "RANKS",
           .default_text = "as mpirun has placed them, else all"}};
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
