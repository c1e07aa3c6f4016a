#include "app/train/stop_agreement.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/collectives.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

// A save takes longer than the last one at times.
constexpr double kMargin = 1.25;

}  // namespace

void StopAgreement::save_and_stop(const RunPosition& position, Checkpointer& checkpointer) const {
  struct Request {
    int64_t signal;      // 0: none; as long as the others, so that no byte of the message is padding
    double since, save;  // seconds since the signal, and that a save takes
  };
  static_assert(sizeof(Request) == sizeof(Request::signal) + sizeof(Request::since) + sizeof(Request::save));
  const Request mine = {request_.signal(), request_.seconds_since(), checkpointer.expected_save_seconds()};
  double since = 0;
  double save = 0;
  std::string reason = "a signal";
  int first_rank = -1;
  int rank = 0;
  for (const Request& theirs : all_gather(group_, mine)) {
    if (theirs.signal != 0 && first_rank < 0) {
      first_rank = rank;
      reason = signal_name(static_cast<int>(theirs.signal));
      if (group_.world_size() > 1) reason += fmt::format(" to rank {}", rank);
    }
    since = std::max(since, theirs.since);
    save = std::max(save, theirs.save);
    ++rank;
  }
  const std::optional<int64_t> saved = checkpointer.saved_step();
  if (saved != position.step && config_.grace_period > 0) {
    const double left = config_.grace_period - since;
    if (left <= 0 || kMargin * save > left) {
      // One that is being written may still come to its end.
      if (left > 0) checkpointer.finish_after_error();
      const std::optional<int64_t> stays = checkpointer.saved_step();
      throw Failure(
          fmt::format("stopped by {} after step {} without saving it: a checkpoint takes {:.1f} s and {:.1f} s of "
                      "--grace_period {:g} were left; {}; ask for more time, or save more often",
                      reason, position.step, save, std::max(left, 0.0), config_.grace_period,
                      stays ? fmt::format("the checkpoint of step {} remains", *stays)
                            : std::string("there is no checkpoint yet")),
          ErrorScope::kAllRanks);
    }
  }
  log_.say(fmt::format("Stopping on {} after step {}: saving", reason, position.step));
  checkpointer.save_last(position);
  log_.say(fmt::format(
      "Stopped by {} after step {}, with the state saved: the same command{} resumes from there", reason, position.step,
      config_.resume_from_checkpoint.empty() ? "" : ", without --overwrite and --resume_from_checkpoint,"));
}

}  // namespace mpzero
