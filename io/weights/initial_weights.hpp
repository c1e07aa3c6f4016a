#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/process_group.hpp"
#include "base/weight_source.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/peft/peft_config.hpp"

namespace mpzero::io {

// Initial weights of a run. read() hashes the values and checks that they are finite in the compute dtype. Thread-safe.
//
// The hash is the sum, modulo 2^64, of one XXH3-64 per block of 2^18 elements of each parameter. The input of each
// XXH3-64 is the parameter's name, its shape, the block number and the XXH3-64 of the values as fp32. The hash does not
// depend on the number of ranks, the split of tensors over files, or the dtype of the files.
class InitialWeights final : public ParameterSource {
 public:
  // `type` is the compute dtype of the run. `weights` must outlive this object.
  InitialWeights(const WeightSource& weights, WeightType type) : weights_(weights), type_(type) {}

  // Throws UserError, with the tensor, file and index, if a value is NaN or infinite in fp32 or after conversion to the
  // compute dtype. Reads to the end of the last block because the reader of a block's first element hashes the whole
  // block.
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override;

  // Returns the hash of all weights as 16 hexadecimal digits. The result is identical on every rank. The reads of the
  // ranks that pass `counts` = true are added to the hash and must cover each element of `units` exactly once. If every
  // rank has read all weights, exactly one rank must pass true. Collective.
  std::string hash(std::span<const UnitSpec> units, bool counts, ProcessGroup& group) const;

 private:
  void add_block(const ParameterSpec& parameter, int64_t block, std::span<const float> values) const;

  const WeightSource& weights_;
  WeightType type_;
  mutable std::atomic<uint64_t> sum_{0};
  mutable std::atomic<int64_t> blocks_{0};
};

// Returns the hash of the weights without starting a run. Each rank reads a part of the weights. Collective.
std::string hash_of(const WeightSource& weights, std::span<const UnitSpec> units, ProcessGroup& group);

// The folder that --init_from selects: a Hugging Face folder, the cached snapshot of a Hub model, a checkpoint, or the
// target of `latest` in a folder of checkpoints.
struct InitialFolder {
  std::filesystem::path folder;  // Hugging Face folder or checkpoint; for adapters, the base model
  bool is_checkpoint = false;
  bool is_latest = false;                // the checkpoint is the target of `latest`
  bool is_gone = false;                  // the folder that a run recorded no longer contains weights
  std::string model_config_json;         // recorded by the checkpoint or the run; may be empty
  std::vector<int64_t> eos_token_ids{};  // in addition to the ids in config.json; see more_eos_ids()
  std::string tokenizer_hash{};          // see Tokenization::tokenizer_hash; empty if unknown
  std::vector<std::string> warnings{};   // warnings about tokenizer files
  std::filesystem::path adapters{};      // PEFT folder or checkpoint with the adapters; may be empty
  bool adapters_latest = false;          // `adapters` is the target of `latest`
  LoraConfig adapter_settings{};
  std::string base_hash{};  // hash of the base in the adapters' metadata; may be empty
  std::string problem{};    // reason why eos_token_ids and tokenizer_hash are unknown; may be empty
};

// Returns the snapshot folder if `given` is the name of a cached model with weights or adapters and not an existing
// path. Otherwise, returns `given`.
std::filesystem::path weights_folder(const std::filesystem::path& given);

// Finds the initial weights. If the folder contains several formats, prefers safetensors, then checkpoints, then
// pytorch_model.bin (which DeepSpeed's zero_to_fp32.py may write next to checkpoints). Returns `given` if the folder
// contains no weights. `base` overrides the base model that adapters record. Throws UserError if the target of `latest`
// does not exist. See open_checkpoint() for other errors.
InitialFolder find_initial_folder(const std::filesystem::path& given, const std::filesystem::path& base = {});

// Returns true if a Hugging Face folder or a checkpoint contains weights, or if a system error prevents the check.
bool has_initial_weights(const std::filesystem::path& folder);

// Returns true if find_initial_folder() reads PEFT adapters from the folder. mpzero checkpoints in the same folder take
// precedence, so that an export does not hide them.
bool is_peft_folder(const std::filesystem::path& folder);

// Returns true if find_initial_folder() uses the folder as a Hugging Face folder with weights.
bool is_hugging_face_folder(const std::filesystem::path& folder);

// Opens the weights of a Hugging Face folder (FolderWeights), or the fp32 master weights of a checkpoint in any format.
std::unique_ptr<WeightSource> open_initial_weights(const std::filesystem::path& folder);

}  // namespace mpzero::io
