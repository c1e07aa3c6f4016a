#include "app/train/validation.hpp"

#include <ATen/ops/zeros.h>

namespace mpzero {

Validation::Validation(const RunConfig& config, const io::LoaderOptions& options) : config_(config) {
  for (const ValidationFile& file : config.validation_data) {
    sets_.emplace_back(io::TokenDataset(file.path, config.seq_length), options, config.validation_sequences);
  }
}

std::optional<std::vector<ValidationLoss>> Validation::run(TrainingPass& pass, parallel::ZeroEngine& engine,
                                                           at::Device device,
                                                           const std::function<bool()>& stops) const {
  const auto size = static_cast<int64_t>(sets_.size());
  const at::Tensor sums = at::zeros({size}, at::TensorOptions().dtype(at::kDouble).device(device));
  for (int64_t i = 0; i < size; ++i) {
    const io::ValidationSet& set = sets_[static_cast<size_t>(i)];
    const at::Tensor sum = sums.select(0, i);
    for (int64_t b = 0; b < set.num_batches(); ++b) {
      if (stops()) return std::nullopt;
      const io::ValidationBatch batch = set.read(b);
      const at::Tensor loss = pass.validate(tokens_on(device, batch.tokens.inputs, config_.seq_length),
                                            tokens_on(device, batch.tokens.targets, config_.seq_length));
      sum.add_(loss, static_cast<double>(batch.num_windows));
    }
  }
  engine.sum_over_ranks(sums);
  const at::Tensor totals = sums.cpu();
  std::vector<ValidationLoss> losses;
  for (size_t i = 0; i < sets_.size(); ++i) {
    const double total = totals.const_data_ptr<double>()[i];
    losses.push_back(
        {.set = config_.validation_data[i].name, .loss = total / static_cast<double>(sets_[i].num_windows())});
  }
  return losses;
}

}  // namespace mpzero
