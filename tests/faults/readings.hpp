#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/faults/outcome.hpp"
#include "tests/faults/saves.hpp"

// The data that mpzero's programs read, each as a text that is equal exactly if everything that was read is equal:
// values bit for bit, and everything else that the reader takes from the files.
namespace mpzero::faults {

// As a run that resumes: progress, and all states in the slices of `ranks` ranks.
std::string read_as_run(const std::filesystem::path& checkpoint, int ranks);
// Whether a run that resumes finds the values of value_of() for `save`, bit for bit, and its step, position and run.
bool holds(const std::filesystem::path& checkpoint, const Save& save);
// As `mpzero checkpoint verify`. Throws if something is wrong.
void verify(const std::filesystem::path& checkpoint);
// As zero_to_fp32: exports the weights into `output`.
void export_as_fp32(const std::filesystem::path& checkpoint, const std::filesystem::path& output,
                    int64_t max_shard_bytes = int64_t{1} << 30);
// As --init_from: all weights of tiny_model() in a Hugging Face folder, and the names of other tensors.
std::string read_weights(const std::filesystem::path& folder);
// The hash of those weights as logged.
std::string logged_hash(const std::filesystem::path& folder);
// The weights in a folder that zero_to_fp32 has written, and other files that transformers would load.
std::string read_export(const std::filesystem::path& output);
// As a training run: all windows of a token file, and its attributes.
std::string read_tokens(const std::filesystem::path& file);
// Whether a run warns that it would not detect a changed token.
bool lacks_checksums(const std::filesystem::path& file);

// The verdict on a refusal: it must be one sentence that names something in `place`, and must not call a system error
// damage. `error` is the exception that is being handled.
Verdict judge_exception(const std::filesystem::path& place, bool system_failed = false);

}  // namespace mpzero::faults
