#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/decoder.hpp"

namespace mpzero {

// The order in which one validation batch, or a full step of micro-batches, uses the units.
std::vector<size_t> order_of_validation(const model::Decoder& decoder);
std::vector<size_t> order_of_training(const model::Decoder& decoder, int64_t micro_batches);

}  // namespace mpzero
