#pragma once

#include <string>

#include "app/config/run_config.hpp"
#include "model/architecture/config.hpp"

namespace mpzero {

// Refuses sizes of which each is a number but which no run can have together, before anything is made of them: tokens
// of a micro-batch beyond what kernels count, tokens of a step beyond what the metrics' numbers hold, steps of more
// micro-batches than are planned ahead. Throws UserError that names the values and the limit; `where` is the file
// or the command line that they come from. What a run cannot have
// for want of memory is RunMemory's to say.
void check_sizes(const RunConfig& config, const model::ModelConfig& model, const std::string& where);

// Refuses sequences that are longer than the model's positions or its sliding window.
void check_seq_length(const RunConfig& config, const model::ModelConfig& model);

// Bytes that the activations of a micro-batch take at least, whatever is computed again: each layer keeps its input,
// and one layer at a time has its projections. A double, which no product overflows.
double least_activation_bytes(const RunConfig& config, const model::ModelConfig& model);

// Bytes of host memory that the data loader takes for micro-batches which are read ahead or in use.
double loader_bytes(const RunConfig& config);

}  // namespace mpzero
