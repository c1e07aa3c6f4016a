#include "app/train/stop_agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"

namespace mpzero {
namespace {

// A save takes longer than the last one at times.
constexpr double kMargin = 1.25;

}  // namespace

void StopAgreement::save_and_stop(const RunPosition& position, Checkpointer& checkpointer) const {
  const nlohmann::json mine = {{"signal", request_.signal()},
                               {"since", request_.seconds_since()},
                               {"save", checkpointer.expected_save_seconds()}};
  double since = 0;
  double save = 0;
  std::string reason = "a signal";
  int first_rank = -1;
  int rank = 0;
  for (const std::string& text : group_.all_gather(mine.dump())) {
    const nlohmann::json theirs = parse_json(text, kLineLimits);
    if (const int signal = theirs.at("signal").get<int>(); signal != 0 && first_rank < 0) {
      first_rank = rank;
      reason = group_.world_size() == 1 ? signal_name(signal) : fmt::format("{} to rank {}", signal_name(signal), rank);
    }
    since = std::max(since, theirs.at("since").get<double>());
    save = std::max(save, theirs.at("save").get<double>());
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
                      stays ? fmt::format("the checkpoint of step {} stays", *stays)
                            : std::string("there is no checkpoint yet")),
          ErrorScope::kAllRanks);
    }
  }
  log_.say(fmt::format("Stopping on {} after step {}: saving", reason, position.step));
  checkpointer.save_last(position);
  log_.say(fmt::format(
      "Stopped by {} after step {}, with the state saved: the same command{} goes on from there", reason, position.step,
      config_.resume_from_checkpoint.empty() ? "" : ", without --overwrite and --resume_from_checkpoint,"));
}

}  // namespace mpzero
