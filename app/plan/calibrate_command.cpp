#include "app/plan/calibrate_command.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "app/machine/cpu_share.hpp"
#include "app/plan/calibrate.hpp"
#include "base/command_line/command_flags.hpp"
#include "base/error.hpp"
#include "base/output.hpp"

namespace mpzero::plan {
namespace {

// Error of a calibration on an otherwise idle machine.
constexpr double kQuiet = 0.1;
constexpr const char* kUsage = "mpzero plan --calibrate FILE [--device auto|cuda|cpu] [--calibrate_seconds N]";

struct CalibrateArguments {
  std::filesystem::path file;
  CalibrateOptions options;
};

// Throws the same UserError on all ranks.
CalibrateArguments arguments_of(const std::vector<std::string>& arguments, parallel::MpiRuntime* ranks) {
  CalibrateArguments made;
  CalibrateOptions& options = made.options;
  constexpr double kLeastSeconds = 1e-3, kDay = 86400;
  read_flags_of("mpzero plan --calibrate", arguments,
                {{"calibrate", text(made.file)},
                 {"device", choice(options.device, {"auto", "cuda", "cpu"})},
                 {"calibrate_seconds", real(options.seconds, kLeastSeconds, kDay)}},
                0);
  if (made.file.empty()) throw_user_error("--calibrate FILE is missing; usage: {}", kUsage);
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
