#include "app/plan/calibrate_command.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "app/machine/cpu_share.hpp"
#include "app/plan/calibrate.hpp"
#include "base/error.hpp"
#include "base/output.hpp"

namespace mpzero::plan {
namespace {

// Error of a calibration on an otherwise idle machine.
constexpr double kQuiet = 0.1;
constexpr const char* kUsage = "mpzero plan --calibrate FILE [--device auto|cuda|cpu] [--calibrate_seconds N]";

// Parses `--flag VALUE` and `--flag=VALUE`.
std::map<std::string, std::string> values_of(const std::vector<std::string>& arguments) {
  std::map<std::string, std::string> values;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t equals = arguments[i].find('=');
    const std::string flag = arguments[i].substr(0, equals);
    if (flag != "--calibrate" && flag != "--device" && flag != "--calibrate_seconds") {
      throw_user_error("\"{}\" is not a flag of --calibrate; usage: {}", arguments[i], kUsage);
    }
    std::string value;
    if (equals != std::string::npos) {
      value = arguments[i].substr(equals + 1);
    } else if (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--")) {
      value = arguments[++i];
    }
    if (value.empty()) throw_user_error("{} needs a value; usage: {}", flag, kUsage);
    if (!values.emplace(flag, value).second) throw_user_error("{} is given twice; keep one of the two", flag);
  }
  return values;
}

double seconds_of(const std::string& text) {
  double seconds = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || rest != text.data() + text.size() || !(seconds > 0) || seconds > 86400) {
    throw_user_error("--calibrate_seconds must be a number of seconds, not \"{}\"", text);
  }
  return seconds;
}

struct CalibrateArguments {
  std::filesystem::path file;
  CalibrateOptions options;
};

// Throws the same UserError on all ranks.
CalibrateArguments arguments_of(const std::vector<std::string>& arguments, parallel::MpiRuntime* ranks) {
  auto values = values_of(arguments);
  if (!values.contains("--calibrate")) throw_user_error("--calibrate FILE is missing; usage: {}", kUsage);
  CalibrateArguments made;
  made.file = values.at("--calibrate");
  CalibrateOptions& options = made.options;
  if (const auto device = values.find("--device"); device != values.end()) {
    options.device = device->second;
    if (options.device != "auto" && options.device != "cuda" && options.device != "cpu") {
      throw_user_error("--device must be auto, cuda or cpu, not \"{}\"", options.device);
    }
  }
  if (const auto seconds = values.find("--calibrate_seconds"); seconds != values.end()) {
    options.seconds = seconds_of(seconds->second);
  }
  if (ranks != nullptr) {
    if (options.device != "cpu") {
      throw_user_error(
          "--calibrate with {} ranks measures CPUs; pass --device cpu, or start one process to measure a GPU",
          ranks->world_size());
    }
    if (ranks->local_size() != ranks->world_size()) {
      throw_user_error("--calibrate measures one host, but the {} ranks run on several hosts; start them on one host",
                       ranks->world_size());
    }
    options.ranks = ranks;
  }
  return made;
}

}  // namespace

bool asks_to_calibrate(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--calibrate" || argument.starts_with("--calibrate=")) return true;
  }
  return false;
}

int calibrate_command(const std::vector<std::string>& arguments, parallel::MpiRuntime* ranks) {
  const CalibrateArguments given = [&] {
    try {
      return arguments_of(arguments, ranks);
    } catch (const UserError& error) {
      throw UserError(error.what(), ErrorScope::kAllRanks);  // all ranks have the same arguments
    }
  }();
  if (ranks != nullptr) share_cores(at::kCPU, *ranks);
  const CalibrationData data = calibrate(given.file, given.options);
  if (ranks != nullptr && ranks->rank() > 0) return EXIT_SUCCESS;
  size_t kernels = 0;
  for (const auto& [name, times] : data.kernels) kernels += times.size();
  print_out("{}: {} matmuls, {} attention shapes and {} kernel sizes\n{}\nCalibration: {}\n", data.device,
            data.matmuls.size(), data.attention.size(), kernels, data.source, given.file.string());
  if (data.full_step.empty()) {
    print_out(
        "The time limit was reached before whole layers were measured, so plans with this file have an error of "
        "{:.0f}%; increase --calibrate_seconds\n",
        100 * data.error);
  } else if (data.error > kQuiet) {
    print_out("Timings varied by {:.0f}%; stop other programs and measure again\n", 100 * data.error);
  }
  return EXIT_SUCCESS;
}

}  // namespace mpzero::plan
