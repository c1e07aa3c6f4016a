#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/config/run_config.hpp"
#include "model/architecture/config.hpp"

namespace mpzero {

// Throws UserError if a product of sizes exceeds its limit: tokens per micro-batch (estimates simulate each tile),
// tokens per step (metrics must count them exactly), or micro-batches per step (each is planned in advance). `where`:
// source of the values, a file or the command line, for the message.
void check_sizes(const RunConfig& config, const model::ModelConfig& model, const std::string& where);

// Throws UserError if seq_length exceeds the model's max_position_embeddings or sliding window.
void check_seq_length(const RunConfig& config, const model::ModelConfig& model);

// Throws UserError if fp8.filter_fqns contains an unknown matmul. Warns if all matmuls are excluded, or if a matmul has
// sizes for which GPUs do not support FP8. `where`: see check_sizes().
void check_fp8_products(const RunConfig& config, const model::ModelConfig& model, const std::string& where,
                        std::vector<std::string>& warnings);

// Throws UserError if the model does not support the level of --recompute.
void check_recompute(const RunConfig& config, const model::ModelConfig& model);

// Throws UserError if sequence_parallel_size does not divide the number of ranks and the number of heads, or if the
// model does not support sequence parallelism. `where`: path of ds_config.json.
void check_sequence_ranks(int64_t size, const std::string& where, int world_size, const model::ModelConfig& model);
// Throws UserError if sequence_parallel_size does not divide seq_length, or if adapters use dropout. Must be called
// after the model is validated.
void check_split_sequences(const RunConfig& config, const std::string& where, const model::ModelConfig& model);

// Returns the data loader's host memory in bytes, for micro-batches that are prefetched or in use.
double loader_bytes(const RunConfig& config);

}  // namespace mpzero
