// Entry point of mpzero. mpirun or srun starts one process per rank.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "app/checkpoint_command.hpp"
#include "app/doctor/doctor.hpp"
#include "app/doctor/doctor_options.hpp"
#include "app/dry_run/dry_run.hpp"
#include "app/flags/help.hpp"
#include "app/flags/options.hpp"
#include "app/flags/training_flags.hpp"
#include "app/flags/unknown_flags.hpp"
#include "app/generate/generate_command.hpp"
#include "app/log/version.hpp"
#include "app/machine/device.hpp"
#include "app/plan/calibrate_command.hpp"
#include "app/plan/command/plan_command.hpp"
#include "app/train/train.hpp"
#include "app/train/watched_run.hpp"
#include "base/command_line/arguments.hpp"
#include "base/error.hpp"
#include "base/output.hpp"
#include "base/words.hpp"
#include "io/files/shipped_folders.hpp"
#include "parallel/comm/library_versions.hpp"
#include "parallel/mpi/launch_check.hpp"
#include "parallel/mpi/mpi_runtime.hpp"
#include "parallel/mpi/mpi_start.hpp"

namespace mpzero {
namespace {

constexpr const char* kUsage =
    "mpzero trains Llama, Qwen and T5 language models.\n"
    "\n"
    "  mpirun -n RANKS mpzero train FLAGS         train a model\n"
    "  mpirun -n RANKS mpzero doctor              check the nodes of a job\n"
    "  mpzero checkpoint ls|verify|prune DIR      list, verify or remove checkpoints\n"
    "  mpzero checkpoint show DIR                 print a checkpoint's settings\n"
    "  mpzero checkpoint diff A B                 compare two checkpoints\n"
    "  mpzero plan FLAGS                          estimate memory, speed and cost\n"
    "  mpzero plan --calibrate FILE               measure this machine for plans\n"
    "  mpzero generate CHECKPOINT --prompt TEXT   complete a prompt\n"
    "  mpzero top RUN|JOB                         monitor a run in the terminal\n"
    "  mpzero failure DIR                         find the rank that failed\n"
    "  mpzero help COMMAND                        list the flags of a command\n"
    "  mpzero train --help FLAG                   explain one flag\n"
    "  mpzero --version                           print versions\n"
    "  zero_to_fp32 CHECKPOINT OUTPUT             export fp32 safetensors\n";

const std::vector<std::string> kCommands = {"train", "doctor",  "checkpoint", "plan",   "generate",
                                            "top",   "failure", "help",       "version"};

bool is_command(const std::string& name) { return std::ranges::find(kCommands, name) != kCommands.end(); }

// Returns "max_steps" for "--max_steps=5".
std::string name_in(const std::string& argument) {
  const size_t begin = std::min(argument.find_first_not_of('-'), argument.size());
  return argument.substr(begin, argument.find('=') - begin);
}

// Throws UserError for an unknown command.
void check_command(const std::string& command) {
  if (is_command(command)) return;
  const std::string name = name_in(command);
  std::optional<std::string> meant = nearest_name(name, kCommands);
  if (command.starts_with("--") && find_flag(meant_name(name)) != nullptr) meant = "train --" + meant_name(name);
  if (name == "zero_to_fp32") throw_user_error("zero_to_fp32 is a separate program, in the same folder as mpzero.");
  throw_user_error("'{}' is not a command{}", command,
                   meant ? fmt::format("; did you mean `mpzero {}`?", *meant) : "; see `mpzero help`.");
}

// Converts `help COMMAND [FLAG]` to `COMMAND --help [FLAG]`, and `help FLAG` to `train --help FLAG`.
std::vector<std::string> without_help(std::vector<std::string> arguments) {
  if (arguments.size() < 2 || arguments.size() > 3 || arguments.front() != "help") return arguments;
  if (arguments.size() == 3) return {arguments[1], "--help", name_in(arguments[2])};
  const std::string name = name_in(arguments[1]);
  if (!is_command(name) && find_flag(meant_name(name)) != nullptr) return {"train", "--help", name};
  return {arguments[1], "--help"};
}

// Returns the output of `mpzero train` for --help, --help=json, --help FLAG or -h; empty if none of these flags is set.
std::string train_help(const std::vector<std::string>& arguments) {
  if (std::ranges::find(arguments, "--help=json") != arguments.end()) return command_line_help_json();
  if (std::ranges::none_of(arguments, asks_for_help)) return "";
  const std::string flag = flag_after_help(arguments);
  return flag.empty() ? command_line_help() : flag_help(flag);
}

// Returns the exit code.
int dispatch(const std::vector<std::string>& arguments, const CommandLine& line, parallel::MpiRuntime& mpi) {
  if (arguments.front() == "plan") return plan::calibrate_command({arguments.begin() + 1, arguments.end()}, &mpi);
  if (arguments.front() == "doctor") return run_doctor({arguments.begin() + 1, arguments.end()}, mpi);
  return train(line, mpi);
}

// Delay before other ranks report an error, so that rank 0 can report it first.
constexpr std::chrono::milliseconds kPrecedence(300);

// Terminates all ranks. If the error occurred on all ranks, rank 0 reports it and all ranks exit normally. Otherwise,
// the failed rank reports it and aborts the other ranks.
int end_with(parallel::MpiRuntime& mpi, const std::string& message, ErrorScope scope, int exit_code) {
  if (scope == ErrorScope::kAllRanks) {
    if (mpi.rank() == 0) print_err("mpzero: error: {}\n", message);
    return exit_code;
  }
  if (mpi.rank() > 0) std::this_thread::sleep_for(kPrecedence);
  print_err("mpzero: error: rank {}: {}\n", mpi.rank(), message);
  mpi.abort(exit_code);
}

int run(const std::vector<std::string>& arguments, const CommandLine& line, parallel::MpiRuntime& mpi) {
  try {
    return dispatch(arguments, line, mpi);
  } catch (const ReportedError& error) {
    return error.exit_code;
  } catch (...) {
    const RunError error = current_error();
    return end_with(mpi, error.message, error.scope, error.exit_code);
  }
}

int run_alone(const std::function<int()>& command) {
  try {
    const int code = command();
    check_stdout();
    return code;
  } catch (const Error& error) {
    print_err("mpzero: error: {}\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    print_err("mpzero: error: {}\n", error.what());
    return kFailureExitCode;
  }
}

// Replaces this process with app/`name` of mpzero's tree, run by the tree's .venv or by python3. The programs require
// only Python 3.9 and the standard library. Throws UserError if the program cannot be started.
[[noreturn]] void become_python_program(const std::string& name, const std::vector<std::string>& arguments) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path tree = io::tree_of(fs::read_symlink("/proc/self/exe", error));
  const fs::path program = tree / "app" / name;
  if (!fs::exists(program, error)) {
    throw_user_error("{} does not exist; run mpzero from its checkout or from a cmake --install folder",
                     program.string());
  }
  // Python finds its virtual environment through argv[0].
  for (const std::string& python : {(tree / ".venv/bin/python").string(), std::string("python3")}) {
    std::vector<std::string> words = {python, "-X", "utf8", program.string()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execvp(python.c_str(), argv.data());
  }
  throw_user_error("cannot start python3 for {} ({}); install Python 3", program.string(), std::strerror(errno));
}

// Runs `check` before MPI starts and returns the exit code. Only the first task prints the error.
int check_launch(const std::function<void()>& check) {
  try {
    check();
    return EXIT_SUCCESS;
  } catch (const UserError& error) {
    if (parallel::is_first_task(parallel::process_environment)) {
      print_err("mpzero: error: {}\n", error.what());
    }
    return error.exit_code();
  }
}

// Minimum timeouts of MPI_Init, which may be slow if nodes load the programs from a shared file system. Scripts kill
// mpzero doctor after 5 minutes.
constexpr std::chrono::minutes kStartPatience(10), kStartPatienceOfDoctor(4);

// `stuck_after`: value of --stuck_after in seconds; 0: no timeout.
std::chrono::milliseconds start_patience(bool is_doctor, double stuck_after) {
  if (is_doctor) return kStartPatienceOfDoctor;
  if (stuck_after == 0) return std::chrono::years(100);
  return std::max<std::chrono::milliseconds>(kStartPatience, parallel::to_milliseconds(stuck_after));
}

// Starts MPI. Reports an error and returns false on failure.
bool start_mpi(std::optional<parallel::MpiRuntime>& mpi, int* argc, char*** argv, const std::string& device,
               std::chrono::milliseconds patience) {
  parallel::leave_launcher(parallel::process_environment);
  const parallel::MpiStart start(parallel::process_environment, patience, parallel::mpi_version());
  try {
    mpi.emplace(argc, argv, mpi_threads(device));
    if (mpi->rank() == 0) parallel::confirm_start(parallel::process_environment);
    return true;
  } catch (const std::exception& error) {
    parallel::report_failed_start(error.what());
    return false;
  }
}

// Runs the dry run on the first task.
int dry_run_once(const CommandLine& line) {
  if (!parallel::is_first_task(parallel::process_environment)) return EXIT_SUCCESS;
  return run_alone([&] { return dry_run(line, parallel::launch_size(parallel::process_environment)); });
}

}  // namespace
}  // namespace mpzero

int main(int argc, char** argv) {
  const std::vector<std::string> arguments = mpzero::without_help({argv + 1, argv + argc});
  const auto print = [](const std::string& text) {
    mpzero::write_output(mpzero::Output::kStdout, text);
    return EXIT_SUCCESS;
  };
  if (arguments.empty() || arguments.front() == "--help" || arguments.front() == "-h" || arguments.front() == "help") {
    print(mpzero::kUsage);
    return arguments.empty() ? mpzero::kUserErrorExitCode : EXIT_SUCCESS;
  }
  if (arguments.front() == "--version" || arguments.front() == "version") return print(mpzero::version_text());
  if (const int code = mpzero::check_launch([&] { mpzero::check_command(arguments.front()); }); code != 0) return code;
  if (arguments.front() == "train") {
    std::string help;
    if (const int code = mpzero::check_launch([&] { help = mpzero::train_help(arguments); }); code != 0) return code;
    if (!help.empty()) return print(help);
  }
  if (arguments.front() == "doctor" && std::ranges::any_of(arguments, mpzero::asks_for_help)) {
    return print(mpzero::doctor::options_help());
  }
  if (arguments.front() == "top" || arguments.front() == "failure") {
    return mpzero::run_alone([&]() -> int {
      mpzero::become_python_program(arguments.front() + ".py", {arguments.begin() + 1, arguments.end()});
    });
  }
  if (arguments.front() == "generate") {
    return mpzero::run_alone([&] { return mpzero::generate_command({arguments.begin() + 1, arguments.end()}); });
  }
  // With several ranks, all ranks of a host measure the CPU together.
  const bool calibrates = arguments.front() == "plan" && mpzero::plan::asks_to_calibrate(arguments) &&
                          mpzero::parallel::launch_size(mpzero::parallel::process_environment).world_size > 1;
  if (arguments.front() == "plan" && !calibrates) {
    return mpzero::run_alone([&] { return mpzero::plan::run_plan_command({arguments.begin() + 1, arguments.end()}); });
  }
  if (arguments.front() == "checkpoint") {
    return mpzero::run_alone([&] { return mpzero::checkpoint_command({arguments.begin() + 1, arguments.end()}); });
  }
  namespace parallel = mpzero::parallel;
  mpzero::CommandLine line;
  // Parsed before MPI starts, so that an invalid flag fails immediately.
  if (arguments.front() != "doctor" && !calibrates) {
    const auto read = [&] { line = mpzero::parse_command_line({arguments.begin() + 1, arguments.end()}); };
    if (const int code = mpzero::check_launch(read); code != 0) return code;
  }
  if (line.dry_run) return mpzero::dry_run_once(line);
  const auto& environment = parallel::process_environment;
  const auto check_environment = [&] {
    parallel::require_launcher(environment);
    const auto problem = parallel::find_prefix_problem(environment, parallel::mpi_library_file());
    if (problem) mpzero::throw_user_error("{}", *problem);
    parallel::check_versions(parallel::loaded_libraries());
  };
  if (const int code = mpzero::check_launch(check_environment); code != 0) return code;
  mpzero::ignore_broken_pipes();
  std::optional<parallel::MpiRuntime> started;
  const auto patience = mpzero::start_patience(arguments.front() == "doctor", line.stuck_after);
  if (!mpzero::start_mpi(started, &argc, &argv, calibrates ? "cpu" : line.device, patience)) {
    return mpzero::kUserErrorExitCode;
  }
  parallel::MpiRuntime& mpi = *started;
  // The doctor reports this problem as a finding.
  if (arguments.front() != "doctor") {
    const auto check = [&] {
      const auto problem = parallel::find_launch_problem(environment, mpi.world_size(), parallel::mpi_version());
      if (problem) mpzero::throw_user_error("{}; {}", problem->message, problem->remedy);
    };
    if (const int code = mpzero::check_launch(check); code != 0) return code;
  }
  return mpzero::run(arguments, line, mpi);
}
