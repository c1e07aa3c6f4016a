#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/reader.hpp"
#include "io/checkpoint_dir/save.hpp"
#include "tests/base/thread_group.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

namespace mpzero::io::testing {

namespace fs = std::filesystem;

inline std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

template <typename Work>
std::string message_of(const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// A model whose sizes are not divisible by any number of ranks. One unit has a single element, so most ranks have no
// part of it.
inline std::vector<UnitSpec> small_model() {
  return {{"embedding", {{"model.embed_tokens.weight", {37, 5}}}},
          {"layers.0", {{"model.layers.0.q.weight", {7, 11}}, {"model.layers.0.norm.weight", {13}}}},
          {"head", {{"model.norm.weight", {1}}}}};
}

// Returns an arbitrary bit pattern; patterns include NaN payloads, infinities and negative zeros.
inline uint32_t bits_at(size_t unit, StateKind kind, int64_t element, uint32_t generation) {
  uint64_t x = (static_cast<uint64_t>(element) + 1) * 0x9E3779B97F4A7C15ULL + unit * 0xD1B54A32D192ED03ULL +
               static_cast<uint64_t>(kind) * 0x8CB92BA72F3D8DD7ULL + generation * 0xABC98388FB8FAC03ULL;
  x ^= x >> 31;
  x *= 0xBF58476D1CE4E5B9ULL;
  const auto mixed = static_cast<uint32_t>(x >> 32);
  switch (element % 5) {
    case 0:
      return 0x7F800001U | (mixed & 0x807FFFFFU);  // NaNs, including signalling ones
    case 1:
      return element % 2 == 0 ? 0x80000000U : 0xFF800000U;
    default:
      return mixed;
  }
}

enum class Split { kEven, kRankZeroHoldsAll };

// Returns the shard of one rank. An even split pads the unit at its end, so the last rank may get fewer elements or
// none.
inline UnitShard shard_of(const UnitSpec& unit, int rank, int world_size, Split split) {
  if (split == Split::kRankZeroHoldsAll) return {&unit, 0, rank == 0 ? unit.numel() : 0};
  const int64_t share = (unit.numel() + world_size - 1) / world_size;
  const int64_t begin = std::min(unit.numel(), rank * share);
  return {&unit, begin, std::min(share, unit.numel() - begin)};
}

inline TrainingProgress progress_at(int64_t step, const std::string& dtype = "bf16") {
  TrainingProgress progress;
  progress.step = step;
  progress.tokens_seen = (int64_t{1} << 40) + step;
  progress.sequences_seen = step * 8;
  progress.seed = 0xFFFFFFFFFFFFFFF0ULL;
  progress.dtype = dtype;
  progress.zero_stage = 2;
  progress.model_config_json = "{\"hidden_size\": 5, \"note\": \"\u00e9\"}";
  progress.run_config_json = "{}";
  return progress;
}

// Ids of two runs.
inline const std::string kOurs = "00000000aaaaaaaa";
inline const std::string kTheirs = "11111111bbbbbbbb";

// Returns the save of small_model() by a single-rank run, with the tag "tiny-<step>steps". `model` must be
// small_model() and outlive the job.
inline SaveJob job_of(const fs::path& dir, const std::string& run_id, int64_t step,
                      const std::vector<UnitSpec>& model) {
  SaveJob job{.checkpoint_dir = dir,
              .tag = fmt::format("tiny-{}steps", step),
              .progress = progress_at(step),
              .shards = {},
              .model_type = "tiny",
              .run = {.id = run_id, .init_from = ""}};
  for (const UnitSpec& unit : model) job.shards.push_back(shard_of(unit, 0, 1, Split::kEven));
  return job;
}

using BeforeFetch = std::function<void(int rank, size_t shard, StateKind kind)>;

// Saves with `world_size` ranks. Returns each rank's error. Calls `before` before each fetch.
inline std::vector<std::string> save(const fs::path& dir, const std::string& tag, const TrainingProgress& progress,
                                     const std::vector<UnitSpec>& model, int world_size, Split split = Split::kEven,
                                     uint32_t generation = 0, const BeforeFetch& before = nullptr) {
  ThreadGroup group(world_size);
  return group.run([&](ProcessGroup& ranks) {
    SaveJob job{.checkpoint_dir = dir, .tag = tag, .progress = progress, .shards = {}, .model_type = {}};
    for (const UnitSpec& unit : model) job.shards.push_back(shard_of(unit, ranks.rank(), world_size, split));
    std::vector<float> values;
    const auto fetch = [&](size_t i, StateKind kind) -> std::span<const float> {
      if (before) before(ranks.rank(), i, kind);
      values.resize(static_cast<size_t>(job.shards[i].count));
      for (size_t k = 0; k < values.size(); ++k) {
        const uint32_t bits = bits_at(i, kind, job.shards[i].begin + static_cast<int64_t>(k), generation);
        std::memcpy(&values[k], &bits, sizeof bits);
      }
      return values;
    };
    save_checkpoint(job, {.fetch = fetch}, ranks);
  });
}

// Returns true if `out` is bitwise equal to the saved values that start at element `begin`.
inline bool same_bits(std::span<const float> out, size_t unit, StateKind kind, int64_t begin, uint32_t generation = 0) {
  for (size_t k = 0; k < out.size(); ++k) {
    uint32_t bits = 0;
    std::memcpy(&bits, &out[k], sizeof bits);
    if (bits != bits_at(unit, kind, begin + static_cast<int64_t>(k), generation)) return false;
  }
  return true;
}

inline constexpr StateKind kAllKinds[] = {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq};

inline std::unique_ptr<StoredCheckpoint> open_hdf5(const fs::path& folder) {
  return open_hdf5_checkpoint(std::make_shared<OpenFolder>(folder));
}

// Reads the whole checkpoint in the slices of one rank and of several ranks.
inline bool holds_generation(const fs::path& folder, const std::vector<UnitSpec>& model, uint32_t generation) {
  const auto reader = open_hdf5(folder);
  for (size_t i = 0; i < model.size(); ++i) {
    for (const StateKind kind : kAllKinds) {
      std::vector<float> out(static_cast<size_t>(model[i].numel()));
      reader->read_unit(model[i], kind, 0, out);
      if (!same_bits(out, i, kind, 0, generation)) return false;
    }
  }
  return true;
}

// The values of all shards of a rank, as in a snapshot.
class SnapshotValues {
 public:
  SnapshotValues(const SaveJob& job, uint32_t generation) {
    for (size_t i = 0; i < job.shards.size(); ++i) {
      for (const StateKind kind : kAllKinds) {
        std::vector<float>& values = values_.emplace_back(static_cast<size_t>(job.shards[i].count));
        for (size_t k = 0; k < values.size(); ++k) {
          const uint32_t bits = bits_at(i, kind, job.shards[i].begin + static_cast<int64_t>(k), generation);
          std::memcpy(&values[k], &bits, sizeof bits);
        }
      }
    }
  }
  ShardValues get() const {
    return {.fetch = [this](size_t i, StateKind kind) -> std::span<const float> {
              return values_[i * 3 + static_cast<size_t>(kind)];
            },
            .all_stay = true};
  }

 private:
  std::vector<std::vector<float>> values_;
};

}  // namespace mpzero::io::testing
