#pragma once

#include <string>

#include "app/config/run_config.hpp"
#include "model/architecture/config.hpp"

namespace mpzero {

// Throws UserError naming the values and the limit if sizes that are valid alone exceed a limit together: tokens per
// micro-batch (kernels count them in 32 bits), tokens per step (exact numbers in the metrics), or micro-batches per
// step (planned ahead). `where`: their source, a file or the command line. RunMemory checks the memory.
void check_sizes(const RunConfig& config, const model::ModelConfig& model, const std::string& where);

// Throws UserError if sequences are longer than the model's positions or its sliding window.
void check_seq_length(const RunConfig& config, const model::ModelConfig& model);

// Lower bound of the activations of a micro-batch in bytes, with any recomputation: the inputs of all layers and the
// projections of one. A double, which does not overflow.
double least_activation_bytes(const RunConfig& config, const model::ModelConfig& model);

// Host memory of the data loader in bytes, for micro-batches that are prefetched or in use.
double loader_bytes(const RunConfig& config);

}  // namespace mpzero
