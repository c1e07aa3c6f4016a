#include <algorithm>

#include "app/checkpoint/checkpoint_facts.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"
#include "tests/io/stub_checkpoint.hpp"

namespace mpzero {
namespace {

using Differences = std::vector<std::array<std::string, 3>>;
using nlohmann::json;

// Only its progress and its run are there.
class Recorded final : public io::testing::StubCheckpoint {
 public:
  Recorded() {
    made.step = 5;
    made.tokens_seen = 640;
    made.seed = 7;
    made.lr = 0.5;
    made.dtype = "bf16";
    made.zero_stage = 2;
    made.model_config_json = R"({"hidden_size": 96, "rope_scaling": {"factor": 8.0}})";
    made.settings_json = settings.dump();
    record.id = "0123456789abcdef";
    specs = {{"a", {3, 5}}, {"b", {2}}};
  }

  json settings = {{"lr", 0.001},
                   {"no_decay", {"norm", "bias"}},
                   {"train_data", {{"num_tokens", 1000}, {"tokens_xxh3", "1111111122222222"}}},
                   {"layout", {{"ranks", 4}, {"device", "cpu"}}}};
};

json fact(const io::StoredCheckpoint& stored, const std::string& section, const std::string& key) {
  for (const CheckpointFact& one : checkpoint_facts(stored)) {
    if (one.section == section && one.key == key) return one.value;
  }
  return "no such fact";
}

Differences between(const Recorded& a, const Recorded& b) {
  return different_facts(checkpoint_facts(a), checkpoint_facts(b));
}

TEST_CASE("checkpoint facts include run, progress, model, settings and layout") {
  const Recorded stored;
  CHECK(fact(stored, "", "run") == "0123456789abcdef");
  CHECK(fact(stored, "", "step") == 5);
  CHECK(fact(stored, "", "tokens_seen") == 640);
  CHECK(fact(stored, "", "parameters") == 17);
  CHECK(fact(stored, "model", "hidden_size") == 96);
  CHECK(fact(stored, "model", "rope_scaling.factor") == 8.0);
  CHECK(fact(stored, "settings", "lr") == 0.001);
  CHECK(fact(stored, "settings", "dtype") == "bf16");
  CHECK(fact(stored, "settings", "train_data")["num_tokens"] == 1000);
  CHECK(fact(stored, "layout", "ranks") == 4);
  CHECK(fact(stored, "layout", "zero_stage") == 2);
  const std::vector<std::string> lines = describe_facts(checkpoint_facts(stored));
  for (const char* heading : {"model", "settings", "layout"}) CHECK(std::ranges::count(lines, heading) == 1);
}

TEST_CASE("checkpoint facts omit values that the checkpoint does not record") {
  Recorded stored;
  stored.by_mpzero = false;
  stored.record = {};
  stored.made.lr = std::numeric_limits<double>::quiet_NaN();
  stored.made.model_config_json = stored.made.settings_json = "";
  stored.made.run_config_json = R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.25}}})";
  CHECK(fact(stored, "", "saved_by") == "DeepSpeed");
  CHECK(fact(stored, "settings", "lr") == 0.25);
  for (const char* key : {"run", "seed", "last_lr", "data_order", "init_from", "tokens_seen"}) {
    CHECK(fact(stored, "", key) == "no such fact");
  }
  stored.made.settings_json = R"({"beta1": 0.9})";
  CHECK(fact(stored, "settings", "beta1") == 0.9);
  for (const char* key : {"base_codes", "fp8"}) CHECK(fact(stored, "settings", key) == "no such fact");
  // The global batch size follows from the numbers of steps and sequences.
  CHECK(fact(stored, "settings", "train_batch_size") == "no such fact");
  stored.made.sequences_seen = 30;
  CHECK(fact(stored, "settings", "train_batch_size") == 6);
  stored.made.sequences_seen = 31;
  CHECK(fact(stored, "settings", "train_batch_size") == "no such fact");
  CHECK(fact(stored, "layout", "ranks") == "no such fact");
  // A layout that is no object, as a damaged or foreign file may have it.
  stored.made.settings_json = R"({"layout": [1, 2]})";
  CHECK(fact(stored, "layout", "zero_stage") == 2);
  stored.made.settings_json = "[]";
  CHECK_THAT(error_from([&] { checkpoint_facts(stored); }), Catch::Contains("checkpoints/tiny-5steps"));
}

TEST_CASE("a diff of two checkpoints lists values that differ or that only one of them records") {
  const Recorded a;
  Recorded b;
  CHECK(between(a, b).empty());
  b.made.step = 6;
  b.settings["lr"] = 0.002;
  b.settings["layout"]["ranks"] = 2;
  b.settings["layout"].erase("device");
  b.settings["fp8"] = "tensorwise hybrid";
  // The same tokens, with another hash in addition.
  b.settings["train_data"]["documents_xxh3"] = "3333333322222222";
  b.made.settings_json = b.settings.dump();
  CHECK(between(a, b) == Differences{{"step", "5", "6"},
                                     {"settings.fp8", "none", "tensorwise hybrid"},
                                     {"settings.lr", "0.001", "0.002"},
                                     {"layout.device", "cpu", "not recorded"},
                                     {"layout.ranks", "4", "2"}});
  CHECK(between(b, a).size() == 5);
  b = Recorded();
  b.settings["train_data"]["tokens_xxh3"] = "3333333322222222";
  b.made.settings_json = b.settings.dump();
  const Differences of_data = between(a, b);
  REQUIRE(of_data.size() == 1);
  CHECK(of_data[0][0] == "settings.train_data");
}

TEST_CASE("the contents of a checkpoint cannot move the cursor or flood the terminal") {
  Recorded stored;
  stored.settings["evil\x1b[2J"] = "\x1b]0;title\x07" + std::string(1000, 'x');
  stored.made.settings_json = stored.settings.dump();
  const std::vector<CheckpointFact> facts = checkpoint_facts(stored);
  std::vector<std::string> lines = describe_facts(facts);
  for (const auto& row : different_facts(facts, {})) lines.insert(lines.end(), row.begin(), row.end());
  for (const std::string& line : lines) {
    CHECK(line.size() < 250);
    CHECK(std::ranges::none_of(line, [](unsigned char c) { return c < ' ' || c == 0x7f; }));
  }
}

}  // namespace
}  // namespace mpzero
