#include <nlohmann/json.hpp>
#include <set>

#include "app/checkpoint/resume_position.hpp"
#include "io/data/data_loader.hpp"
#include "tests/catch.hpp"
#include "tests/io/stub_checkpoint.hpp"

namespace mpzero {
namespace {

using nlohmann::json;

constexpr int64_t kTokens = 3201;

// The checkpoint of a run that has consumed so many sequences.
io::testing::StubCheckpoint saved_after(int64_t sequences_seen) {
  io::testing::StubCheckpoint saved;
  saved.made.step = 5;
  saved.made.sequences_seen = sequences_seen;
  saved.made.tokens_seen = 12345;
  return saved;
}

json settings_of(int64_t seq_length, bool shuffle) {
  return {{"seq_length", seq_length}, {"shuffle", shuffle}, {"train_data", {{"num_tokens", kTokens}}}};
}

ResumedPosition resumed(int64_t sequences_seen, const json& known, int64_t seq_length, bool shuffle) {
  RunSetup setup;
  setup.config.seq_length = seq_length;
  setup.config.shuffle = shuffle;
  setup.train_tokens = kTokens;
  setup.train_windows = (kTokens - 1) / seq_length;
  return position_after(saved_after(sequences_seen), setup, known);
}

TEST_CASE("with the same order, the run continues at the same sequence") {
  for (const bool shuffle : {false, true}) {
    const ResumedPosition same = resumed(40, settings_of(8, shuffle), 8, shuffle);
    CHECK(same.position.sequences_seen == 40);
    CHECK(same.position.step == 5);
    CHECK(same.position.tokens_seen == 12345);
    CHECK((same.line.empty() && same.warning.empty()));
  }
  CHECK(resumed(40, json::object(), 8, true).position.sequences_seen == 40);
}

TEST_CASE("with a different seq_length in file order, the run continues at the same token") {
  const ResumedPosition longer = resumed(40, settings_of(8, false), 32, false);
  CHECK(longer.position.sequences_seen == 10);  // 320 tokens
  CHECK(longer.warning.empty());
  CHECK(longer.line.find("token 320 of epoch 1") != std::string::npos);
  // At the next whole sequence; the epochs before it count as epochs.
  const ResumedPosition odd = resumed(400 + 41, settings_of(8, false), 32, false);
  CHECK(odd.position.sequences_seen == 100 + 11);
  CHECK(odd.warning.find("skipping 24 tokens") != std::string::npos);
  CHECK(resumed(10, settings_of(32, false), 8, false).position.sequences_seen == 40);
  // 3201 tokens have 1066 sequences of 3, whose last token is beyond the 100 of 32.
  CHECK(resumed(1066 - 1, settings_of(3, false), 32, false).position.sequences_seen == 100);
}

TEST_CASE("for a shuffled order, the number of repeated and skipped tokens is estimated") {
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
  // Only what has changed is listed.
  CHECK((shuffled.warning.find("seq_length 8 -> 32") != std::string::npos &&
         shuffled.warning.find("shuffle true") == std::string::npos));
  const std::string in_order = resumed(kSeen, settings_of(8, true), 8, false).warning;
  CHECK((in_order.find("(shuffle true -> false)") != std::string::npos));
  CHECK(resumed(kSeen, settings_of(8, true), 32, false).warning.find("(seq_length 8 -> 32, shuffle true -> false)") !=
        std::string::npos);
}

// Two files of 401 and 801 tokens: 50 and 100 sequences of 8.
struct Mixture {
  RunSetup setup;

