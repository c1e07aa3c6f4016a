#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/parameter_source.hpp"
#include "base/process_group.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/peft/peft_config.hpp"
#include "io/weights/weight_source.hpp"

namespace mpzero::io {

// The initial weights of a run: finite, also in the training dtype, and hashed as they are read. Thread-safe.
//
// The hash is the sum, modulo 2^64, of one XXH3-64 for each block of 2^18 elements of each parameter, over its name,
// shape, block number and the XXH3-64 of its values as fp32. It does not depend on the number of ranks, on how tensors
// are split over files, or on the dtype that stores the same values.
class InitialWeights final : public ParameterSource {
 public:
  // `type`: the compute dtype of the run. `weights` must outlive this object.
  InitialWeights(const WeightSource& weights, WeightType type) : weights_(weights), type_(type) {}

  // Throws UserError naming tensor, file and index if a value is NaN or infinite, or would be in `type`. Reads past the
  // range to the end of the last block that begins in it: the reader of a block's first element hashes it.
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override;

  // The hash of everything that all ranks have read: each element of `units` once. `counts`: whether this rank's reads
  // count; if every rank has read everything, pass true on one rank only. 16 hexadecimal digits, the same on every
  // rank. Collective.
  std::string hash(std::span<const UnitSpec> units, bool counts, ProcessGroup& group) const;

 private:
  void add_block(const ParameterSpec& parameter, int64_t block, std::span<const float> values) const;

  const WeightSource& weights_;
  WeightType type_;
  mutable std::atomic<uint64_t> sum_{0};
  mutable std::atomic<int64_t> blocks_{0};
};

// The hash of weights without starting a run: each rank reads a part of them. Collective.
std::string hash_of(const WeightSource& weights, std::span<const UnitSpec> units, ProcessGroup& group);

// The folder that --init_from selects: a Hugging Face folder, a model's hub name (its snapshot in the cache), a
// checkpoint, or a folder of checkpoints (the one that its `latest` names).
struct InitialFolder {
  std::filesystem::path folder;  // Hugging Face weights or one checkpoint; for adapters, their base
  bool is_checkpoint = false;
  bool is_latest = false;                // the checkpoint was found by `latest`
  bool is_gone = false;                  // the folder no longer holds weights; a run recorded its path and model
  std::string model_config_json;         // recorded by the checkpoint or the run; empty: none, as in DeepSpeed's
  std::vector<int64_t> eos_token_ids{};  // besides those of config.json: see more_eos_ids() in tokenizer_files.hpp
  std::string tokenizer_hash{};          // of the folder's tokenizer, as in Tokenization; empty: unknown
  std::vector<std::string> warnings{};   // about files of the tokenizer
  std::filesystem::path adapters{};      // the folder of the selected adapters, of PEFT or a checkpoint
  bool adapters_latest = false;          // the adapters were found by `latest`
  LoraConfig adapter_settings{};
  std::string base_hash{};  // of the base, as the adapters record it; empty: none
  std::string problem{};    // why ids and hash of a Hugging Face folder are unknown; empty: none
};

// Returns `given` or, if it is the name of a cached model with weights or adapters and not a file or folder, its
// snapshot.
std::filesystem::path weights_folder(const std::filesystem::path& given);

// Safetensors come first if the folder holds several formats. pytorch_model.bin, which DeepSpeed's zero_to_fp32.py
// writes next to the checkpoints, comes last. A folder without weights is returned as is. Throws as open_checkpoint
// does, and if the checkpoint that `latest` names does not exist. `base`: replaces the base that adapters record.
InitialFolder find_initial_folder(const std::filesystem::path& given, const std::filesystem::path& base = {});

// Whether the folder, of Hugging Face weights or of one checkpoint, has weights. Also true if the system cannot tell.
bool has_initial_weights(const std::filesystem::path& folder);

// Whether find_initial_folder() reads PEFT adapters from the folder. mpzero's checkpoints in the folder take
// precedence, so that an export into it does not hide them.
bool is_peft_folder(const std::filesystem::path& folder);

// Whether find_initial_folder() treats it as a Hugging Face folder with weights.
bool is_hugging_face_folder(const std::filesystem::path& folder);

// FolderWeights, or the fp32 master weights of a checkpoint of either format. Throws as FolderWeights and
// open_checkpoint do.
std::unique_ptr<WeightSource> open_initial_weights(const std::filesystem::path& folder);

}  // namespace mpzero::io
