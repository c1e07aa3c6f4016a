#include "app/train/validation.hpp"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"

namespace mpzero {

Validation::Validation(const RunConfig& config, const io::LoaderOptions& options,
                       std::shared_ptr<const SequenceExchange> ranks)
    : config_(config), ranks_(std::move(ranks)) {
  for (const ValidationFile& file : config.validation_data) {
    sets_.emplace_back(io::TokenDataset(file.path, config.seq_length, config.document_mask), options,
                       config.validation_sequences);
  }
}

std::optional<std::vector<ValidationLoss>> Validation::run(TrainingPass& pass, parallel::ZeroEngine& engine,
                                                           at::Device device,
                                                           const std::function<bool()>& stops) const {
  const auto size = static_cast<int64_t>(sets_.size());
  // [datasets, 2]: sum of the losses, sum of the weights.
  const at::Tensor sums = at::zeros({size, 2}, at::TensorOptions().dtype(at::kDouble).device(device));
  for (int64_t i = 0; i < size; ++i) {
    const io::ValidationSet& set = sets_[static_cast<size_t>(i)];
    const at::Tensor sum = sums[i][0];
    double weight = 0;
    for (int64_t b = 0; b < set.num_batches(); ++b) {
      if (stops()) return std::nullopt;
      const io::ValidationBatch batch = set.read(b);
      const at::Tensor loss = pass.validate(batch_on(device, batch.tokens, config_.seq_length, ranks_));
      const auto windows = static_cast<double>(batch.num_windows);
      sum.add_(loss, windows);
      weight += windows * batch.tokens.weight();
    }
    sums[i][1].fill_(weight);
  }
  engine.sum_over_ranks(sums);
  const at::Tensor totals = sums.cpu();
  std::vector<ValidationLoss> losses;
  for (size_t i = 0; i < sets_.size(); ++i) {
    const double* const total = totals.const_data_ptr<double>() + 2 * i;
    if (total[1] == 0) {
      throw UserError(fmt::format("--validation_data {}: the loss mask is 0 in all sequences used for validation; "
                                  "raise --validation_sequences or remove the set",
                                  config_.validation_data[i].name),
                      ErrorScope::kAllRanks);
    }
    losses.push_back({.set = config_.validation_data[i].name, .loss = total[0] / total[1]});
  }
  if (losses.size() > 1) {
    double sum = 0;
    for (const ValidationLoss& of_set : losses) sum += of_set.loss;
    losses.push_back({.set = "", .loss = sum / static_cast<double>(losses.size())});
  }
  return losses;
}

}  // namespace mpzero
