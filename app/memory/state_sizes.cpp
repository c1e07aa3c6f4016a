#include "app/memory/state_sizes.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "parallel/zero/flat_unit.hpp"
#include "parallel/zero/gather_schedule.hpp"

namespace mpzero {
namespace {

using parallel::FlatLayout;
using parallel::MemoryUse;
using parallel::Placement;
using parallel::ZeroOptions;

// GradientStore's buffers of one length: what is at work and what is being summed.
constexpr int64_t kReductionBuffers = 4;

int64_t bytes_of(at::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); }

bool on_host(Placement placement, const ZeroOptions& options) {
  return placement == Placement::kHost && options.device.is_cuda();
}

MemoryUse parameter_sizes(const std::vector<FlatLayout>& layouts, const ZeroOptions& options,
                          const std::vector<size_t>& uses) {
  const bool host = on_host(options.parameter_placement, options);
  const bool transient = host || (options.stage == 3 && layouts.front().parts() > 1);
  std::vector<int64_t> lengths;
  MemoryUse use;
  for (const FlatLayout& layout : layouts) {
    lengths.push_back(layout.padded_numel());
    const int64_t kept = transient ? layout.part_numel() : layout.padded_numel();
    (host ? use.host_parameters : use.parameters) += kept * bytes_of(options.dtype);
  }
  if (!transient) return use;
  parallel::GatherSchedule schedule(lengths, options.gather_limits);
  schedule.plan(uses);
  for (const auto& [length, count] : schedule.most_at_once()) {
    use.units_in_flight += length * count * bytes_of(options.dtype);
  }
  return use;
}

MemoryUse gradient_sizes(const std::vector<FlatLayout>& layouts, const ZeroOptions& options, at::ScalarType kept_type,
                         int world_size) {
  const bool partitioned = options.stage >= 2 && world_size > 1;
  MemoryUse use;
  std::map<int64_t, int64_t> units;
  int64_t largest = 0;
  for (const FlatLayout& layout : layouts) {
    largest = std::max(largest, layout.padded_numel());
    use.gradients += (partitioned ? layout.part_numel() : layout.padded_numel()) * bytes_of(kept_type);
    ++units[layout.padded_numel()];
  }
  // Where NCCL sums by copy engines, which it does on GPUs that reach each other, the others' slices arrive beside.
  if (options.device.is_cuda() && layouts.front().parts() > 1) {
    use.units_in_flight += largest * bytes_of(options.communication_dtype);
  }
  if (!partitioned && (world_size == 1 || kept_type == options.communication_dtype)) return use;
  for (const auto& [length, count] : units) {
    const int64_t fit = std::max<int64_t>(1, options.reduce_bucket_size / length);
    use.units_in_flight +=
        length * std::min({count, fit + 1, kReductionBuffers}) * bytes_of(options.communication_dtype);
  }
  return use;
}

MemoryUse optimizer_sizes(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts,
                          const ZeroOptions& options, at::ScalarType gradient_type) {
  const bool offload = options.optimizer_placement == Placement::kHost;
  const std::vector<bool> on_host = parallel::units_on_host(units, offload ? options.optimizer_host_ratio : 0.0);
  MemoryUse use;
  for (size_t u = 0; u < units.size(); ++u) {
    const int64_t states = layouts[u].part_numel() * (bytes_of(at::kFloat) + 2 * bytes_of(options.moment_dtype));
    (on_host[u] && options.device.is_cuda() ? use.host_optimizer_states : use.optimizer_states) += states;
  }
  if (!offload || (!options.device.is_cuda() && options.host_update.threads == 0)) return use;
  const parallel::HostMemoryPlan host =
      host_memory_plan(options, host_memory_demand(options, layouts, on_host, gradient_type));
  use.host_staging = host.staging_bytes();
  use.host_spares = host.spare_bytes();
  return use;
}

}  // namespace

MemoryUse state_sizes(const std::vector<UnitSpec>& units, const ZeroOptions& options, int world_size,
                      const std::vector<size_t>& uses) {
  std::vector<FlatLayout> layouts;
  for (const UnitSpec& unit : units) layouts.emplace_back(unit.numel(), options.stage == 0 ? 1 : world_size);
  const at::ScalarType gradient_type =
      options.gradient_accumulation_steps > 1 ? options.accumulation_dtype : options.communication_dtype;
  MemoryUse use = parameter_sizes(layouts, options, uses);
  use += gradient_sizes(layouts, options, gradient_type, world_size);
  use += optimizer_sizes(units, layouts, options, gradient_type);
  return use;
}

int64_t device_bytes(const MemoryUse& use) {
  return use.parameters + use.gradients + use.optimizer_states + use.units_in_flight;
}

double smallest_host_ratio(const MemoryUse& use, int64_t device_bytes) {
  if (use.host_optimizer_states == 0) return 0;
  const double fits = static_cast<double>(device_bytes) / static_cast<double>(use.host_optimizer_states);
  constexpr double kDigits = 1e4;
  return std::clamp(std::ceil((1 - fits) * kDigits) / kDigits, 0.0, 1.0);
}

int64_t host_bytes(const MemoryUse& use) {
  return use.host_optimizer_states + use.host_parameters + use.host_staging + use.host_spares;
}

}  // namespace mpzero
