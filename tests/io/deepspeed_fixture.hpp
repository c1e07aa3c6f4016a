#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "io/bytes/checksum.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/checkpoint_dir/save.hpp"
#include "io/deepspeed/plan.hpp"
#include "io/torch_save/zip_reader.hpp"
#include "tests/catch.hpp"
#include "tests/io/checkpoint_fixture.hpp"

// Small checkpoints in DeepSpeed's format, as written by mpzero or by DeepSpeed itself.
namespace mpzero::io::testing {

// A model whose sizes are not divisible by any number of ranks. Parameters are in the order of mpzero's units, not of
// transformers.
inline std::vector<UnitSpec> transformer(int64_t width = 5) {
  std::vector<UnitSpec> units = {{"embedding", {{"model.embed_tokens.weight", {37, width}}}}};
  for (int i = 0; i < 2; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    units.push_back({"layers." + std::to_string(i),
                     {{layer + "input_layernorm.weight", {width}},
                      {layer + "self_attn.q_proj.weight", {7, width}},
                      {layer + "self_attn.q_norm.weight", {7}},
                      {layer + "self_attn.o_proj.weight", {width, 7}},
                      {layer + "mlp.down_proj.weight", {width, 11}}}});
  }
  units.push_back({"head", {{"model.norm.weight", {1}}}});
  return units;
}

struct Saved {
  int stage = 2;
  int ranks = 2;
  int64_t sub_group_size = 1'000'000'000;
  std::string dtype = "fp32";
  int64_t width = 5;  // width of the model
  int64_t step = 7;
  uint32_t generation = 0;  // selects the values
  std::string settings = R"({"beta2": 0.5})";
  std::string ds_config = R"({"train_micro_batch_size_per_gpu": 2, "note": null})";
};

// Returns the file system that a rank uses.
using DiskOfRank = std::function<FileSystem&(int rank)>;

inline std::vector<std::string> save_as_deepspeed(
    const fs::path& dir, const std::string& tag, const Saved& how, const BeforeFetch& before = nullptr,
    const DiskOfRank& disk_of = [](int) -> FileSystem& { return disk(); }) {
  const std::vector<UnitSpec> units = transformer(how.width);
  ThreadGroup group(how.ranks);
  return group.run([&](ProcessGroup& ranks) {
    SaveJob job{.checkpoint_dir = dir,
                .tag = tag,
                .progress = progress_at(how.step, how.dtype),
                .shards = {},
                .model_type = {}};
    job.progress.zero_stage = how.stage;
    job.progress.lr = 0.25;
    job.progress.settings_json = how.settings;
    job.progress.model_config_json = R"({"model_type": "qwen3"})";
    job.progress.run_config_json = how.ds_config;
    job.format =
        DeepSpeedSettings{.ranks = how.ranks,
                          .optimizer = {.next_lr = 0.5, .beta1 = 0.8, .beta2 = 0.98, .eps = 1e-6, .weight_decay = 0.2},
                          .sub_group_size = how.sub_group_size};
    for (const UnitSpec& unit : units) job.shards.push_back(shard_of(unit, ranks.rank(), how.ranks, Split::kEven));
    std::vector<float> values;
    const auto fetch = [&](size_t i, StateKind kind) -> std::span<const float> {
      if (before) before(ranks.rank(), i, kind);
      values.resize(static_cast<size_t>(job.shards[i].count));
      for (size_t k = 0; k < values.size(); ++k) {
        const uint32_t bits = bits_at(i, kind, job.shards[i].begin + static_cast<int64_t>(k), how.generation);
        std::memcpy(&values[k], &bits, sizeof bits);
      }
      return values;
    };
    save_checkpoint(job, {.fetch = fetch}, ranks, disk_of(ranks.rank()));
  });
}

inline void require_saved(const fs::path& dir, const std::string& tag, const Saved& how) {
  for (const std::string& error : save_as_deepspeed(dir, tag, how)) REQUIRE(error.empty());
}

// Returns true if all states, read in the slices of `ranks` ranks, are those of `generation`.
inline bool same_states(const StoredCheckpoint& checkpoint, int ranks, uint32_t generation, int64_t width = 5) {
  const std::vector<UnitSpec> units = transformer(width);
  bool same = true;
  for (size_t i = 0; i < units.size(); ++i) {
    for (const StateKind kind : kAllKinds) {
      for (int rank = 0; rank < ranks; ++rank) {
        const UnitShard shard = shard_of(units[i], rank, ranks, Split::kEven);
        std::vector<float> out(static_cast<size_t>(shard.count));
        checkpoint.read_unit(units[i], kind, shard.begin, out);
        same = same && same_bits(out, i, kind, shard.begin, generation);
      }
    }
  }
  return same;
}

// Reads all states, in the slices of `ranks` ranks, and verifies them.
inline bool holds_what_was_saved(const fs::path& folder, int ranks, uint32_t generation = 0, int64_t width = 5) {
  const auto checkpoint = open_checkpoint(folder);
  const bool same = same_states(*checkpoint, ranks, generation, width);
  SingleProcess alone;
  checkpoint->verify_what_was_read(alone);
  return same;
}

inline void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// Replaces `from` with `to`, which has the same length, in the pickle of a .pt file, and updates the pickle's checksum.
inline void edit_pickle(const fs::path& file, const std::string& from, const std::string& to) {
  REQUIRE(from.size() == to.size());
  std::string bytes = read_file(file);
  const ZipRecord record = [&] {
    for (const auto& [name, found] : read_zip_directory(File::open_for_reading(file)).records) {
      if (name.ends_with("/data.pkl")) return found;
    }
    return ZipRecord{};
  }();
  const auto offset = static_cast<size_t>(record.offset);
  std::string pickle = bytes.substr(offset, static_cast<size_t>(record.size));
  REQUIRE(pickle.find(from) != std::string::npos);
  replace_all(pickle, from, to);
  bytes.replace(offset, pickle.size(), pickle);
  const auto as_bytes = [](uint32_t value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
  replace_all(bytes, as_bytes(record.crc32), as_bytes(crc32_of(std::as_bytes(std::span(pickle)))));
  write_file(file, bytes);
}

// Makes the folder look like a checkpoint of a DeepSpeed run: removes the manifest and mpzero's entries in the model
// states.
inline void make_stock(const fs::path& folder) {
  fs::remove(folder / kManifestName);
  for (const std::string& name : names_in(folder)) {
    if (name.ends_with("model_states.pt")) edit_pickle(folder / name, "mpzero", "client");
  }
}

inline void require_stock(const fs::path& dir, const std::string& tag, const Saved& how) {
  require_saved(dir, tag, how);
  make_stock(dir / tag);
}

}  // namespace mpzero::io::testing
