#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"
#include "base/process_group.hpp"
#include "io/checkpoint/run_record.hpp"
#include "io/checkpoint_dir/save.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// Initializes the engine with the weights and adapters of --init_from, or with random values. Stores the hashes of the
// initial weights and adapters (io/weights/initial_weights.hpp) in setup.run. Collective.
void initialize_run(RunSetup& setup, parallel::ZeroEngine& engine, ProcessGroup& group,
                    std::vector<std::string>& warnings);

// Throws UserError unless the tensors in `folder` match the names and shapes of the parameters. Reads only the headers
// and the beginning of a stored lm_head.weight that the model ties to the embedding.
void check_initial_weights(const std::string& folder, const std::vector<UnitSpec>& units,
                           std::vector<std::string>& warnings);

// Selects when to compare the content of the --init_from weights: always, or only if the path has changed. A preview
// assumes that an unchanged path has unchanged content.
enum class WeightsCheck : uint8_t { kContent, kContentOfOtherPath };

// Returns an error message if the weights or adapters of --init_from differ from the initial weights or adapters of
// `run`; empty if they match or the flag is not set. `checkpoint`: a checkpoint of `run`. Compares hashes, or paths if
// the run recorded no hash or the weights no longer exist. Collective. All ranks return the same value.
std::string problem_of_initial_weights(const RunSetup& setup, const io::RunRecord& run,
                                       const std::filesystem::path& checkpoint, WeightsCheck check, ProcessGroup& group,
                                       std::vector<std::string>& warnings);

// Returns `parts` with the frozen base weights of a LoRA run marked as stored by reference to --init_from. Requires
// setup.run.
std::vector<UnitSpec> saved_units(const RunSetup& setup, std::vector<UnitSpec> parts);

// Returns this rank's part of a checkpoint, one element per unit. With stage 0, rank 0 writes all states.
std::vector<io::UnitShard> checkpoint_shards(const RunConfig& config, const std::vector<UnitSpec>& units,
                                             const parallel::ZeroEngine& engine, int rank);

// Returns the save job for a checkpoint at `position`. `units` must outlive the result.
io::SaveJob checkpoint_job(const RunSetup& setup, const RunPosition& position, const std::vector<UnitSpec>& units,
                           const parallel::ZeroEngine& engine, int rank);

// Returns the tag of a step's checkpoint: "<model_type>-<step>steps".
std::string checkpoint_tag(const RunConfig& config, int64_t step);

}  // namespace mpzero
