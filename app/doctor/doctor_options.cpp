#include "app/doctor/doctor_options.hpp"

#include <charconv>
#include <functional>
#include <optional>

#include "base/error.hpp"
#include "base/words.hpp"

namespace mpzero::doctor {
namespace {

// A flag with a value, or a switch without a value.
struct Flag {
  std::string name;
  std::function<void(Options&, const std::string& value)> set;
  bool has_value = true;
};

std::chrono::seconds parse_seconds(const std::string& flag, const std::string& argument) {
  int seconds = 0;
  const auto [rest, error] = std::from_chars(argument.data(), argument.data() + argument.size(), seconds);
  if (error != std::errc() || rest != argument.data() + argument.size() || seconds < 1) {
    throw_user_error("--{} must be an integer number of seconds, not \"{}\".", flag, argument);
  }
  return std::chrono::seconds(seconds);
}

std::string parse_device(const std::string& argument) {
  if (argument != "auto" && argument != "cuda" && argument != "cpu") {
    throw_user_error("--device must be auto, cuda or cpu, not \"{}\".", argument);
  }
  return argument;
}

std::vector<Flag> flags() {
  return {
      {"quick", [](Options& options, const std::string&) { options.quick = true; }, false},
      {"bandwidth", [](Options& options, const std::string&) { options.bandwidth = true; }, false},
      {"json", [](Options& options, const std::string& value) { options.json = value; }},
      {"checkpoint_dir", [](Options& options, const std::string& value) { options.checkpoint_dir = value; }},
      {"device", [](Options& options, const std::string& value) { options.device = parse_device(value); }},
      {"network", [](Options& options,
                     const std::string& value) { options.network = parallel::parse_network_choice("network", value); }},
      {"patience",
       [](Options& options, const std::string& value) { options.given_patience = parse_seconds("patience", value); }},
      {"system_root", [](Options& options, const std::string& value) { options.system.root = value; }},
      {"nvml_library", [](Options& options, const std::string& value) { options.system.nvml = {value}; }},
      {"cuda_library", [](Options& options, const std::string& value) { options.system.cuda = {value}; }},
      {"fabric_library", [](Options& options, const std::string& value) { options.system.libfabric = {value}; }},
      {"plugin_library", [](Options& options, const std::string& value) { options.system.plugin_files = {value}; }},
  };
}

const Flag& find(const std::vector<Flag>& known, const std::string& argument, const std::string& name) {
  std::vector<std::string> names;
  for (const Flag& flag : known) {
    if (argument.rfind("--", 0) == 0 && flag.name == name) return flag;
    names.push_back(flag.name);
  }
  if (argument.rfind("--", 0) != 0)
    throw_user_error("\"{}\" is not a flag; `mpzero doctor --help` lists all flags.", argument);
  if (const auto nearest = nearest_name(name, names)) {
    throw_user_error("--{} is not a known flag of mpzero doctor; did you mean --{}?", name, *nearest);
  }
  throw_user_error("--{} is not a known flag; `mpzero doctor --help` lists all flags.", name);
}

}  // namespace

std::chrono::seconds Options::patience() const {
  constexpr std::chrono::seconds kQuick(120), kThorough(900);
  return given_patience.value_or(quick ? kQuick : kThorough);
}

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  options.system.plugin_files = parallel::usual_plugin_files();
  const std::vector<Flag> known = flags();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string name =
        argument.size() > 2 ? argument.substr(2, equals == std::string::npos ? equals : equals - 2) : argument;
    const Flag& flag = find(known, argument, name);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = argument.substr(equals + 1);
    if (!flag.has_value && value) throw_user_error("--{} takes no value; remove the value.", name);
    if (flag.has_value && !value && i + 1 < arguments.size() && arguments[i + 1].rfind("--", 0) != 0) {
      value = arguments[++i];
    }
    if (flag.has_value && value.value_or("").empty()) throw_user_error("--{} needs a value; pass one.", name);
    flag.set(options, value.value_or(""));
  }
  if (options.quick && options.bandwidth) {
    throw_user_error("--quick and --bandwidth are mutually exclusive; pass only one of them.");
  }
  return options;
}

std::string options_help() {
  return "Usage: mpzero doctor [FLAGS], or mpirun -n RANKS mpzero doctor [FLAGS]\n"
         "\n"
         "Checks this host or, under mpirun or srun, all hosts of the job.\n"
         "Exit status: 0 if a run should work, 1 if a host should be excluded, 2 if only the job's settings or shared\n"
         "resources must be fixed.\n"
         "\n"
         "  --quick               skip checks that take seconds (write speed)\n"
         "  --bandwidth           compare all-gather and reduce-scatter bandwidth with the instance's specification\n"
         "  --json FILE           also write the report to FILE as JSON\n"
         "  --checkpoint_dir DIR  folder to check (default: checkpoints)\n"
         "  --device VALUE        auto, cuda (fails without GPUs) or cpu (skips GPU checks) (default: auto)\n"
         "  --network VALUE       auto, efa or socket, as for mpzero train (default: auto)\n"
         "  --patience SECONDS    timeout per host; a hung host writes FILE.HOST.hung next to the JSON report\n"
         "                        (default: 120 with --quick, else 900)\n"
         "\n"
         "Flags for tests: --system_root DIR (parent of /proc, /sys and /dev), --nvml_library, --cuda_library,\n"
         "--fabric_library and --plugin_library FILE.\n";
}

}  // namespace mpzero::doctor
