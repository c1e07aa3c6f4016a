#include "app/plan/unit_times.hpp"

#include "app/plan/calibration.hpp"

namespace mpzero::plan {

UnitTimes unit_times(const Calibration& rates, const model::ModelConfig& model, int64_t micro_batch,
                     int64_t seq_length, bool bf16) {
  const double tokens = static_cast<double>(micro_batch * seq_length);
  const double item = bf16 ? 2 : 4;
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto inner = static_cast<double>(model.intermediate_size);
  const auto qkv = static_cast<double>(model.query_size() + 2 * model.key_value_size());
  const double weights = hidden * (qkv + static_cast<double>(model.query_size()) + 3 * inner);
  const double attention = 2 * tokens * static_cast<double>(seq_length) * static_cast<double>(model.query_size());
  const double moved = tokens * item * (8 * hidden + 2 * qkv + 3 * inner);
  const double logits = tokens * static_cast<double>(model.vocab_size);
  UnitTimes times;
  times.embedding_forward.elementwise = 2 * tokens * hidden * item / rates.memory_bytes;
  times.embedding_backward.elementwise = 6 * tokens * hidden * item / rates.memory_bytes;
  times.layer_forward = {.matmuls = 2 * tokens * weights / rates.product_flops,
                         .attention = attention / rates.attention_forward_flops,
                         .elementwise = moved / rates.memory_bytes,
                         .launch_bound = 8.8e-5};
  Seconds backward{.matmuls = 4 * tokens * weights / rates.product_flops,
                   .attention = 2.5 * attention / rates.attention_backward_flops,
                   .elementwise = 2 * moved / rates.memory_bytes,
                   .launch_bound = 1.8e-4};
  times.backward(model::Recompute::kNone) = backward;
  Seconds selective = backward;
  selective.elementwise += moved / rates.memory_bytes / 2;
  times.backward(model::Recompute::kSelective) = selective;
  backward += times.layer_forward;
  times.backward(model::Recompute::kFull) = backward;
  times.head = {.matmuls = 6 * logits * hidden / rates.product_flops,
                .elementwise = 3 * item * logits / rates.memory_bytes,
                .launch_bound = 2e-4};
  times.head_forward = {.matmuls = 2 * logits * hidden / rates.product_flops,
                        .elementwise = item * logits / rates.memory_bytes,
                        .launch_bound = 1e-4};
  return times;
}

double adamw_seconds(const Calibration& rates, int64_t parameters) {
  return 30.0 * static_cast<double>(parameters) / rates.memory_bytes;
}
double host_adamw_seconds(const Calibration& rates, int64_t parameters) {
  return static_cast<double>(parameters) / rates.host_parameters;
}
double pcie_seconds(const Calibration& rates, int64_t bytes) { return static_cast<double>(bytes) / rates.pcie_bytes; }
double memory_seconds(const Calibration& rates, int64_t bytes) {
  return static_cast<double>(bytes) / rates.memory_bytes;
}

}  // namespace mpzero::plan
