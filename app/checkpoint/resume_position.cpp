#include "app/checkpoint/resume_position.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/config/recorded_settings.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

using nlohmann::json;

// Of a sequence, in tokens: far beyond any model, and small enough to multiply.
constexpr int64_t kLongest = int64_t{1} << 31;

// Sequences of `seq_length` tokens, and one token more for the last target.
int64_t windows_of(int64_t num_tokens, int64_t seq_length) { return (num_tokens - 1) / seq_length; }

int64_t known_length(const json& known, int64_t otherwise) {
  const auto found = known.find("seq_length");
  return found != known.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

bool known_shuffle(const json& known, bool otherwise) {
  const auto found = known.find("shuffle");
  return found != known.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

int64_t round_up(int64_t tokens, int64_t seq_length) { return (tokens + seq_length - 1) / seq_length; }

}  // namespace

ResumedPosition position_after(const io::StoredCheckpoint& checkpoint, const RunSetup& setup, const json& known) {
  const io::TrainingProgress& progress = checkpoint.progress();
  const RunConfig& config = setup.config;
  const auto before = known_length(known, config.seq_length);
  const bool was_shuffled = known_shuffle(known, config.shuffle);
  ResumedPosition resumed{.position = {.step = progress.step,
                                       .sequences_seen = progress.sequences_seen,
                                       .tokens_seen = checkpoint.made_by_mpzero() ? progress.tokens_seen
                                                                                  : progress.sequences_seen * before},
                          .line = "",
                          .warning = ""};
  if (before < 1 || before > kLongest) {
    throw_user_error("the settings of {} have seq_length {}, which no run can have; choose another checkpoint.",
                     checkpoint.folder().string(), before);
  }
  if (before == config.seq_length && was_shuffled == config.shuffle) return resumed;
  const std::optional<io::TokenIdentity> data = train_data_of(known);
  const bool same_size = data && data->num_tokens == setup.train_tokens;
  if (!same_size || data->num_tokens <= std::max(before, config.seq_length)) {
    // Of other data the epochs are others, too; compare_data() reports it.
    resumed.position.sequences_seen = round_up(progress.sequences_seen * before, config.seq_length);
    return resumed;
  }
  const int64_t windows_before = windows_of(data->num_tokens, before);
  const int64_t windows = windows_of(data->num_tokens, config.seq_length);
  const int64_t epoch = progress.sequences_seen / windows_before;
  const int64_t seen = progress.sequences_seen % windows_before * before;
  const int64_t next = std::min(windows, round_up(seen, config.seq_length));
  resumed.position.sequences_seen = epoch * windows + next;
  const std::string change =
      fmt::format("seq_length {} -> {}, shuffle {} -> {}", before, config.seq_length, was_shuffled, config.shuffle);
  if (was_shuffled || config.shuffle) {
    // Each token of the epoch was seen with probability `share`, and is among those to come with 1 - share.
    const double share = static_cast<double>(seen) / static_cast<double>(windows_before * before);
    const auto tokens = static_cast<int64_t>(share * (1 - share) * static_cast<double>(windows_before * before));
    std::string& report = tokens > 0 ? resumed.warning : resumed.line;
    report = fmt::format(
        "the order of the sequences has changed ({}): epoch {} continues after {} tokens; about {} of its tokens are "
        "repeated and about as many are left out.",
        change, epoch + 1, seen, tokens);
    return resumed;
  }
  const int64_t left_out = std::max<int64_t>(0, next * config.seq_length - seen);
  std::string& report = left_out > 0 ? resumed.warning : resumed.line;
  report = fmt::format("{}: training continues at token {} of epoch {}; {} tokens before it are left out.", change,
                       next * config.seq_length, epoch + 1, left_out);
  return resumed;
}

}  // namespace mpzero
