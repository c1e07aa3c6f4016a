#include "tests/faults/readings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <new>

#include "base/error.hpp"
#include "base/process_group.hpp"
#include "io/bytes/checksum.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/data/token_dataset.hpp"
#include "io/weights/folder_weights.hpp"
#include "io/weights/initial_weights.hpp"
#include "io/weights/safetensors.hpp"
#include "io/weights/weights_export.hpp"

namespace mpzero::faults {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kWindow = 8;

std::string hash_of(std::span<const float> values) { return io::to_hex(io::checksum(std::as_bytes(values))); }

std::string describe(const io::TrainingProgress& progress) {
  return fmt::format(
      "step {} tokens {} windows {} seed {} order '{}' lr {} dtype {} stage {} config {} run {} settings {}\n",
      progress.step, progress.tokens_seen, progress.sequences_seen, progress.seed, progress.data_order, progress.lr,
      progress.dtype, progress.zero_stage, progress.model_config_json, progress.run_config_json,
      progress.settings_json);
}

// Everything that a run takes from it.
std::string describe(const io::StoredCheckpoint& stored, int ranks) {
  std::string text = describe(stored.progress());
  text += fmt::format("run {}\n", stored.run().id);
  if (stored.next_lr()) text += fmt::format("next lr {}\n", *stored.next_lr());
  for (const std::string& warning : stored.warnings()) text += warning + "\n";
  for (const auto& alias : stored.aliases()) text += alias.name + " = " + alias.parameter + "\n";
  for (const ParameterSpec& parameter : stored.parameters()) {
    text += parameter.name;
    for (const int64_t extent : parameter.shape) text += fmt::format(" {}", extent);
    for (const StateKind kind : {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq}) {
      std::vector<float> values(static_cast<size_t>(parameter.numel()));
      const int64_t share = (parameter.numel() + ranks - 1) / ranks;
      for (int64_t begin = 0; begin < parameter.numel(); begin += share) {
        const int64_t count = std::min(share, parameter.numel() - begin);
        stored.read(parameter.name, kind, begin,
                    std::span(values).subspan(static_cast<size_t>(begin), static_cast<size_t>(count)));
      }
      text += fmt::format(" {}", hash_of(values));
    }
    text += "\n";
  }
  return text;
}

std::string names_of(const io::FolderWeights& source) {
  std::string text;
  for (const ParameterSpec& parameter : source.parameters()) {
    text += fmt::format("{} [{}]\n", parameter.name, fmt::join(parameter.shape, ", "));
  }
  return text;
}

std::string hashes_of(const ParameterSource& source, std::span<const ParameterSpec> parameters) {
  std::string text;
  for (const ParameterSpec& parameter : parameters) {
    std::vector<float> values(static_cast<size_t>(parameter.numel()));
    source.read(parameter, 0, values);
    text += parameter.name + " " + hash_of(values) + "\n";
  }
  return text;
}

// As the programs do while a run may save and prune at the same time.
void read_checkpoint(const fs::path& checkpoint, const std::function<void(const io::StoredCheckpoint&)>& read) {
  io::read_checkpoint([&] { return checkpoint; }, read, [](const std::string&) {});
}

}  // namespace

std::string read_as_run(const fs::path& checkpoint, int ranks) {
  std::string text;
  read_checkpoint(checkpoint, [&](const io::StoredCheckpoint& stored) {
    text = describe(stored, ranks);
    SingleProcess alone;
    stored.verify_what_was_read(alone);
  });
  return text;
}

bool holds(const fs::path& checkpoint, const Save& save) {
  const auto stored = io::open_checkpoint(checkpoint);
  const io::TrainingProgress& progress = stored->progress();
  if (progress.step != save.step || progress.sequences_seen != save.step * kWindowsOfStep) return false;
  if (progress.dtype != save.dtype || io::run_of(checkpoint).id != save.run_id) return false;
  for (size_t unit = 0; unit < tiny_model().size(); ++unit) {
    for (const StateKind kind : {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq}) {
      std::vector<float> values(static_cast<size_t>(tiny_model()[unit].numel()));
      stored->read_unit(tiny_model()[unit], kind, 0, values);
      for (size_t i = 0; i < values.size(); ++i) {
        if (values[i] != value_of(save.values, unit, kind, static_cast<int64_t>(i))) return false;
      }
    }
  }
  SingleProcess alone;
  stored->verify_what_was_read(alone);
  return true;
}

void verify(const fs::path& checkpoint) {
  read_checkpoint(checkpoint, [](const io::StoredCheckpoint& stored) { stored.verify(); });
}

void export_as_fp32(const fs::path& checkpoint, const fs::path& output, int64_t max_shard_bytes) {
  io::ExportOptions options;
  options.max_shard_bytes = max_shard_bytes;
  read_checkpoint(checkpoint, [&](const io::StoredCheckpoint& stored) { io::export_weights(stored, output, options); });
}

std::string read_weights(const fs::path& folder) {
  const io::FolderWeights source(folder);
  return names_of(source) + hashes_of(io::InitialWeights(source, io::WeightType::kFloat32), tiny_parameters());
}

std::string logged_hash(const fs::path& folder) {
  SingleProcess alone;
  return io::hash_of(io::FolderWeights(folder), tiny_model(), alone);
}

std::string read_export(const fs::path& output) {
  const io::FolderWeights source(output);
  const auto parameters = source.parameters();
  return names_of(source) + hashes_of(source, parameters) +
         (fs::exists(output / "config.json") ? read_bytes(output / "config.json") : "no config.json");
}

std::string read_tokens(const fs::path& file) {
  const io::TokenDataset data(file, kWindow);
  std::string text =
      fmt::format("tokens {} documents {} vocabulary {} end {} tokenizer {} source {}\n", data.num_tokens(),
                  data.num_documents(), data.vocab_size(), data.eos_token_id(), data.tokenizer(), data.source());
  std::vector<int64_t> window(static_cast<size_t>(kWindow + 1));
  std::vector<int64_t> all;
  for (int64_t i = 0; i < data.num_windows(); ++i) {
    data.read_windows(std::span(&i, 1), data.vocab_size(), window);
    all.insert(all.end(), window.begin(), window.end());
  }
  return text + io::to_hex(io::checksum(std::as_bytes(std::span(all))));
}

bool lacks_checksums(const fs::path& file) { return !io::TokenDataset(file, kWindow).has_checksums(); }

Verdict judge_exception(const fs::path& place, bool system_failed) {
  try {
    throw;
  } catch (const Error& error) {
    const std::string text = error.what();
    if (text.empty() || text.find('\n') != std::string::npos) return {Outcome::kUnclear, text};
    if (text.find(place.string()) == std::string::npos) return {Outcome::kUnclear, "names no file: " + text};
    const bool damaged = text.find("damaged") != std::string::npos || text.find("truncated") != std::string::npos;
    if (system_failed && (damaged || dynamic_cast<const Damaged*>(&error) != nullptr))
      return {Outcome::kWrong, "calls a system error damage: " + text};
    return {Outcome::kRefused, text};
  } catch (const std::bad_alloc&) {
    return {Outcome::kCrash, "memory beyond the limit"};
  } catch (const std::exception& error) {
    return {Outcome::kCrash, std::string("not an error of mpzero's: ") + error.what()};
  }
}

}  // namespace mpzero::faults
