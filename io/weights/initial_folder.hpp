#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "io/weights/weight_source.hpp"

namespace mpzero::io {

// What --init_from names: a Hugging Face folder, the name of a model on the hub, which means its snapshot in the cache,
// a checkpoint, or a folder of checkpoints, which means the one that its `latest` names.
struct InitialFolder {
  std::filesystem::path folder;  // of Hugging Face weights, or of one checkpoint
  bool is_checkpoint = false;
  bool is_latest = false;                // the checkpoint was found by `latest`
  bool is_gone = false;                  // the folder holds no weights any more; a run recorded the path and its model
  std::string model_config_json;         // that the checkpoint, or the run, records; empty: none, as those of DeepSpeed
  std::vector<int64_t> eos_token_ids{};  // beside those of config.json: see more_eos_ids() in tokenizer_files.hpp
  std::string tokenizer_hash{};          // of the tokenizer there, as Tokenization has it; empty: not known
  std::vector<std::string> warnings{};   // of files of the tokenizer
  std::string problem{};                 // of such files in a Hugging Face folder: why what they say is not known
};

// `given`; if that is no file or folder but the name of a cached model with weights, its snapshot.
std::filesystem::path weights_folder(const std::filesystem::path& given);

// Safetensors come first where the folder holds several, pytorch_model.bin, which DeepSpeed's zero_to_fp32.py writes
// beside the checkpoints, comes last. A folder that holds nothing is returned as it is. Throws as
// open_checkpoint, and where `latest` names nothing.
InitialFolder find_initial_folder(const std::filesystem::path& given);

// Whether there are weights in the folder, which is one of Hugging Face weights or of one checkpoint. Also true if the
// system cannot tell.
bool has_initial_weights(const std::filesystem::path& folder);

// Whether find_initial_folder() takes it for a Hugging Face folder that has weights.
bool is_hugging_face_folder(const std::filesystem::path& folder);

// FolderWeights, or the fp32 master weights of a checkpoint of either format. Throws as FolderWeights and as
// open_checkpoint.
std::unique_ptr<WeightSource> open_initial_weights(const std::filesystem::path& folder);

}  // namespace mpzero::io
