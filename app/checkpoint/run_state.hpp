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

// Fills the engine with the weights and adapters of --init_from, or with random ones. Records the hashes of the former
// (io/weights/initial_weights.hpp) in setup.run. Adds to `warnings` what should be known of the folder. Collective.
void initialize_run(RunSetup& setup, parallel::ZeroEngine& engine, ProcessGroup& group,
                    std::vector<std::string>& warnings);

// Throws UserError unless `folder` holds a tensor for each parameter, with its shape, and no others. Reads headers, and
// the beginning of a head that should be tied.
void check_initial_weights(const std::string& folder, const std::vector<UnitSpec>& units,
                           std::vector<std::string>& warnings);

// When the weights of --init_from are read to compare them: always, or only where their path is another one, since a
// preview trusts a path that has not changed.
enum class WeightsCheck : uint8_t { kContent, kContentOfOtherPath };

// A sentence where --init_from names other weights or adapters than those that `run`, which saved `checkpoint`, began
// with, the same on all ranks: by their hash, for which they are read, or by their path where the run has recorded none
// or they are gone. Empty where they are the same, or the flag is not given. Collective.
std::string problem_of_initial_weights(const RunSetup& setup, const io::RunRecord& run,
                                       const std::filesystem::path& checkpoint, WeightsCheck check, ProcessGroup& group,
                                       std::vector<std::string>& warnings);

// The engine's parts as checkpoints have them: those of a base that the run began with are referred to. Of a setup that
// knows its run.
std::vector<UnitSpec> saved_units(const RunSetup& setup, std::vector<UnitSpec> parts);

// What this rank writes of a checkpoint, unit by unit. Unsharded states are the same on every rank; rank 0 writes them.
std::vector<io::UnitShard> checkpoint_shards(const RunConfig& config, const std::vector<UnitSpec>& units,
                                             const parallel::ZeroEngine& engine, int rank);

// The checkpoint of this position. `units` outlive it.
io::SaveJob checkpoint_job(const RunSetup& setup, const RunPosition& position, const std::vector<UnitSpec>& units,
                           const parallel::ZeroEngine& engine, int rank);

// The tag of step `step`: "<model_type>-<step>steps".
std::string checkpoint_tag(const RunConfig& config, int64_t step);

}  // namespace mpzero
