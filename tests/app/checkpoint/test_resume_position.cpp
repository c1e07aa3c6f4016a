#include <nlohmann/json.hpp>
#include <set>

#include "app/checkpoint/resume_position.hpp"
#include "io/data/shuffle.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using nlohmann::json;

constexpr int64_t kTokens = 3201;

// The checkpoint of a run that has consumed so many sequences; of its files only the progress exists.
class Saved final : public io::StoredCheckpoint {
 public:
  explicit Saved(int64_t sequences_seen) {
    progress_.step = 5;
    progress_.sequences_seen = sequences_seen;
    progress_.tokens_seen = 12345;
  }
  const std::filesystem::path& folder() const override { return folder_; }
  const io::RunRecord& run() const override { return record_; }
  const io::TrainingProgress& progress() const override { return progress_; }
  std::span<const ParameterSpec> parameters() const override { return {}; }
  void read(const std::string&, StateKind, int64_t, std::span<float>) const override {}
  void verify_what_was_read(ProcessGroup&) const override {}
  void verify() const override {}

 private:
  std::filesystem::path folder_ = "checkpoints/tiny-5steps";
  io::RunRecord record_;
  io::TrainingProgress progress_;
};

json settings_of(int64_t seq_length, bool shuffle) {
  return {{"seq_length", seq_length}, {"shuffle", shuffle}, {"train_data", {{"num_tokens", kTokens}}}};
}

ResumedPosition resumed(int64_t sequences_seen, const json& known, int64_t seq_length, bool shuffle) {
  RunSetup setup;
  setup.config.seq_length = seq_length;
  setup.config.shuffle = shuffle;
  setup.train_tokens = kTokens;
  setup.train_windows = (kTokens - 1) / seq_length;
  return position_after(Saved(sequences_seen), setup, known);
}

TEST_CASE("the same order continues at the same sequence") {
  for (const bool shuffle : {false, true}) {
    const ResumedPosition same = resumed(40, settings_of(8, shuffle), 8, shuffle);
    CHECK(same.position.sequences_seen == 40);
    CHECK(same.position.step == 5);
    CHECK(same.position.tokens_seen == 12345);
    CHECK((same.line.empty() && same.warning.empty()));
  }
  CHECK(resumed(40, json::object(), 8, true).position.sequences_seen == 40);
}

TEST_CASE("another seq_length in file order continues at the same token") {
  const ResumedPosition longer = resumed(40, settings_of(8, false), 32, false);
  CHECK(longer.position.sequences_seen == 10);  // 320 tokens
  CHECK(longer.warning.empty());
  CHECK(longer.line.find("token 320 of epoch 1") != std::string::npos);
  // At the next whole sequence; the epochs before it count as epochs.
  const ResumedPosition odd = resumed(400 + 41, settings_of(8, false), 32, false);
  CHECK(odd.position.sequences_seen == 100 + 11);
  CHECK(odd.warning.find("24 tokens before it are left out") != std::string::npos);
  CHECK(resumed(10, settings_of(32, false), 8, false).position.sequences_seen == 40);
  // 3201 tokens have 1066 sequences of 3, whose last token is beyond the 100 of 32.
  CHECK(resumed(1066 - 1, settings_of(3, false), 32, false).position.sequences_seen == 100);
}

TEST_CASE("a shuffled order reports about as many tokens as are repeated and left out") {
  constexpr int64_t kSeen = 150;
  const ResumedPosition shuffled = resumed(kSeen, settings_of(8, true), 32, true);
  CHECK(shuffled.position.sequences_seen == 38);
  // Exactly, by the orders themselves.
  const io::Permutation before(400, 42, 0), now(100, 42, 0);
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < kSeen; ++i) {
    for (uint64_t token = 0; token < 8; ++token) seen.insert(before(i) * 8 + token);
  }
  int64_t repeated = 0;
  for (uint64_t i = 38; i < 100; ++i) {
    for (uint64_t token = 0; token < 32; ++token) repeated += static_cast<int64_t>(seen.count(now(i) * 32 + token));
  }
  const size_t found = shuffled.warning.find("about ");
  REQUIRE(found != std::string::npos);
  const double reported = std::stod(shuffled.warning.substr(found + 6));
  CHECK(reported == Approx(0.375 * 0.625 * 3200));
  // The standard deviation of 62 draws of 32 tokens is about a tenth of it.
  CHECK(reported == Approx(static_cast<double>(repeated)).epsilon(0.4));
  CHECK(resumed(400, settings_of(8, true), 32, true).warning.empty());  // at the end of an epoch
  CHECK_FALSE(resumed(kSeen, settings_of(8, true), 8, false).warning.empty());
}

}  // namespace
}  // namespace mpzero