  explicit Mixture(int64_t seq_length = 8) {
    setup.config.seq_length = seq_length;
    setup.data = DataIdentity{};
    add("a.h5", 401, 0.25);
    add("b.h5", 801, 0.75);
  }
  void add(const std::string& path, int64_t tokens, double weight) {
    setup.data->sources.push_back({.num_tokens = tokens, .tokens_xxh3 = "1111111122222222", .documents_xxh3 = {}});
    setup.data->train = io::identity_of(setup.data->sources);
    setup.train_files.push_back(
        {.path = path, .weight = weight, .num_windows = (tokens - 1) / setup.config.seq_length});
    setup.train_tokens += tokens;
  }
  json record(const RunPosition& at) const { return json::parse(recorded_settings(setup, at.sources).dump()); }
  std::vector<io::MixtureSource> start() const { return new_sources(setup); }
};

RunPosition after_draws(const Mixture& mixture, int64_t count) {
  RunPosition at{.sequences_seen = count, .sources = mixture.start()};
  for (int64_t i = 0; i < count; ++i) io::draw(at.sources);
  return at;
}

TEST_CASE("the sources of a mixture continue at their positions in the checkpoint") {
  const Mixture mixture;
  const RunPosition at = after_draws(mixture, 42);
  const ResumedPosition resumed = position_after(saved_after(42), mixture.setup, mixture.record(at));
  CHECK(resumed.position.sequences_seen == 42);
  CHECK(resumed.change.empty());
  CHECK(resumed.warning.empty());
  REQUIRE(resumed.position.sources.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(resumed.position.sources[i].windows_seen == at.sources[i].windows_seen);
    CHECK(resumed.position.sources[i].drawn == at.sources[i].drawn);
    CHECK(resumed.position.sources[i].seed == at.sources[i].seed);
  }
}

TEST_CASE("changed weights and a new source take effect on resume without moving the other sources") {
  Mixture mixture;
  const RunPosition at = after_draws(mixture, 40);
  const json known = mixture.record(at);
  mixture.setup.train_files[0].weight = 75;
  mixture.setup.train_files[1].weight = 25;
  mixture.add("new.h5", 81, 100);
  std::swap(mixture.setup.train_files[0], mixture.setup.train_files[2]);
  std::swap(mixture.setup.data->sources[0], mixture.setup.data->sources[2]);
  ResumedPosition resumed = position_after(saved_after(40), mixture.setup, known);
  CHECK(resumed.change == "train_data a.h5:0.25,b.h5:0.75 -> new.h5:0.5,b.h5:0.125,a.h5:0.375 (new: new.h5)");
  std::vector<io::MixtureSource>& sources = resumed.position.sources;
  REQUIRE(sources.size() == 3);
  CHECK(sources[0].windows_seen == 0);
  CHECK(sources[1].windows_seen == 30);
  CHECK(sources[2].windows_seen == 10);
  CHECK(sources[2].seed == at.sources[0].seed);
  for (int i = 0; i < 8; ++i) io::draw(sources);
  CHECK(sources[0].windows_seen == 4);
  CHECK(sources[1].windows_seen == 31);
  CHECK(sources[2].windows_seen == 13);
}

TEST_CASE("a single file continues in its order when files are added or removed") {
  const Mixture mixture;
  json known = settings_of(8, true);
  known["train_data"] = {{"num_tokens", 401}, {"tokens_xxh3", "1111111122222222"}};
  const ResumedPosition joined = position_after(saved_after(60), mixture.setup, known);
  REQUIRE(joined.position.sources.size() == 2);
  CHECK(joined.position.sources[0].windows_seen == 60);
  CHECK(joined.position.sources[0].seed == 0);  // that of the run itself
  CHECK(joined.position.sources[1].windows_seen == 0);
  CHECK_FALSE(joined.change.empty());

  Mixture alone;
  alone.setup.train_files.resize(1);
  alone.setup.data->sources.resize(1);
  const RunPosition at = after_draws(mixture, 40);
  const ResumedPosition left = position_after(saved_after(40), alone.setup, mixture.record(at));
  REQUIRE(left.position.sources.size() == 1);
  CHECK(left.position.sources[0].windows_seen == 10);
  CHECK(left.position.sources[0].seed == at.sources[0].seed);
}

TEST_CASE("with a different seq_length, each source continues in its epoch, with a warning") {
  const Mixture mixture, longer(32);
  const RunPosition at = after_draws(mixture, 240);  // 60 and 180 sequences
  const ResumedPosition resumed = position_after(saved_after(240), longer.setup, mixture.record(at));
  CHECK(resumed.position.sequences_seen == 60);
  REQUIRE(resumed.position.sources.size() == 2);
  CHECK(resumed.position.sources[0].windows_seen == 12 + 3);  // 80 tokens of the second epoch
  CHECK(resumed.position.sources[1].windows_seen == 25 + 20);
  CHECK_FALSE(resumed.warning.empty());
}

TEST_CASE("a file with replaced tokens starts at the beginning, with a warning") {
  Mixture mixture;
  const json known = mixture.record(after_draws(mixture, 40));
  mixture.setup.data->sources[1].tokens_xxh3 = "3333333322222222";
  const ResumedPosition resumed = position_after(saved_after(40), mixture.setup, known);
  CHECK(resumed.position.sources[0].windows_seen == 10);
  CHECK(resumed.position.sources[1].windows_seen == 0);
  CHECK(resumed.change.find("(new: b.h5)") != std::string::npos);
}

TEST_CASE("a record of sources without positions is refused") {
  const Mixture mixture;
  json known = mixture.record(after_draws(mixture, 4));
  known["train_data"]["sources"][1].erase("sequences_seen");
  CHECK_THROWS_AS(position_after(saved_after(4), mixture.setup, known), UserError);
  for (const auto& [key, value] : {std::pair<const char*, json>("sequences_seen", -4),
                                   {"drawn", -1},
                                   {"drawn", int64_t{1} << 60},
                                   {"weight", 0},
                                   {"weight", -1}}) {
    known = mixture.record(after_draws(mixture, 4));
    known["train_data"]["sources"][1][key] = value;
    INFO(key << " " << value);
    CHECK_THROWS_AS(position_after(saved_after(4), mixture.setup, known), UserError);
  }
  known = mixture.record(after_draws(mixture, 4));
  for (const int64_t length : {int64_t{0}, int64_t{1} << 30}) {
    known["seq_length"] = length;
    CHECK_THROWS_AS(position_after(saved_after(4), mixture.setup, known), UserError);
  }
}

}  // namespace
}  // namespace mpzero
