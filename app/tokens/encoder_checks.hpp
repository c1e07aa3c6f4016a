#pragma once

#include "app/flags/settings.hpp"
#include "io/data/token_dataset.hpp"
#include "model/architecture/config.hpp"

namespace mpzero {

// Throws UserError if a model with an encoder lacks --source_length, another model has it, or a run with an encoder
// uses unsupported settings. `settings`: flags and ds_config.json, merged.
void check_encoder(const Settings& settings, const model::ModelConfig& model);

// Throws UserError if a model with an encoder lacks a file of matching pairs, or another model has one.
void check_pairs(const io::TokenDataset& data, const Settings& settings, const model::ModelConfig& model);

}  // namespace mpzero
