#include "app/memory/state_placement.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "app/memory/memory_limit.hpp"
#include "app/memory/memory_plan.hpp"

namespace mpzero {

std::vector<model::Recompute> StatePlacement::plan() {
  std::vector<model::Recompute> recompute = memory_.plan(engine_.memory_use(), group_);
  // With an automatic ratio, optimizer states make better use of GPU memory than parameters.
  if (!leaves_ratio_open()) use_for_parameters(memory_.spare());
  return recompute;
}

void StatePlacement::use_for_parameters(int64_t bytes) {
  if (device_.is_cpu()) return;
  bytes -= engine_.parameters().move_to_device(bytes);
  if (config_.zero.gather_limits_automatic) engine_.parameters().use_memory(bytes);
  memory_.states_have_grown(engine_.memory_use());
}

bool StatePlacement::leaves_ratio_open() const { return config_.zero.offload_ratio_automatic && device_.is_cuda(); }

std::pair<double, std::string> StatePlacement::choose_ratio() {
  const int64_t spare = memory_.measured_spare(group_);
  const bool released = engine_.memory_use().host_gradients > 0;
  // A unit that moves to the GPU keeps its gradient there.
  const double ratio = smallest_host_ratio(engine_.memory_use(), released ? 0 : spare);
  const int64_t before = engine_.memory_use().optimizer_states;
  engine_.set_host_ratio(ratio);
  const int64_t taken = engine_.memory_use().optimizer_states - before;
  memory_.states_have_moved(engine_.memory_use());
  use_for_parameters(std::max<int64_t>(0, spare - taken));
  return {ratio, fmt::format("offload_optimizer.ratio auto: the host updates {:.4f} of the parameters, and each GPU "
                             "keeps {} of optimizer states{}; set \"ratio\": {:.4f} to reproduce this placement",
                             ratio, gibibytes(taken), released ? ", because gradients are released" : "", ratio)};
}

}  // namespace mpzero
