#include "app/simulation/simulated_host_updater.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace mpzero::plan {

SimulatedHostUpdater::SimulatedHostUpdater(const std::vector<parallel::OptimizerShard*>& shards, const Options& options,
                                           std::function<double(int64_t)> seconds)
    : options_(options),
      seconds_(std::move(seconds)),
      device_(SimulatedDevice::current()),
      down_(device_.new_stream()),
      up_(device_.new_stream()) {
  for (const parallel::OptimizerShard* shard : shards) {
    units_.push_back({.numel = shard != nullptr ? shard->numel() : 0});
  }
}

void SimulatedHostUpdater::expect(const parallel::AdamWUpdate&) { expects_ = true; }

void SimulatedHostUpdater::take_gradient(size_t unit, const at::Tensor& gradient, const at::Tensor& parameter) {
  wait(unit);
  Unit& state = units_[unit];
  state.gradient_bytes = static_cast<int64_t>(gradient.element_size());
  state.parameter_bytes = parameter.is_cpu() ? 0 : static_cast<int64_t>(parameter.element_size());
  state.released = device_.clock(device_.current_stream());
  if (options_.memory.keeps_gradients) {
    device_.wait_until(down_, state.released);
    state.copied = copy_down(state, state.numel, device_.stream_clock(down_));
  }
  if (expects_) arrived_.push_back({unit, device_.host_now()});
}

void SimulatedHostUpdater::wait_for_copy(size_t unit) {
  device_.wait_until(device_.current_stream(), units_[unit].copied);
}

double SimulatedHostUpdater::copy_down(const Unit& unit, int64_t count, double ready) {
  const double copy = device_.costs().down(count * unit.gradient_bytes);
  const double arrived = device_.down().use(std::max(ready, device_.stream_clock(down_)), copy);
  device_.wait_until(down_, arrived);
  device_.record(Work::kDown, "gradients to host", arrived - copy, arrived);
  return arrived;
}

double SimulatedHostUpdater::earliest_begin(double given) const {
  const double buffer = static_cast<int64_t>(in_flight_.size()) < options_.memory.pieces ? 0 : in_flight_.front();
  return std::max({issued_, given, buffer});
}

void SimulatedHostUpdater::run(size_t unit, double given, bool updates_states) {
  Unit& state = units_[unit];
  const bool copies_pieces = updates_states && !options_.memory.keeps_gradients;
  if (copies_pieces) device_.wait_until(down_, state.released);
  device_.wait_until(up_, state.released);
  for (int64_t begin = 0; begin < state.numel; begin += options_.memory.piece_numel) {
    const int64_t count = std::min(options_.memory.piece_numel, state.numel - begin);
    issued_ = earliest_begin(given);
    if (static_cast<int64_t>(in_flight_.size()) == options_.memory.pieces) in_flight_.pop_front();
    double arrived = issued_;
    if (copies_pieces) arrived = copy_down(state, count, issued_);
    if (updates_states && options_.memory.keeps_gradients) arrived = std::max(issued_, state.copied);
    const double work = seconds_(count);
    cores_free_ = std::max(cores_free_, arrived) + work;
    device_.record(Work::kHostOptimizer, "AdamW on the host", cores_free_ - work, cores_free_);
    double back = cores_free_;
    if (state.parameter_bytes > 0) {
      const double copy = device_.costs().up(count * state.parameter_bytes);
      back = device_.up().use(std::max(cores_free_, device_.stream_clock(up_)), copy);
      device_.wait_until(up_, back);
      device_.record(Work::kUp, "parameters to device", back - copy, back);
    }
    in_flight_.push_back(back);
  }
  state.done = cores_free_;
  state.uploaded = device_.stream_clock(up_);
}

void SimulatedHostUpdater::finish(const parallel::AdamWUpdate&) {
  const double now = device_.host_now();
  std::map<int64_t, int64_t> spares = options_.memory.spares;
  std::vector<bool> updated(units_.size(), false);
  ahead_ = 0;
  // Units whose update began before the norm was known.
  for (const Arrived& unit : arrived_) {
    int64_t& spare = spares[units_[unit.unit].numel];
    if (spare == 0) continue;
    if (earliest_begin(unit.at) >= now) break;
    --spare;
    ++ahead_;
    run(unit.unit, unit.at, /*updates_states=*/true);
    updated[unit.unit] = true;
  }
  arrived_.clear();
  expects_ = false;
  for (size_t u = 0; u < units_.size(); ++u) {
    if (units_[u].numel > 0 && !updated[u]) run(u, now, /*updates_states=*/true);
  }
}

void SimulatedHostUpdater::discard() { throw_failure("a simulated norm is not finite"); }

void SimulatedHostUpdater::publish(size_t unit, const at::Tensor& parameter) {
  wait(unit);
  units_[unit].parameter_bytes = parameter.is_cpu() ? 0 : static_cast<int64_t>(parameter.element_size());
  units_[unit].released = device_.clock(device_.current_stream());
  run(unit, device_.host_now(), /*updates_states=*/false);
}

bool SimulatedHostUpdater::ready(size_t unit) { return units_[unit].done <= device_.host_now(); }

void SimulatedHostUpdater::wait_for_states(size_t unit) { device_.host_waits_until(units_[unit].done); }

void SimulatedHostUpdater::wait(size_t unit) {
  wait_for_states(unit);
  device_.wait_until(device_.current_stream(), units_[unit].uploaded);
}

void SimulatedHostUpdater::wait_for_all() {
  for (size_t unit = 0; unit < units_.size(); ++unit) wait(unit);
}

parallel::StateHold SimulatedHostUpdater::hold(size_t) {
  throw_failure("simulated optimizer states do not support hold()");
}

parallel::MemoryUse SimulatedHostUpdater::memory_use() const {
  parallel::MemoryUse use{.host_staging = options_.memory.staging_bytes(),
                          .host_spares = options_.memory.spare_bytes()};
  if (!options_.memory.keeps_gradients) return use;
  for (const Unit& unit : units_) {
    use.host_gradients += unit.numel * static_cast<int64_t>(c10::elementSize(options_.gradient_dtype));
  }
  return use;
}

}  // namespace mpzero::plan
