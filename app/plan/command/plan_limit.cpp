#include "app/plan/command/plan_limit.hpp"

#include <algorithm>

namespace mpzero::plan {
namespace {

CommandLine with_value(CommandLine line, PlanLimit limit, int64_t value) {
  if (limit == PlanLimit::kLayers) {
    line.model_overrides.num_hidden_layers = value;
    return line;
  }
  line.seq_length = value;
  line.model_overrides.max_position_embeddings = value;
  return line;
}

}  // namespace

LargestFit largest_fit(PlanLimit limit, const CommandLine& line, int64_t granularity, int64_t max_value,
                       const MemoryProblem& problem) {
  LargestFit fit;
  const auto fits = [&](int64_t count) {
    const std::string found = problem(with_value(line, limit, count * granularity));
    if (!found.empty()) fit.problem = found;
    return found.empty();
  };
  const int64_t max_count = std::max<int64_t>(1, max_value / granularity);
  // Invariant: `low` fits or is the smallest value, and `high` does not fit or exceeds the maximum.
  int64_t low = 1, high = 2;
  if (fits(low)) {
    while (high <= max_count && fits(high)) {
      low = high;
      high *= 2;
    }
    high = std::min(high, max_count + 1);
    while (low + 1 < high) {
      const int64_t middle = low + (high - low) / 2;
      (fits(middle) ? low : high) = middle;
    }
  }
  fit.value = low * granularity;
  fit.line = with_value(line, limit, fit.value);
  return fit;
}

}  // namespace mpzero::plan
