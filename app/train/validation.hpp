#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/config/run_config.hpp"
#include "app/log/step_log.hpp"
#include "app/train/step/training_pass.hpp"
#include "io/data/data_loader.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// The datasets of --validation_data. The validation sequences are independent of the number of ranks and the
// micro-batch size. All sequences of a dataset have equal weight in the mean loss.
class Validation {
 public:
  // Opens the files. See io::TokenDataset for errors. `config` must outlive this object. `ranks`: see batch_on().
  Validation(const RunConfig& config, const io::LoaderOptions& options,
             std::shared_ptr<const SequenceExchange> ranks = nullptr);

  bool empty() const { return sets_.empty(); }
  // Returns the mean loss of each dataset, accumulated in fp64. If there are several datasets, the last element is the
  // mean of their losses. Calls `stops` before each micro-batch and returns std::nullopt once `stops` returns true.
  // Collective; `stops` must return the same value on all ranks.
  std::optional<std::vector<ValidationLoss>> run(TrainingPass& pass, parallel::ZeroEngine& engine, at::Device device,
                                                 const std::function<bool()>& stops) const;

 private:
  const RunConfig& config_;
  std::shared_ptr<const SequenceExchange> ranks_;
  std::vector<io::ValidationSet> sets_;  // in the order of config_.validation_data
};

}  // namespace mpzero
