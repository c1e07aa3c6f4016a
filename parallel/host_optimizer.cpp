#include "parallel/host_optimizer.hpp"

#include <algorithm>
#include <utility>

#include "parallel/host_memory.hpp"

namespace mpzero::parallel {
namespace {

bool same(const AdamWUpdate& a, const AdamWUpdate& b) {
  return a.beta1 == b.beta1 && a.beta2 == b.beta2 && a.eps == b.eps && a.gradient_scale == b.gradient_scale &&
         a.decay == b.decay && a.step_size == b.step_size && a.inverse_sqrt_bias2 == b.inverse_sqrt_bias2;
}

}  // namespace

HostOptimizer::HostOptimizer(ThreadTeam& team, std::vector<OptimizerShard*> shards, const Options& options)
    : team_(team), options_(options), staged_(options.device.is_cuda()), units_(shards.size()) {
  for (size_t u = 0; u < shards.size(); ++u) units_[u].shard = shards[u];
  const HostMemoryPlan& plan = options.memory;
  for (int64_t i = 0; i < plan.pieces; ++i) {
    auto slot = std::make_unique<Slot>();
    slot->gradient = host_tensor(plan.piece_numel, options.gradient_dtype, options.pinned, &team);
    slot->parameter = host_tensor(plan.piece_numel, options.parameter_dtype, options.pinned, &team);
    slots_.push_back(std::move(slot));
  }
  for (const auto& [length, count] : plan.spares) {
    for (int64_t i = 0; i < count; ++i) spares_.add(make_host_states(length, &team));
  }
  if (staged_) {
    down_ = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, options.device.index());
    up_ = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, options.device.index());
  }
  thread_ = std::thread([this] { run(); });
}

HostOptimizer::~HostOptimizer() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HostOptimizer::throw_if_failed() const {
  if (failure_) std::rethrow_exception(failure_);
}

void HostOptimizer::expect(const AdamWUpdate& update) {
  const std::lock_guard lock(mutex_);
  expected_ = update;
}

void HostOptimizer::take_gradient(size_t unit, const at::Tensor& gradient, const at::Tensor& parameter) {
  wait(unit);
  Unit& state = units_[unit];
  state.gradient = gradient;
  state.parameter = parameter;
  if (staged_) state.released.record(c10::cuda::getCurrentCUDAStream());
  {
    const std::lock_guard lock(mutex_);
    if (!expected_) return;
    arrived_.push_back(unit);
  }
  changed_.notify_all();
}

void HostOptimizer::order(size_t unit, Kind kind, const AdamWUpdate& update) {
  ++units_[unit].ordered;
  auto job = std::make_shared<Job>();
  job->unit = unit;
  job->kind = kind;
  job->update = update;
  jobs_.push_back(std::move(job));
}

void HostOptimizer::order_update(size_t unit, const AdamWUpdate& update) {
  Unit& state = units_[unit];
  if (is_held(state.shard->states())) {
    if (std::optional<OptimizerStates> spare = spares_.take(state.shard->numel())) {
      state.next = *std::move(spare);
      state.ahead = Ahead::kConfirmed;
      order(unit, Kind::kUpdateAhead, update);
      return;
    }
  }
  order(unit, Kind::kUpdate, update);
}

void HostOptimizer::keep_held_states() {
  std::vector<int64_t> lengths;
  {
    const std::lock_guard lock(mutex_);
    for (const Unit& unit : units_) {
      if (unit.shard != nullptr) lengths.push_back(unit.shard->numel());
    }
  }
  for (const int64_t length : lengths) {
    OptimizerStates spare = make_host_states(length, nullptr);
    const std::lock_guard lock(mutex_);
    spares_.add(std::move(spare));
  }
}

void HostOptimizer::finish(const AdamWUpdate& update) {
  {
    const std::lock_guard lock(mutex_);
    throw_if_failed();
    const bool right = expected_ && same(*expected_, update);
    expected_.reset();
    arrived_.clear();
    for (size_t u = 0; u < units_.size(); ++u) {
      Unit& unit = units_[u];
      if (unit.shard == nullptr) continue;
      if (right && unit.ahead == Ahead::kRunning) {
        ++unit.ordered;
        unit.ahead = Ahead::kConfirmed;
      } else if (right && unit.ahead == Ahead::kComputed) {
        std::swap(unit.shard->states(), unit.next);
        spares_.add(std::exchange(unit.next, {}));
        unit.ahead = Ahead::kNone;
      } else {
        if (unit.ahead == Ahead::kRunning) unit.ahead = Ahead::kDropped;
        if (unit.ahead == Ahead::kComputed) {
          spares_.add(std::exchange(unit.next, {}));
          unit.ahead = Ahead::kNone;
        }
        order_update(u, update);
      }
    }
  }
  changed_.notify_all();
}

void HostOptimizer::discard() {
  {
    const std::lock_guard lock(mutex_);
    throw_if_failed();
    expected_.reset();
    arrived_.clear();
    for (size_t u = 0; u < units_.size(); ++u) {
      Unit& unit = units_[u];
      // What the last step has confirmed is no part of this one.
      if (unit.ahead == Ahead::kNone || unit.ahead == Ahead::kConfirmed) continue;
      if (unit.ahead == Ahead::kComputed) {
        spares_.add(std::exchange(unit.next, {}));
        unit.ahead = Ahead::kNone;
      } else {
        unit.ahead = Ahead::kDropped;
      }
      // The parameters have been overwritten.
      order(u, Kind::kPublish, {});
    }
  }
  changed_.notify_all();
  wait_for_all();
}

void HostOptimizer::publish(size_t unit, const at::Tensor& parameter) {
  wait(unit);
  units_[unit].parameter = parameter;
  if (staged_) units_[unit].released.record(c10::cuda::getCurrentCUDAStream());
  {
    const std::lock_guard lock(mutex_);
    order(unit, Kind::kPublish, {});
  }
  changed_.notify_all();
}

bool HostOptimizer::ready(size_t unit) {
  const std::lock_guard lock(mutex_);
  return failure_ || units_[unit].done == units_[unit].ordered;
}

void HostOptimizer::wait_for_states(size_t unit) {
  const Unit& state = units_[unit];
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || state.done == state.ordered; });
  throw_if_failed();
}

void HostOptimizer::wait(size_t unit) {
  wait_for_states(unit);
  Unit& state = units_[unit];
  if (staged_ && state.uploaded.isCreated()) state.uploaded.block(c10::cuda::getCurrentCUDAStream());
}

void HostOptimizer::wait_for_all() {
  for (size_t unit = 0; unit < units_.size(); ++unit) wait(unit);
}

void HostOptimizer::let_go(size_t unit) {
  wait(unit);
  const std::lock_guard lock(mutex_);
  const int64_t length = units_[unit].shard->numel();
  units_[unit].shard = nullptr;
  const auto left = std::count_if(units_.begin(), units_.end(), [&](const Unit& other) {
    return other.shard != nullptr && other.shard->numel() == length;
  });
  options_.memory.spares[length] = spares_.shrink(length, left);
  units_[unit].gradient = units_[unit].parameter = at::Tensor();
}

MemoryUse HostOptimizer::memory_use() const {
  return {.host_staging = options_.memory.staging_bytes(), .host_spares = options_.memory.spare_bytes()};
}

}  // namespace mpzero::parallel
