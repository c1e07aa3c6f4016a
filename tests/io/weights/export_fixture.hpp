#pragma once

// Shared by the tests of zero_to_fp32's output folder: checkpoints to convert, forms of an export, and the weights that
// load.
#include <fmt/format.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/weights/weights_export.hpp"
#include "tests/io/checkpoint_fixture.hpp"
#include "tests/io/faulty_disk.hpp"
#include "tests/io/stub_checkpoint.hpp"

namespace mpzero::io::testing {

using Names = std::vector<std::string>;
using Contents = std::map<std::string, std::string>;

// An in-memory checkpoint whose weights encode its generation.
class MadeUpCheckpoint final : public StubCheckpoint {
 public:
  explicit MadeUpCheckpoint(int generation) : generation_(generation) {
    made.step = generation;
    made.model_config_json = fmt::format("{{\"rope_theta\": {}}}", generation);
    specs = {{"model.embed_tokens.weight", {16, 8}}, {"layers.0.weight", {32}}, {"layers.1.weight", {40}}};
  }
  void verify_what_was_read(ProcessGroup&) const override {
    if (damaged) throw_user_error("the checkpoint is damaged");
    if (on_verify) on_verify();
  }

  bool damaged = false;
  std::function<void()> on_verify;

 private:
  void read_values(const ParameterSpec& parameter, StateKind, int64_t begin, std::span<float> out) const override {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>(generation_ * 1000 + begin) + static_cast<float>(i + parameter.name.size());
    }
  }

  int generation_;
};

struct Form {
  WeightsFormat format = WeightsFormat::kSafetensors;
  int64_t max_shard_bytes = 5'000'000'000;

  ExportOptions options() const {
    ExportOptions options;
    options.format = format;
    options.max_shard_bytes = max_shard_bytes;
    return options;
  }
};

constexpr int64_t kThreeShards = 200;  // bytes
inline const std::vector<Form> kForms = {{WeightsFormat::kSafetensors},
                                         {WeightsFormat::kSafetensors, kThreeShards},
                                         {WeightsFormat::kTorch},
                                         {WeightsFormat::kTorch, kThreeShards},
                                         {WeightsFormat::kHdf5}};

// Indices into kForms, of the previous and the new export. The pairs cover each change from or to a single file, shards
// and another format.
struct Pair {
  size_t before;
  size_t after;
};
inline const std::vector<Pair> kPairs = {{0, 0}, {1, 1}, {0, 1}, {1, 0}, {2, 0},
                                         {0, 2}, {3, 1}, {1, 3}, {4, 4}, {4, 0}};

inline Contents contents_of(const fs::path& folder) {
  Contents contents;
  for (const auto& entry : fs::directory_iterator(folder)) {
    contents[entry.path().filename()] = entry.is_regular_file() ? read_file(entry.path()) : "a folder";
  }
  return contents;
}

// Returns the files of an export of this form.
inline Contents expected_of(const MadeUpCheckpoint& checkpoint, const Form& form) {
  const TemporaryFolder folder;
  UnsyncedDisk unsynced;
  export_weights(checkpoint, folder.path(), form.options(), unsynced);
  return contents_of(folder.path());
}

// Returns the weights that transformers would load from `folder`, by file. Searches in transformers' order.
inline Contents weights_that_load(const Contents& folder) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                           "pytorch_model.bin.index.json", "model.h5"}) {
    if (!folder.contains(name)) continue;
    Contents found{{name, folder.at(name)}};
    if (!std::string(name).ends_with(".index.json")) return found;
    const nlohmann::json index = nlohmann::json::parse(folder.at(name));
    for (const auto& [tensor, shard] : index.at("weight_map").items()) {
      const auto file = folder.find(shard.get<std::string>());
      if (file == folder.end()) return {};  // transformers refuses it
      found[file->first] = file->second;
    }
    return found;
  }
  return {};
}

enum class Loads { kNothing, kOld, kNew, kMixed };

inline Loads what_loads(const Contents& folder, const Contents& old_export, const Contents& new_export) {
  const Contents weights = weights_that_load(folder);
  if (weights.empty()) return Loads::kNothing;
  const bool is_old = weights == weights_that_load(old_export);
  if (!is_old && weights != weights_that_load(new_export)) return Loads::kMixed;
  const auto config = folder.find("config.json");
  if (config == folder.end()) return Loads::kNothing;
  const Contents& of = is_old ? old_export : new_export;
  const auto wanted = of.find("config.json");
  if (wanted == of.end() || wanted->second != config->second) return Loads::kMixed;
  return is_old ? Loads::kOld : Loads::kNew;
}

// Returns true if `folder` contains exactly the files in `wanted` and `others`.
inline bool holds_exactly(const fs::path& folder, Contents wanted, const Contents& others = {}) {
  wanted.insert(others.begin(), others.end());
  return contents_of(folder) == wanted;
}

inline Names names_of(const Contents& contents) {
  Names names;
  for (const auto& [name, bytes] : contents) names.push_back(name);
  return names;
}

}  // namespace mpzero::io::testing
