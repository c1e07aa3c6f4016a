#include "io/weights/initial_weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/bytes/parallel_blocks.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/files/atomic_file.hpp"
#include "io/hub/hub_cache.hpp"
#include "io/weights/folder_weights.hpp"
#include "io/weights/safetensors.hpp"
#include "io/weights/tokenizer_files.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kBlockElements = int64_t{1} << 18;  // 1 MiB, which stays in the CPU cache between reading and hashing

int64_t blocks_of(const ParameterSpec& parameter) { return (parameter.numel() + kBlockElements - 1) / kBlockElements; }

int64_t blocks_of(std::span<const UnitSpec> units) {
  int64_t blocks = 0;
  for (const UnitSpec& unit : units) {
    for (const ParameterSpec& parameter : unit.parameters) blocks += blocks_of(parameter);
  }
  return blocks;
}

// Returns the bits of the smallest magnitude that overflows in `type`. For bf16, this is the midpoint between the
// largest finite value and 2^128, which rounding to nearest, ties to even, rounds up.
uint32_t limit_of(WeightType type) {
  constexpr uint32_t kInfinity = 0x7F800000U;
  constexpr uint32_t kInfinityOfBFloat16 = 0x7F7F8000U;
  return type == WeightType::kBFloat16 ? kInfinityOfBFloat16 : kInfinity;
}

uint32_t magnitude_of(float value) { return std::bit_cast<uint32_t>(value) & 0x7FFFFFFFU; }

uint32_t largest_magnitude(std::span<const float> values) {
  uint32_t largest = 0;
  for (const float value : values) largest = std::max(largest, magnitude_of(value));
  return largest;
}

// Returns the multi-dimensional index of element `index` of the row-major parameter, for example "[3, 17]".
std::string place_of(const ParameterSpec& parameter, int64_t index) {
  std::vector<int64_t> place(parameter.shape.size());
  for (size_t i = place.size(); i-- > 0;) {
    place[i] = index % parameter.shape[i];
    index /= parameter.shape[i];
  }
  return fmt::format("[{}]", fmt::join(place, ", "));
}

void check_values(const WeightSource& weights, const ParameterSpec& parameter, int64_t begin,
                  std::span<const float> values, WeightType type) {
  const uint32_t limit = limit_of(type);
  if (largest_magnitude(values) < limit) return;
  const auto bad =
      std::find_if(values.begin(), values.end(), [&](float value) { return magnitude_of(value) >= limit; });
  const std::string what =
      fmt::format("tensor {} of {} is {} at {}", parameter.name, weights.file_of(parameter).string(),
                  std::isnan(*bad) ? "NaN" : fmt::to_string(*bad), place_of(parameter, begin + (bad - values.begin())));
  if (std::isfinite(*bad)) {
    throw_user_error("{}, which is infinite in bf16; pass --bf16=false to train in fp32, or use different weights",
                     what);
  }
  throw_user_error("{}; copy or download the weights again, or use different weights", what);
}

}  // namespace

void InitialWeights::read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const {
  const int64_t end = begin + static_cast<int64_t>(out.size());
  std::vector<float> block_values;
  for (int64_t first = begin; first < end;) {
    const int64_t block = first / kBlockElements;
    const int64_t block_end = std::min((block + 1) * kBlockElements, parameter.numel());
    const int64_t last = std::min(block_end, end);
    const std::span<float> values = out.subspan(static_cast<size_t>(first - begin), static_cast<size_t>(last - first));
    weights_.read(parameter, first, values);
    check_values(weights_, parameter, first, values, type_);
    if (first == block * kBlockElements) {
      if (last == block_end) {
        add_block(parameter, block, values);
      } else {
        block_values.resize(static_cast<size_t>(block_end - first));
        std::copy(values.begin(), values.end(), block_values.begin());
        weights_.read(parameter, last, std::span(block_values).subspan(values.size()));
        add_block(parameter, block, block_values);
      }
    }
    first = last;
  }
}

