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

// The datasets of --validation_data. Together, the ranks read the same sequences of each for any number of ranks and
// micro-batch size, and each sequence counts equally in the mean.
class Validation {
 public:
  // Opens the files. Throws UserError like io::TokenDataset. `config` must outlive this object. `ranks`: see batch_on.
  Validation(const RunConfig& config, const io::LoaderOptions& options,
             std::shared_ptr<const SequenceExchange> ranks = nullptr);

  bool empty() const { return sets_.empty(); }
  // The mean loss of each set, summed in fp64, followed by the mean of these losses if there are several sets. Returns
  // nothing as soon as `stops`, called before each micro-batch, returns true. Collective; `stops` must return the same
  // on all ranks.
  std::optional<std::vector<ValidationLoss>> run(TrainingPass& pass, parallel::ZeroEngine& engine, at::Device device,
                                                 const std::function<bool()>& stops) const;

 private:
  const RunConfig& config_;
  std::shared_ptr<const SequenceExchange> ranks_;
  std::vector<io::ValidationSet> sets_;  // in the order of config_.validation_data
};

}  // namespace mpzero
