#include "app/memory/unit_order.hpp"

namespace mpzero {

std::vector<size_t> order_of_validation(const model::Decoder& decoder) {
  std::vector<size_t> order;
  for (size_t unit = decoder.embedding_unit(); unit <= decoder.head_unit(); ++unit) order.push_back(unit);
  if (decoder.tied_head()) order.push_back(decoder.embedding_unit());
  return order;
}

std::vector<size_t> order_of_training(const model::Decoder& decoder, int64_t micro_batches) {
  std::vector<size_t> order;
  const std::vector<size_t> forward = order_of_validation(decoder);
  for (int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    order.insert(order.end(), forward.begin(), forward.end());
    for (int64_t layer = decoder.config().num_hidden_layers; layer-- > 0;) order.push_back(decoder.layer_unit(layer));
  }
  return order;
}

}  // namespace mpzero
