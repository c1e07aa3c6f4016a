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

// Initializes the engine with the weights and adapters of --init_from, or with random ones. Records the hashes of the
// initial weights and adapters (io/weights/initial_weights.hpp) in setup.run. Adds warnings about the folder to
// `warnings`. Collective.
void initialize_run(RunSetup& setup, parallel::ZeroEngine& engine, ProcessGroup& group,
                    std::vector<std::string>& warnings);

// Throws UserError unless `folder` contains one tensor for each parameter, with its shape, and no others. Reads
// headers, and the beginning of a head that should be tied.
void check_initial_weights(const std::string& folder, const std::vector<UnitSpec>& units,
                           std::vector<std::string>& warnings);

// When the weights of --init_from are read for comparison: always, or only if their path has changed, since a preview
// trusts an unchanged path.
enum class WeightsCheck : uint8_t { kContent, kContentOfOtherPath };

// A sentence if --init_from names other weights or adapters than those that `run`, which saved `checkpoint`, began
// with; the same on all ranks. Reads the weights and compares hashes; compares paths if the run recorded no hash or the
// weights are gone. Empty if they match, or without the flag. Collective.
std::string problem_of_initial_weights(const RunSetup& setup, const io::RunRecord& run,
                                       const std::filesystem::path& checkpoint, WeightsCheck check, ProcessGroup& group,
                                       std::vector<std::string>& warnings);

// The engine's parts as checkpoints store them: as references for a base that the run began with. `setup.run` must be
// set.
std::vector<UnitSpec> saved_units(const RunSetup& setup, std::vector<UnitSpec> parts);

// This rank's part of a checkpoint, by unit. Unsharded states are the same on every rank; rank 0 writes them.
std::vector<io::UnitShard> checkpoint_shards(const RunConfig& config, const std::vector<UnitSpec>& units,
                                             const parallel::ZeroEngine& engine, int rank);

// The save of a checkpoint at this position. `units` must outlive it.
io::SaveJob checkpoint_job(const RunSetup& setup, const RunPosition& position, const std::vector<UnitSpec>& units,
                           const parallel::ZeroEngine& engine, int rank);

// The tag of step `step`: "<model_type>-<step>steps".
std::string checkpoint_tag(const RunConfig& config, int64_t step);

}  // namespace mpzero
