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

// The initial weights of a run: finite, also in the type that the run trains in, and hashed as they are read.
// Thread-safe.
//
// The hash is the sum, modulo 2^64, of one XXH3-64 for each block of 2^18 elements of each parameter, over its name,
// shape, block number and the XXH3-64 of its values as fp32. It does not depend on the number of ranks, on how tensors
// are split over files, or on which of the types a file stores the same values in.
class InitialWeights final : public ParameterSource {
 public:
  // `type`: the compute type of the run. `weights` must outlive this object.
  InitialWeights(const WeightSource& weights, WeightType type) : weights_(weights), type_(type) {}

  // Throws UserError naming tensor, file and index if a value is NaN or infinite, or would be in `type`. Reads past the
  // range to the end of the last block that begins in it: the reader of a block's first element hashes it.
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override;

  // The hash of what all ranks have read: each element of `units` once. `counts`: whether this rank's reads count; if
  // every rank has read everything, only one rank's count. 16 hexadecimal digits, the same on every rank. Collective.
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

// What --init_from names: a Hugging Face folder, the name of a model on the hub, which means its snapshot in the cache,
// a checkpoint, or a folder of checkpoints, which means the one that its `latest` names.
struct InitialFolder {
  std::filesystem::path folder;  // of Hugging Face weights, or of one checkpoint; of adapters their base
  bool is_checkpoint = false;
  bool is_latest = false;                // the checkpoint was found by `latest`
  bool is_gone = false;                  // the folder holds no weights any more; a run recorded the path and its model
  std::string model_config_json;         // that the checkpoint, or the run, records; empty: none, as those of DeepSpeed
  std::vector<int64_t> eos_token_ids{};  // beside those of config.json: see more_eos_ids() in tokenizer_files.hpp
  std::string tokenizer_hash{};          // of the tokenizer there, as Tokenization has it; empty: not known
  std::vector<std::string> warnings{};   // of files of the tokenizer
  std::filesystem::path adapters{};      // the folder of the adapters that were named, of PEFT or a checkpoint
  bool adapters_latest = false;          // likewise found by `latest`
  LoraConfig adapter_settings{};         // theirs
  std::string base_hash{};               // of the base that their checkpoint records; empty: none
  std::string problem{};                 // of such files in a Hugging Face folder: why what they say is not known
};

// `given`; if that is no file or folder but the name of a cached model with weights or adapters, its snapshot.
std::filesystem::path weights_folder(const std::filesystem::path& given);

// Safetensors come first where the folder holds several, pytorch_model.bin, which DeepSpeed's zero_to_fp32.py writes
// beside the checkpoints, comes last. A folder that holds nothing is returned as it is. Throws as
// open_checkpoint, and where `latest` names nothing. `base`: replaces the base that adapters record.
InitialFolder find_initial_folder(const std::filesystem::path& given, const std::filesystem::path& base = {});

// Whether there are weights in the folder, which is one of Hugging Face weights or of one checkpoint. Also true if the
// system cannot tell.
bool has_initial_weights(const std::filesystem::path& folder);

// Whether find_initial_folder() reads adapters of PEFT there. The checkpoints of mpzero in a folder come first, or an
// export into it would hide them.
bool is_peft_folder(const std::filesystem::path& folder);

// Whether find_initial_folder() takes it for a Hugging Face folder that has weights.
bool is_hugging_face_folder(const std::filesystem::path& folder);

// FolderWeights, or the fp32 master weights of a checkpoint of either format. Throws as FolderWeights and as
// open_checkpoint.
std::unique_ptr<WeightSource> open_initial_weights(const std::filesystem::path& folder);

}  // namespace mpzero::io
