// Weights under other names than the model's, and heads that are missing, tied or left over.

#include <map>

#include "base/error.hpp"
#include "base/parameter_spec.hpp"
#include "io/weights/matched_weights.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

const fs::path kFolder = "weights";
const std::string kPrefixes[] = {"", "model.", "module.", "_orig_mod.", "_forward_module.", "module._orig_mod."};

// Tensors in memory. Element i of each is i, but for those of `changed`.
class Tensors final : public WeightSource {
 public:
  explicit Tensors(std::map<std::string, std::vector<int64_t>> tensors) : tensors_(std::move(tensors)) {
    for (const auto& [name, shape] : tensors_) parameters_.push_back({name, shape});
  }

  std::string changed;
  int64_t changed_at = 0;

  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  void check(const ParameterSpec& parameter) const override {
    const auto found = tensors_.find(parameter.name);
    if (found == tensors_.end()) throw_user_error("{} is missing", parameter.name);
    if (found->second != parameter.shape) throw_user_error("{} has another shape", parameter.name);
  }
  const fs::path& file_of(const ParameterSpec& parameter) const override {
    check(parameter);
    return kFolder;
  }
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override {
    check(parameter);
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>((begin + static_cast<int64_t>(i)) % 1000);
    const int64_t at = changed_at - begin;
    if (parameter.name == changed && at >= 0 && at < static_cast<int64_t>(out.size()))
      out[static_cast<size_t>(at)] += 1;
  }

 private:
  std::map<std::string, std::vector<int64_t>> tensors_;
  std::vector<ParameterSpec> parameters_;
};

constexpr int64_t kRows = 40'000, kColumns = 20;  // more than is compared at once

std::vector<UnitSpec> units(bool tied) {
  UnitSpec head{"head", {{"model.norm.weight", {kColumns}}}};
  if (!tied) head.parameters.push_back({kOutputWeight, {kRows, kColumns}});
  return {{"embedding", {{kEmbeddingWeight, {kRows, kColumns}}}},
          {"layers.0", {{"model.layers.0.mlp.up_proj.weight", {3, kColumns}}}},
          head};
}

std::map<std::string, std::vector<int64_t>> stored(bool with_head) {
  std::map<std::string, std::vector<int64_t>> tensors;
  for (const UnitSpec& unit : units(!with_head)) {
    for (const ParameterSpec& parameter : unit.parameters) tensors[parameter.name] = parameter.shape;
  }
  return tensors;
}

std::map<std::string, std::vector<int64_t>> renamed(const std::map<std::string, std::vector<int64_t>>& tensors,
                                                    const std::string& prefix, size_t removed = 0) {
  std::map<std::string, std::vector<int64_t>> result;
  for (const auto& [name, shape] : tensors) result[prefix + name.substr(removed)] = shape;
  return result;
}

std::unique_ptr<WeightSource> match(std::map<std::string, std::vector<int64_t>> tensors, bool tied) {
  return match_weights(std::make_unique<Tensors>(std::move(tensors)), units(tied), kFolder);
}

std::string error(std::map<std::string, std::vector<int64_t>> tensors, bool tied) {
  return message_of([&] { match(std::move(tensors), tied); });
}

void check_all_read(const WeightSource& weights, bool tied) {
  for (const UnitSpec& unit : units(tied)) {
    for (const ParameterSpec& parameter : unit.parameters) {
      std::vector<float> out(2);
      weights.read(parameter, 4, out);
      CHECK(out == std::vector<float>{4, 5});
      CHECK(weights.file_of(parameter) == kFolder);
    }
  }
}

}  // namespace

TEST_CASE("a prefix shared by all names is removed") {
  for (const std::string& prefix : kPrefixes) {
    for (const bool tied : {false, true}) {
      const auto weights = match(renamed(stored(!tied), prefix), tied);
      CHECK(weights->parameters().size() == (tied ? 3 : 4));
      check_all_read(*weights, tied);
      CHECK(weights->warnings().size() == (prefix.empty() ? 0 : 1));
      if (!prefix.empty()) CHECK_THAT(weights->warnings()[0], Contains(prefix));
    }
  }
}

TEST_CASE("the names of a base model are read, with and without a prefix") {
  const size_t base = std::string("model.").size();
  for (const std::string& prefix : kPrefixes) {
    if (prefix == "model.") continue;  // those are the causal model's names
    const auto weights = match(renamed(stored(false), prefix, base), true);
    check_all_read(*weights, true);
    CHECK_THAT(weights->warnings().back(), Contains("model."));
  }
  auto compiled = renamed(stored(false), "model._orig_mod.", base);  // of the decoder alone
  compiled[kOutputWeight] = {kRows, kColumns};
  check_all_read(*match(compiled, false), false);
}

