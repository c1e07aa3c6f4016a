#pragma once

#include "app/flags/settings.hpp"
#include "io/data/token_dataset.hpp"
#include "model/architecture/config.hpp"

namespace mpzero {

// Throws UserError unless a model with an encoder has a source length, and another model none; also for what a run with
// an encoder does not support. `settings`: of the flags and ds_config.json.
void check_encoder(const Settings& settings, const model::ModelConfig& model);

// Throws UserError unless a model with an encoder has a file of pairs that fits it, and another model none.
void check_pairs(const io::TokenDataset& data, const Settings& settings, const model::ModelConfig& model);

}  // namespace mpzero
