#include "io/adapters/checkpoint_with_base.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "base/parameter_spec.hpp"
#include "io/peft/peft_config.hpp"
#include "io/weights/initial_weights.hpp"
#include "io/weights/matched_weights.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

std::vector<UnitSpec> base_unit(std::span<const ParameterSpec> parameters) {
  UnitSpec base{"base", {}};
  for (const ParameterSpec& parameter : parameters) {
    if (!is_adapter(parameter.name)) base.parameters.push_back({parameter.name, parameter.shape});
  }
  return {base};
}

// Returns the name of the projection, for example "model.layers.0.self_attn.q_proj", for a weight or an adapter.
std::string projection_of(std::string_view name, std::string_view end) {
  return std::string(name.substr(0, name.size() - end.size()));
}

}  // namespace

CheckpointWithBase::CheckpointWithBase(const StoredCheckpoint& checkpoint, fs::path base, ProcessGroup& group)
    : checkpoint_(checkpoint) {
  const RunRecord& run = checkpoint.run();
  if (run.init_from_hash.empty() || !adapters_of(checkpoint)) return;
  const std::string recorded = run.init_from;
  if (base.empty()) base = recorded;
  const std::vector<UnitSpec> units = base_unit(checkpoint.parameters());
  run_on_all_ranks(group, [&] {
    if (!has_initial_weights(base)) {
      throw_user_error(
          "{} needs its base model, but {} has no weights (base xxh3 {}); pass the base model's folder with "
          "--base_model (mpzero train: --init_from)",
          checkpoint.folder().string(), base.string(), run.init_from_hash);
    }
    base_ = match_weights(open_initial_weights(base), units, base, TiedHead::kPassOver);
  });
  const std::string hash = hash_of(*base_, units, group);
  base_->verify_what_was_read(group);
  if (hash == run.init_from_hash) return;
  throw UserError(fmt::format("the adapters in {} were trained on base model {} (xxh3 {}), but the weights in {} "
                              "differ (xxh3 {}); use the original base model",
                              checkpoint.folder().string(), recorded, run.init_from_hash, base.string(), hash),
                  ErrorScope::kAllRanks);
}

void CheckpointWithBase::read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const {
  if (base_ && !is_adapter(parameter.name)) {
    base_->read(parameter, begin, out);
  } else {
    checkpoint_.read(parameter, begin, out);
  }
}

void CheckpointWithBase::read_unit(const UnitSpec& unit, StateKind kind, int64_t begin, std::span<float> out) const {
  if (!base_) return checkpoint_.read_unit(unit, kind, begin, out);
  visit_parameters(unit, begin, begin + static_cast<int64_t>(out.size()), [&](const ParameterRange& range) {
    const auto part = out.subspan(static_cast<size_t>(range.offset), static_cast<size_t>(range.count));
    if (is_adapter(range.parameter.name)) {
      checkpoint_.read(range.parameter.name, kind, range.begin, part);
    } else {
      base_->read(range.parameter, range.begin, part);
    }
  });
}

void CheckpointWithBase::verify_what_was_read(ProcessGroup& group) const {
  checkpoint_.verify_what_was_read(group);
  if (base_) base_->verify_what_was_read(group);
}

MergedCheckpoint::MergedCheckpoint(const StoredCheckpoint& checkpoint, fs::path base, ProcessGroup& group)
    : checkpoint_(checkpoint),
      whole_(checkpoint, std::move(base), group),
      progress_(checkpoint.progress()),
      parameters_(base_unit(checkpoint.parameters()).front().parameters) {
  const std::optional<LoraConfig> settings = adapters_of(checkpoint);
  if (!settings) throw_user_error("{} has no adapters to merge; omit --format", checkpoint.folder().string());
  scale_ = settings->scale();
  json config = json::parse(progress_.model_config_json);
  config.erase(kLoraKey);
  progress_.model_config_json = config.dump(2) + "\n";
}

void MergedCheckpoint::read_values(const ParameterSpec& parameter, StateKind /*kind*/, int64_t begin,
                                   std::span<float> out) const {
  constexpr std::string_view kWeight = ".weight";
  whole_.read(parameter, begin, out);
  const std::string projection = projection_of(parameter.name, kWeight);
  const auto all = checkpoint_.parameters();
  const auto found = std::ranges::find(all, projection + kLoraA, &ParameterSpec::name);
  if (found == all.end()) return;
  const ParameterSpec& a = *found;
  const int64_t r = a.shape[0], in = a.shape[1], end = begin + static_cast<int64_t>(out.size());
  const int64_t first_row = begin / in, rows = (end + in - 1) / in - first_row;
  std::vector<float> a_values(static_cast<size_t>(a.numel())), b_values(static_cast<size_t>(rows * r));
  checkpoint_.read(a, 0, a_values);
  checkpoint_.read(projection + kLoraB, StateKind::kMaster, first_row * r, b_values);
  std::vector<float> row(static_cast<size_t>(in));
  for (int64_t i = 0; i < rows; ++i) {
    std::ranges::fill(row, 0.0F);
    for (int64_t k = 0; k < r; ++k) {
      const float factor = b_values[static_cast<size_t>(i * r + k)];
      const float* const of_a = a_values.data() + k * in;
      for (int64_t j = 0; j < in; ++j) row[static_cast<size_t>(j)] += factor * of_a[j];
    }
    const int64_t row_begin = (first_row + i) * in;
    for (int64_t j = std::max(begin, row_begin); j < std::min(end, row_begin + in); ++j) {
      out[static_cast<size_t>(j - begin)] += static_cast<float>(scale_) * row[static_cast<size_t>(j - row_begin)];
    }
  }
}

}  // namespace mpzero::io