TEST_CASE("a base model without a head requires a tied head") {
  CHECK_THAT(error(renamed(stored(false), "", 6), false),
             Contains(kFolder.string()) && Contains(kOutputWeight) && Contains("tie_word_embeddings"));
}

TEST_CASE("unknown tensors are reported, and rotary tables are ignored") {
  auto tensors = stored(true);
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {8};
  CHECK(error(tensors, false).empty());
  for (const char* name : {"model.layers.0.a.bias", "model.layers.0.b.bias", "score.weight", "vision.weight"}) {
    tensors[name] = {7};
  }
  CHECK_THAT(error(tensors, false),
             Contains("model.layers.0.a.bias [7], model.layers.0.b.bias [7], score.weight [7]") && Contains("1 more") &&
                 Contains("config.json"));
  CHECK_THAT(error({{"base_model.model.q.lora_A.weight", {2, 2}}}, false),
             Contains(kEmbeddingWeight) && Contains("lora_A"));
  tensors = stored(true);
  tensors.erase("model.norm.weight");
  CHECK_THAT(error(tensors, false), Contains("model.norm.weight is missing"));
}

TEST_CASE("a stored tied head is compared when the embedding is read") {
  const std::vector<UnitSpec> tied = units(true);
  const ParameterSpec& embedding = tied[0].parameters[0];
  const auto open = [&](int64_t changed_at, TiedHead head) {
    auto tensors = std::make_unique<Tensors>(renamed(stored(true), "_orig_mod."));
    tensors->changed = "_orig_mod.lm_head.weight";
    tensors->changed_at = changed_at;
    return match_weights(std::move(tensors), tied, kFolder, head);
  };
  check_all_read(*open(-1, TiedHead::kCompare), true);
  // Before anything is read.
  const std::string sentence = message_of([&] { open(21, TiedHead::kCompare); });
  CHECK_THAT(sentence, Contains("[1, 1]") && Contains("config.json") && Contains("tie_word_embeddings"));
  // Far behind: by whoever reads that range.
  const int64_t last = embedding.numel() - 1;
  const auto weights = open(last, TiedHead::kCompare);
  std::vector<float> values(static_cast<size_t>(last));
  weights->read(embedding, 0, values);
  CHECK_THAT(message_of([&] { weights->read(embedding, 1, values); }), Contains("[39999, 19]"));
  open(21, TiedHead::kPassOver)->read(embedding, 0, values);
  auto other = stored(true);
  other[kOutputWeight] = {kRows + 1, kColumns};
  CHECK_THAT(error(other, true), Contains("lm_head.weight has another shape"));
}

TEST_CASE("T5's embedding under other names and a stored tied head must equal the embedding") {
  const std::vector<UnitSpec> t5 = {{"embedding", {{kSharedEmbedding, {kRows, kColumns}}}},
                                    {"head", {{"decoder.final_layer_norm.weight", {kColumns}}}}};
  for (const std::string& prefix : kPrefixes) {
    const auto open = [&](const std::string& changed, TiedHead head = TiedHead::kCompare) {
      std::map<std::string, std::vector<int64_t>> stored{{"decoder.final_layer_norm.weight", {kColumns}}};
      for (const char* name : {kSharedEmbedding, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}) {
        stored[name] = {kRows, kColumns};
      }
      stored[kOutputWeight] = {kRows, kColumns};
      auto tensors = std::make_unique<Tensors>(renamed(stored, prefix));
      tensors->changed = changed.empty() ? "" : prefix + changed;
      tensors->changed_at = 21;
      return match_weights(std::move(tensors), t5, kFolder, head);
    };
    std::vector<float> out(2);
    open("")->read(t5[0].parameters[0], 4, out);
    CHECK(out == std::vector<float>{4, 5});
    for (const std::string name : {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", kOutputWeight}) {
      CHECK_THAT(message_of([&] { open(name); }), Contains(name) && Contains("[1, 1]"));
    }
    open(kOutputWeight, TiedHead::kPassOver);
  }
  std::vector<UnitSpec> untied = t5;
  untied.back().parameters.push_back({kOutputWeight, {kRows, kColumns}});
  const auto open = [&](std::map<std::string, std::vector<int64_t>> stored) {
    match_weights(std::make_unique<Tensors>(std::move(stored)), untied, kFolder);
  };
  CHECK_THAT(message_of([&] { open({{kSharedEmbedding, {kRows, kColumns}}}); }),
             Contains(kOutputWeight) && Contains("scale_decoder_outputs"));
  CHECK_THAT(message_of([&] { open({{"wte.weight", {kRows, kColumns}}}); }), Contains(kSharedEmbedding));
}

}  // namespace mpzero::io
