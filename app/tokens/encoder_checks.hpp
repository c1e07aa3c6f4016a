#pragma once

#include "app/flags/settings.hpp"
#include "io/data/token_dataset.hpp"
#include "model/architecture/config.hpp"

namespace mpzero {

// Throws UserError if --source_length is missing for a model with an encoder or set for a decoder-only model, or if a
// setting is not supported with an encoder. `settings`: merged flags and ds_config.json.
void check_encoder(const Settings& settings, const model::ModelConfig& model);

// Throws UserError if the token file for a model with an encoder has no pairs, or pairs with a different source length
// or padding, or if the token file for a decoder-only model has pairs.
void check_pairs(const io::TokenDataset& data, const Settings& settings, const model::ModelConfig& model);

}  // namespace mpzero