void InitialWeights::add_block(const ParameterSpec& parameter, int64_t block, std::span<const float> values) const {
  const std::string text = fmt::format("{} [{}] {} {}", parameter.name, fmt::join(parameter.shape, ", "), block,
                                       to_hex(checksum(std::as_bytes(values))));
  sum_ += checksum(std::as_bytes(std::span(text)));
  ++blocks_;
}

std::string InitialWeights::hash(std::span<const UnitSpec> units, bool counts, ProcessGroup& group) const {
  const uint64_t total = sum(group, counts ? sum_.load() : uint64_t{0});
  const int64_t blocks = sum(group, counts ? blocks_.load() : int64_t{0});
  if (blocks != blocks_of(units)) {
    throw Failure(
        fmt::format("{} blocks of the initial weights were hashed, but {} were expected", blocks, blocks_of(units)),
        ErrorScope::kAllRanks);
  }
  return to_hex(total);
}

std::string hash_of(const WeightSource& weights, std::span<const UnitSpec> units, ProcessGroup& group) {
  struct Block {
    const ParameterSpec* parameter;
    int64_t begin;
  };
  std::vector<Block> blocks;
  for (const UnitSpec& unit : units) {
    for (const ParameterSpec& parameter : unit.parameters) {
      for (int64_t i = 0; i < blocks_of(parameter); ++i) blocks.push_back({&parameter, i * kBlockElements});
    }
  }
  const auto count = static_cast<int64_t>(blocks.size());
  const int64_t begin = count * group.rank() / group.world_size();
  const int64_t end = count * (group.rank() + 1) / group.world_size();
  const InitialWeights hashed(weights, WeightType::kFloat32);
  run_on_all_ranks(group, [&] {
    parallel_for(end - begin, io_threads(), [&](int64_t i) {
      const Block& block = blocks[static_cast<size_t>(begin + i)];
      std::vector<float> values(static_cast<size_t>(std::min(kBlockElements, block.parameter->numel() - block.begin)));
      hashed.read(*block.parameter, block.begin, values);
    });
  });
  return hashed.hash(units, /*counts=*/true, group);
}

fs::path weights_folder(const fs::path& given) {
  const fs::path folder = hub_snapshot_or(given);
  const bool is_complete = has_safetensors(folder) || has_other_weights(folder) || holds_peft_adapters(folder);
  return folder == given || is_complete ? folder : given;
}

bool is_peft_folder(const fs::path& folder) {
  return holds_peft_adapters(folder) && !path_exists(folder / latest_tag(folder).value_or("") / kManifestName);
}

