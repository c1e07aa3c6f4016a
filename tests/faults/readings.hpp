#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/faults/outcome.hpp"
#include "tests/faults/saves.hpp"

// The data that mpzero's programs read, as text. Two texts are equal if and only if all data is equal: values bit for
// bit, and everything else that the reader uses from the files.
namespace mpzero::faults {

// Reads like a resumed run: the progress, and all states in the slices of `ranks` ranks.
std::string read_as_run(const std::filesystem::path& checkpoint, int ranks);
// Returns true if a resumed run reads the values of value_of() for `save`, bit for bit, and its step, position and run.
bool holds(const std::filesystem::path& checkpoint, const Save& save);
// Verifies like `mpzero checkpoint verify`. Throws if the checkpoint is damaged.
void verify(const std::filesystem::path& checkpoint);
// Exports the weights to `output`, like zero_to_fp32.
void export_as_fp32(const std::filesystem::path& checkpoint, const std::filesystem::path& output,
                    int64_t max_shard_bytes = int64_t{1} << 30);
// Reads like --init_from: all weights of tiny_model() in a Hugging Face folder, and the names of other tensors.
std::string read_weights(const std::filesystem::path& folder);
// Returns the hash of these weights as logged.
std::string logged_hash(const std::filesystem::path& folder);
// Reads the weights in a folder that zero_to_fp32 has written, and other files that transformers would load.
std::string read_export(const std::filesystem::path& output);
// Reads like a training run: all windows of a token file, and its attributes.
std::string read_tokens(const std::filesystem::path& file);
// Returns true if a run warns that it would not detect a changed token.
bool lacks_checksums(const std::filesystem::path& file);

// Returns the verdict on the exception being handled: the message must be one sentence that names a path in `place`,
// and must not report a system error as damage.
Verdict judge_exception(const std::filesystem::path& place, bool system_failed = false);

}  // namespace mpzero::faults
