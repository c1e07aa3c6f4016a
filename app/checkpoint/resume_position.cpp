#include "app/checkpoint/resume_position.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/config/recorded_settings.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

using nlohmann::json;

// Maximum sequence length in tokens. Prevents overflow in products.
constexpr int64_t kLongest = int64_t{1} << 31;

// Returns the number of sequences of `seq_length` tokens. The last target needs one more token.
int64_t windows_of(int64_t num_tokens, int64_t seq_length) {
  const int64_t windows = seq_length < 1 ? 0 : (num_tokens - 1) / seq_length;
  if (windows < 1) {
    throw_user_error(
        "the checkpoint records seq_length {} and {} training tokens, which is invalid; choose a different checkpoint",
        seq_length, num_tokens);
  }
  return windows;
}

int64_t known_length(const json& known, int64_t otherwise) {
  const auto found = known.find("seq_length");
  return found != known.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

bool known_shuffle(const json& known, bool otherwise) {
  const auto found = known.find("shuffle");
  return found != known.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

int64_t round_up(int64_t tokens, int64_t seq_length) { return (tokens + seq_length - 1) / seq_length; }

// Returns the first complete window of `now` tokens after `seen` windows of `before` tokens, across epochs.
int64_t window_after(int64_t seen, int64_t num_tokens, int64_t before, int64_t now) {
  const int64_t windows_before = windows_of(num_tokens, before), windows = windows_of(num_tokens, now);
  return seen / windows_before * windows + std::min(windows, round_up(seen % windows_before * before, now));
}

double total_weight(const std::vector<RecordedSource>& sources) {
  double total = 0;
  for (const RecordedSource& source : sources) total += source.at.weight;
  return total;
}

// Formats sources as "a.h5:0.7,b.h5:0.3".
std::string show_shares(const std::vector<RecordedSource>& sources) {
  std::vector<std::string> items;
  for (const RecordedSource& source : sources) {
    items.push_back(fmt::format("{:.200}:{:.4g}", source.file, source.at.weight / total_weight(sources)));
  }
  return fmt::to_string(fmt::join(items, ","));
}

// Returns the checkpoint's sources. Empty if they are unknown, or neither run uses a mixture.
std::vector<RecordedSource> sources_before(const io::StoredCheckpoint& checkpoint, const RunSetup& setup,
                                           const json& known) {
  std::vector<RecordedSource> sources = recorded_sources(known, checkpoint.folder().string());
  const std::optional<io::TokenIdentity> data = train_data_of(known);
  if (!sources.empty() || setup.train_files.size() < 2 || !data) return sources;
  const io::TrainingProgress& progress = checkpoint.progress();
  return {{.identity = *data,
           .file = io::show(*data),
           .at = {.weight = 1, .seed = progress.seed, .windows_seen = progress.sequences_seen, .drawn = 0}}};
}

// Sets the positions of this run's sources from the checkpoint, whose sequences had `length_before` tokens.
void continue_sources(const std::vector<RecordedSource>& before, const RunSetup& setup, int64_t length_before,
                      ResumedPosition& resumed) {
  constexpr double kRounding = 1e-12;  // relative weights are rounded: 0.7 of 1 equals 7 of 10
  const int64_t length = setup.config.seq_length;
  std::vector<RecordedSource> now;
  for (const io::MixtureSource& at : new_sources(setup)) {
    now.push_back({.identity = setup.data->sources[now.size()], .file = setup.train_files[now.size()].path, .at = at});
  }
  bool unchanged = before.size() == now.size() && length == length_before;
  std::vector<std::string> places, added;
  for (RecordedSource& source : now) {
    const auto is_it = [&](const RecordedSource& other) {
      return io::same_tokens(other.identity, source.identity).value_or(true);
    };
    const auto found = std::ranges::find_if(before, is_it);
    if (found != before.end()) {
      const io::MixtureSource& at = found->at;
      source.at.seed = at.seed;
      source.at.drawn = at.drawn;
      source.at.windows_seen = length == length_before
                                   ? at.windows_seen
                                   : window_after(at.windows_seen, source.identity.num_tokens, length_before, length);
      unchanged =
          unchanged && std::abs(at.weight / total_weight(before) - source.at.weight / total_weight(now)) < kRounding;
    } else {
      unchanged = false;
      added.push_back(source.file);
    }
    places.push_back(fmt::format("{} at sequence {}", source.file, source.at.windows_seen));
  }
  for (const RecordedSource& source : now) {
    resumed.position.sources.push_back(source.at);
    if (!unchanged) resumed.position.sources.back().drawn = 0;
  }
  resumed.line = fmt::format("Positions in the training data: {}", fmt::join(places, ", "));
  const std::string shares_before = before.empty() ? "unknown" : show_shares(before), shares = show_shares(now);
  if (unchanged || (shares_before == shares && added.empty())) return;
  resumed.change = fmt::format("{} {} -> {}", kTrainData, shares_before, shares);
  if (!added.empty()) resumed.change += fmt::format(" (new: {})", fmt::join(added, ", "));
}

}  // namespace

std::vector<io::MixtureSource> new_sources(const RunSetup& setup) {
  std::vector<io::MixtureSource> sources;
  for (const TrainFile& file : setup.train_files) {
    const io::TokenIdentity& identity = setup.data.value().sources[sources.size()];
    sources.push_back({.weight = file.weight, .seed = io::order_seed(setup.config.seed, identity)});
  }
  return sources;
}

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
    throw_user_error("{} records an invalid seq_length {}; choose a different checkpoint.",
                     checkpoint.folder().string(), before);
  }
  const bool same_length = before == config.seq_length, same_shuffle = was_shuffled == config.shuffle;
  const bool same_order = same_length && same_shuffle;
  const std::string change =
      fmt::format("{}{}{}", same_length ? "" : fmt::format("seq_length {} -> {}", before, config.seq_length),
                  same_length || same_shuffle ? "" : ", ",
                  same_shuffle ? "" : fmt::format("shuffle {} -> {}", was_shuffled, config.shuffle));
  const std::vector<RecordedSource> sources = sources_before(checkpoint, setup, known);
  if (setup.data && (setup.train_files.size() > 1 || !sources.empty())) {
    continue_sources(sources, setup, before, resumed);
    if (same_order) return resumed;
    resumed.position.sequences_seen = round_up(progress.sequences_seen * before, config.seq_length);
    resumed.warning = fmt::format(
        "the sequence order has changed ({}): training continues at the same fraction of each file's epoch, so some "
        "tokens are repeated and about as many are skipped.",
        change);
    return resumed;
  }
  if (same_order) return resumed;
  const std::optional<io::TokenIdentity> data = train_data_of(known);
  const bool same_size = data && data->num_tokens == setup.train_tokens;
  if (!same_size || data->num_tokens <= std::max(before, config.seq_length)) {
    // compare_data() reports different data.
    resumed.position.sequences_seen = round_up(progress.sequences_seen * before, config.seq_length);
    return resumed;
  }
  const int64_t windows_before = windows_of(data->num_tokens, before);
  const int64_t epoch = progress.sequences_seen / windows_before;
  const int64_t seen = progress.sequences_seen % windows_before * before;
  const int64_t windows = windows_of(data->num_tokens, config.seq_length);
  resumed.position.sequences_seen = window_after(progress.sequences_seen, data->num_tokens, before, config.seq_length);
  const int64_t next = resumed.position.sequences_seen - epoch * windows;
  if (was_shuffled || config.shuffle) {
    // Each token was seen with probability `share` and is seen after resuming with probability 1 - share.
    const double share = static_cast<double>(seen) / static_cast<double>(windows_before * before);
    const auto tokens = static_cast<int64_t>(share * (1 - share) * static_cast<double>(windows_before * before));
    std::string& report = tokens > 0 ? resumed.warning : resumed.line;
    report = fmt::format(
        "the sequence order has changed ({}): epoch {} continues after {} tokens, so about {} tokens are repeated and "
        "about as many are skipped.",
        change, epoch + 1, seen, tokens);
    return resumed;
  }
  const int64_t left_out = std::max<int64_t>(0, next * config.seq_length - seen);
  std::string& report = left_out > 0 ? resumed.warning : resumed.line;
  report = fmt::format("{}: training continues at token {} of epoch {}, skipping {} tokens.", change,
                       next * config.seq_length, epoch + 1, left_out);
  return resumed;
}

}  // namespace mpzero