namespace {

// Returns the projections with adapters. PEFT's target_modules may be a pattern instead of a list.
std::vector<std::string> targets_in(const std::map<std::string, StoredTensor>& tensors) {
  std::set<std::string> targets;
  for (const auto& [name, tensor] : tensors) {
    const std::string projection = name.substr(0, name.find(".lora_"));
    targets.insert(projection.substr(projection.rfind('.') + 1));
  }
  return {targets.begin(), targets.end()};
}

// Examines only the given folder. For adapters, `folder` of the result is the recorded base, which may be empty.
InitialFolder look_into(const fs::path& given) {
  const fs::path folder = weights_folder(given);
  InitialFolder found;
  if (is_peft_folder(folder)) {
    const PeftConfig config = read_peft_config(folder);
    const bool at_revision = !config.revision.empty() && is_hub_name(config.base) && !path_exists(config.base);
    found.folder = at_revision ? hub_snapshot(config.base, config.revision) : fs::path(config.base);
    const fs::path weights = folder / kAdapterWeightsName;
    if (!path_exists(weights)) {
      throw_user_error(
          "--init_from {}: {} is missing; load the adapters with PEFT and save them again with save_pretrained",
          given.string(), weights.string());
    }
    std::map<std::string, std::string> metadata;
    const auto tensors = read_safetensors_header(File::open_for_reading(weights), &metadata);
    found.base_hash = metadata[kBaseHashKey];
    found.adapters = folder;
    found.adapter_settings = config.settings;
    if (config.settings.targets.empty()) found.adapter_settings.targets = targets_in(tensors);
    return found;
  }
  found.folder = folder;
  if (!is_folder(folder)) return found;
  if (!has_safetensors(folder)) {
    found.is_checkpoint = looks_like_checkpoint(folder);
    if (const auto latest = found.is_checkpoint ? std::nullopt : latest_checkpoint(folder)) {
      found.folder = *latest;
      found.is_checkpoint = found.is_latest = true;
    }
  }
  const auto warn = [&](const std::string& warning) { found.warnings.push_back(warning + "."); };
  if (found.is_checkpoint) {
    const auto checkpoint = open_checkpoint(found.folder);
    if (const auto settings = adapters_of(*checkpoint)) {
      const RunRecord& run = checkpoint->run();
      if (run.init_from_hash.empty()) {
        throw_user_error(
            "--init_from {}: the adapters were trained on randomly initialized weights, which only this checkpoint "
            "contains; merge the adapters (zero_to_fp32 --format merged) and pass the result",
            found.folder.string());
      }
      return {.folder = run.init_from,
              .model_config_json = "",
              .adapters = found.folder,
              .adapters_latest = found.is_latest,
              .adapter_settings = *settings,
              .base_hash = run.init_from_hash};
    }
    found.model_config_json = checkpoint->progress().model_config_json;
    found.eos_token_ids = more_eos_ids(*checkpoint, tokenizer_folder(*checkpoint, warn), warn);
    found.tokenizer_hash = recorded_tokenization(*checkpoint).tokenizer_hash;
  } else {
    try {
      found.eos_token_ids = generation_eos_ids(folder, kAnyVocabulary, warn);
      found.tokenizer_hash = tokenizer_hash_of(folder);
    } catch (const UserError& error) {
      found.problem = error.what();
    }
  }
  return found;
}

}  // namespace

InitialFolder find_initial_folder(const fs::path& given, const fs::path& base) {
  InitialFolder named = look_into(given);
  if (named.adapters.empty()) return named;
  const std::string adapters = named.adapters.string();
  const fs::path of_base = base.empty() ? named.folder : base;
  if (of_base.empty() || !has_initial_weights(weights_folder(of_base))) {
    throw_user_error(
        "--init_from {}: the adapters need their base model, {}; pass the base model's folder with --base_model",
        adapters,
        of_base.empty() ? "which the adapters do not record" : of_base.string() + ", which contains no weights");
  }
  InitialFolder found = look_into(of_base);
  if (!found.adapters.empty()) {
    throw_user_error(
        "--init_from {}: the base model {} also contains adapters; merge them with zero_to_fp32 --format merged and "
        "pass the result as --base_model",
        adapters, of_base.string());
  }
  found.adapters = std::move(named.adapters);
  found.adapters_latest = named.adapters_latest;
  found.adapter_settings = std::move(named.adapter_settings);
  found.base_hash = std::move(named.base_hash);
  found.warnings.insert(found.warnings.end(), named.warnings.begin(), named.warnings.end());
  return found;
}

bool has_initial_weights(const fs::path& folder) {
  return has_safetensors(folder) || has_other_weights(folder) || looks_like_checkpoint(folder);
}

bool is_hugging_face_folder(const fs::path& folder) {
  if (!is_folder(folder)) return false;
  if (has_safetensors(folder)) return true;
  return has_other_weights(folder) && !looks_like_checkpoint(folder) && !latest_checkpoint(folder);
}

std::unique_ptr<WeightSource> open_initial_weights(const fs::path& folder) {
  if (!has_safetensors(folder) && looks_like_checkpoint(folder)) return open_checkpoint(folder);
  return std::make_unique<FolderWeights>(folder);
}

}  // namespace mpzero::io
