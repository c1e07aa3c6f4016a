#include "app/doctor/doctor_options.hpp"

#include "base/command_line/command_flags.hpp"
#include "base/error.hpp"

namespace mpzero::doctor {
namespace {

std::vector<CommandFlag> doctor_flags(Options& o) {
  const auto library = [](auto& member) {
    return FlagValue{.read = [&member](const auto&, const std::string& file) { member = {file}; }};
  };
  const FlagValue network{
      .read = [&o](const std::string& flag,
                   const std::string& text) { o.network = parallel::parse_network_choice(flag, text); },
      .default_text = "auto"};
  return {
      {"quick", switch_on(o.quick), "", "skip slow checks (write speed)"},
      {"bandwidth", switch_on(o.bandwidth), "",
       "compare all-gather and reduce-scatter bandwidth with the instance's specification"},
      {"json", text(o.json), "FILE", "also write the report to FILE as JSON"},
      {"checkpoint_dir", text(o.checkpoint_dir), "DIR", "folder to check (default: checkpoints)"},
      {"device", choice(o.device, {"auto", "cuda", "cpu"}), "VALUE",
       "auto, cuda (fails without GPUs) or cpu (skips GPU checks)"},
      {"network", network, "VALUE", "auto, efa or socket, as for mpzero train"},
      {"patience", integer(o.given_patience, 1, std::numeric_limits<int>::max()), "SECONDS",
       "timeout per host; a hung host writes FILE.HOST.hung next to the JSON report (default: 120 with --quick, else "
       "900)"},
      {"system_root", text(o.system.root)},
      {"nvml_library", library(o.system.nvml)},
      {"cuda_library", library(o.system.cuda)},
      {"fabric_library", library(o.system.libfabric)},
      {"plugin_library", library(o.system.plugin_files)},
  };
}

}  // namespace

std::chrono::seconds Options::patience() const {
  constexpr int64_t kQuick = 120, kThorough = 900;
  return std::chrono::seconds(given_patience.value_or(quick ? kQuick : kThorough));
}

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  options.system.plugin_files = parallel::usual_plugin_files();
  read_flags_of("mpzero doctor", arguments, doctor_flags(options), 0);
  if (options.quick && options.bandwidth) {
    throw_user_error("--quick and --bandwidth are mutually exclusive; pass only one of them.");
  }
  return options;
}

std::string options_help() {
  Options defaults;
  return "Usage: mpzero doctor [FLAGS], or mpirun -n RANKS mpzero doctor [FLAGS]\n"
         "\n"
         "Checks this host or, under mpirun or srun, all hosts of the job.\n"
         "Exit status: 0 if a run should work, 1 if a host should be excluded, 2 if only\n"
         "the job's settings or shared resources must be fixed, 122 if a host hung.\n"
         "\n" +
         describe_flags(doctor_flags(defaults)) +
         "\n"
         "Flags for tests: --system_root DIR (parent of /proc, /sys and /dev),\n"
         "--nvml_library, --cuda_library, --fabric_library and --plugin_library FILE.\n";
}

}  // namespace mpzero::doctor
