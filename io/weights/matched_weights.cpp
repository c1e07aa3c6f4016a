#include "io/weights/matched_weights.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/parameter_spec.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kBase = "model.";  // prefix of the decoder in a causal language model
constexpr size_t kComparedAtOnce = size_t{1} << 18;
constexpr size_t kShown = 3;

bool ends_with_name(std::string_view text, std::string_view name) {
  return text.ends_with(name) && (text.size() == name.size() || text[text.size() - name.size() - 1] == '.');
}

const ParameterSpec* find_ending(std::span<const ParameterSpec> tensors, std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const ParameterSpec& tensor) { return ends_with_name(tensor.name, name); });
  return found == tensors.end() ? nullptr : &*found;
}

bool same_value(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

class MatchedWeights final : public WeightSource {
 public:
  MatchedWeights(std::unique_ptr<WeightSource> source, std::span<const UnitSpec> units, const fs::path& folder,
                 TiedHead head)
      : source_(std::move(source)),
        folder_(folder.string()),
        warnings_(source_->warnings().begin(), source_->warnings().end()) {
    for (const UnitSpec& unit : units) wanted_.insert(wanted_.end(), unit.parameters.begin(), unit.parameters.end());
    const std::span<const ParameterSpec> stored = source_->parameters();
    name_tensors(stored);
    check_head(stored, head);
    check_all_used(stored);
    for (const ParameterSpec& parameter : wanted_) check(parameter);
    if (copies_.empty()) return;
    // Detects most differences before large allocations.
    const auto embedding = std::ranges::find_if(wanted_, is_embedding, &ParameterSpec::name);
    for (const std::string& copy : copies_) source_->check({copy, embedding->shape});
    std::vector<float> first(std::min(kComparedAtOnce, static_cast<size_t>(embedding->numel())));
    read(*embedding, 0, first);
  }

  std::span<const ParameterSpec> parameters() const override { return wanted_; }
  std::span<const std::string> warnings() const override { return warnings_; }
  void check(const ParameterSpec& parameter) const override { source_->check(as_stored(parameter)); }
  const fs::path& file_of(const ParameterSpec& parameter) const override {
    return source_->file_of(as_stored(parameter));
  }
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override {
    source_->read(as_stored(parameter), begin, out);
    if (!is_embedding(parameter.name)) return;
    for (const std::string& copy : copies_) compare(copy, parameter, begin, out);
  }
  void verify_what_was_read(ProcessGroup& group) const override { source_->verify_what_was_read(group); }

 private:
  bool is_t5() const { return has_parameter(wanted_, kSharedEmbedding); }

  ParameterSpec as_stored(const ParameterSpec& parameter) const {
    const auto found = stored_names_.find(parameter.name);
    return {found == stored_names_.end() ? parameter.name : found->second, parameter.shape};
  }

  void name_tensors(std::span<const ParameterSpec> stored) {
    const std::string_view whole = is_t5() ? kSharedEmbedding : kEmbeddingWeight;
    const std::string_view leaf = is_t5() ? whole : whole.substr(kBase.size());
    const ParameterSpec* embedding = find_ending(stored, leaf);
    if (embedding == nullptr) {
      throw_user_error("{} has no tensor {}{}; use the full weights of a supported model (merge adapters first)",
                       folder_, whole,
                       stored.empty() ? "" : fmt::format(" (the first tensor is {})", stored.front().name));
    }
    std::string prefix = embedding->name.substr(0, embedding->name.size() - leaf.size());
    const bool lacks_base = !ends_with_name(embedding->name, whole);
    if (!lacks_base) prefix.resize(prefix.size() - (whole.size() - leaf.size()));
    for (const ParameterSpec& parameter : wanted_) {
      stored_names_[parameter.name] = prefix + (lacks_base ? parameter.name.substr(kBase.size()) : parameter.name);
    }
    // The head may lack the prefix, for example if only the decoder is compiled.
    if (const ParameterSpec* head = find_ending(stored, kOutputWeight)) stored_names_[kOutputWeight] = head->name;
    if (!prefix.empty()) {
      warnings_.push_back(fmt::format("{}: removed the prefix {} from all names.", folder_, prefix));
    }
    if (lacks_base) {
      warnings_.push_back(
          fmt::format("{}: added the prefix {}, which weights saved from a base model lack.", folder_, kBase));
    }
    if (!is_t5()) return;
    // Old T5 checkpoints contain the embedding under three names.
    for (const char* stack : {"encoder", "decoder"}) {
      const std::string copy = fmt::format("{}{}.embed_tokens.weight", prefix, stack);
      if (has_parameter(stored, copy)) copies_.push_back(copy);
    }
  }

  void check_head(std::span<const ParameterSpec> stored, TiedHead tied) {
    const ParameterSpec* head = find_ending(stored, kOutputWeight);
    const bool has_own = has_parameter(wanted_, kOutputWeight);
    if (has_own && head == nullptr) {
      const char* const why = is_t5()
                                  ? "tie_word_embeddings or scale_decoder_outputs is false in config.json; set both to "
                                    "true if the LM head shares the scaled embedding's weights"
                                  : "tie_word_embeddings is false in config.json; set it to true if the LM head "
                                    "shares the embedding's weights";
      throw_user_error("{} has no {}, but {}, or use weights with an LM head", folder_, kOutputWeight, why);
    }
    if (!has_own && head != nullptr && tied == TiedHead::kCompare) copies_.push_back(head->name);
  }

  void check_all_used(std::span<const ParameterSpec> stored) const {
    std::vector<std::string_view> used;
    for (const auto& [name, stored_name] : stored_names_) used.push_back(stored_name);
    used.insert(used.end(), copies_.begin(), copies_.end());
    std::sort(used.begin(), used.end());
    std::vector<std::string> unused;
    for (const ParameterSpec& tensor : stored) {
      // Old Llama checkpoints contain rotary frequencies, and old T5 checkpoints contain an unused table.
      constexpr std::array kOldNames = {".rotary_emb.inv_freq", "EncDecAttention.relative_attention_bias.weight"};
      const auto is_old = [&](const char* name) { return tensor.name.ends_with(name); };
      if (std::ranges::binary_search(used, tensor.name) || std::ranges::any_of(kOldNames, is_old)) continue;
      unused.push_back(fmt::format("{} [{}]", tensor.name, fmt::join(tensor.shape, ", ")));
    }
    if (unused.empty()) return;
    const size_t shown = std::min(kShown, unused.size());
    throw_user_error(
        "{} contains {}{}, which the model does not use; use the config.json of these weights or remove the tensors",
        folder_, fmt::join(unused.begin(), unused.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
        unused.size() > shown ? fmt::format(" and {} more tensors", unused.size() - shown) : "");
  }

  void compare(const std::string& name, const ParameterSpec& embedding, int64_t begin,
               std::span<const float> values) const {
    const ParameterSpec copy{name, embedding.shape};
    std::vector<float> read(std::min(kComparedAtOnce, values.size()));
    for (size_t done = 0; done < values.size(); done += read.size()) {
      read.resize(std::min(read.size(), values.size() - done));
      const int64_t first = begin + static_cast<int64_t>(done);
      source_->read(copy, first, read);
      const auto expected = values.subspan(done, read.size());
      const auto [mine, theirs] = std::mismatch(read.begin(), read.end(), expected.begin(), same_value);
      if (mine == read.end()) continue;
      const int64_t element = first + (mine - read.begin());
      const char* const remedy =
          !name.ends_with(kOutputWeight)
              ? "mpzero requires that T5's encoder and decoder share one embedding; use different weights"
              : "config.json sets tie_word_embeddings to true; set it to false";
      throw_user_error("{} contains {}, which differs from the embedding (element [{}, {}] is {} and {}), but {}",
                       folder_, name, element / embedding.shape.back(), element % embedding.shape.back(), *mine,
                       *theirs, remedy);
    }
  }

  std::unique_ptr<WeightSource> source_;
  std::string folder_;
  std::vector<std::string> warnings_;
  std::vector<ParameterSpec> wanted_;
  std::map<std::string, std::string> stored_names_;  // key: name in the model
  std::vector<std::string> copies_;                  // tensors that must equal the embedding
};

}  // namespace

std::unique_ptr<WeightSource> match_weights(std::unique_ptr<WeightSource> source, std::span<const UnitSpec> units,
                                            const fs::path& folder, TiedHead head) {
  return std::make_unique<MatchedWeights>(std::move(source), units, folder, head);
}

}  // namespace mpzero::io
