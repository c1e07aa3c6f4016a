#include "app/train/stop_agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "app/health/stop_report.hpp"
#include "app/machine/system.hpp"
#include "base/collectives.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

// Safety factor for the expected duration of a save.
constexpr double kMargin = 1.25;

}  // namespace

StopAgreement::Cause StopAgreement::agree(double save_seconds) const {
  struct Request {
    int64_t own;  // 1: requested by mpzero itself; 64 bits to avoid padding
    double since, save,
        has_left;  // seconds: since the request, expected for a save, until the host shuts down (0: unknown)
  };
  static_assert(sizeof(Request) == sizeof(int64_t) + 3 * sizeof(double));
  const Request mine = {request_.is_own() ? 1 : 0, request_.seconds_since(), save_seconds, request_.seconds_left()};
  const std::vector<Request> requests = all_gather(group_, mine);
  const std::vector<std::pair<std::string, std::string>> texts =
      all_gather(group_, std::pair(request_.reason(), doctor::host_name(doctor::System{})));
  Cause cause;
  bool named = false;
  for (size_t rank = 0; rank < requests.size(); ++rank) {
    const Request& theirs = requests[rank];
    const auto& [reason, host] = texts[rank];
    cause.seconds = std::max(cause.seconds, theirs.since);
    cause.save_seconds = std::max(cause.save_seconds, theirs.save);
    if (theirs.has_left != 0) cause.time_left = std::min(cause.time_left.value_or(theirs.has_left), theirs.has_left);
    if (theirs.own != 0) cause.hosts.push_back(host);
    if (reason.empty() || std::exchange(named, true)) continue;
    cause.reason = theirs.own != 0 || group_.world_size() == 1 ? reason : fmt::format("{} to rank {}", reason, rank);
  }
  if (!named) cause.reason = "a signal";
  if (config_.grace_period > 0) {
    const double left = config_.grace_period - cause.seconds;
    cause.time_left = std::min(cause.time_left.value_or(left), left);
  }
  return cause;
}

void StopAgreement::report(const Cause& cause) const {
  if (group_.rank() != 0 || cause.hosts.empty()) return;
  const auto variable = [](const char* name) { return parallel::process_environment(name).value_or(""); };
  try {
    write_stop_report(config_.checkpoint_dir, {.job = variable("SLURM_JOB_ID"),
                                               .restart = std::atoi(variable("SLURM_RESTART_COUNT").c_str()),
                                               .reason = cause.reason,
                                               .hosts = cause.hosts});
  } catch (const Error& error) {
    log_.warn(fmt::format("{} A requeued job may be placed on the same host again.", error.what()));
  }
}

std::string StopAgreement::save_and_stop(const RunPosition& position, Checkpointer& checkpointer) const {
  const Cause cause = agree(checkpointer.expected_save_seconds());
  report(cause);
  const std::optional<int64_t> saved = checkpointer.saved_step();
  if (saved != position.step && cause.time_left) {
    const double left = *cause.time_left;
    if (left <= 0 || kMargin * cause.save_seconds > left) {
      // A save in progress may still complete in time.
      if (left > 0) checkpointer.finish_after_error();
      const std::optional<int64_t> stays = checkpointer.saved_step();
      const std::string of =
          config_.grace_period > 0 ? fmt::format(" of --grace_period {:g}", config_.grace_period) : "";
      throw Failure(
          fmt::format("stopped by {} after step {} without saving: a checkpoint takes {:.1f} s, but {:.1f} s{} "
                      "were left; {}; request more time or save more often",
                      cause.reason, position.step, cause.save_seconds, std::max(left, 0.0), of,
                      stays ? fmt::format("the checkpoint for step {} remains", *stays)
                            : std::string("there is no checkpoint yet")),
          ErrorScope::kAllRanks);
    }
  }
  const bool by_script = cause.reason.starts_with("SIGUSR1") && parallel::process_environment("MPZERO_START_FILE");
  log_.say(fmt::format("Stopping on {}{} after step {}: saving a checkpoint", cause.reason,
                       by_script ? ", which the launch script sends for Ctrl-C and other stop signals," : "",
                       position.step));
  checkpointer.save_last(position);
  log_.say(
      fmt::format("Stopped by {} after step {} and saved a checkpoint: the same command{} resumes the run",
                  cause.reason, position.step,
                  config_.resume_from_checkpoint.empty() ? "" : ", without --overwrite and --resume_from_checkpoint,"));
  return cause.reason;
}

}  // namespace mpzero
