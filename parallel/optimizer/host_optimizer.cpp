#include "parallel/optimizer/host_optimizer.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "parallel/host/host_memory.hpp"

namespace mpzero::parallel {
namespace {

bool same(const AdamWUpdate& a, const AdamWUpdate& b) {
  return a.beta1 == b.beta1 && a.beta2 == b.beta2 && a.eps == b.eps && a.gradient_scale == b.gradient_scale &&
         a.decay == b.decay && a.step_size == b.step_size && a.inverse_sqrt_bias2 == b.inverse_sqrt_bias2 &&
         a.rounding_seed == b.rounding_seed;
}

}  // namespace

HostOptimizer::HostOptimizer(ThreadTeam& team, std::vector<OptimizerShard*> shards, const Options& options)
    : team_(team),
      options_(options),
      staged_(options.device.is_cuda()),
      keeps_gradients_(options.memory.keeps_gradients),
      units_(shards.size()) {
  for (size_t u = 0; u < shards.size(); ++u) units_[u].shard = shards[u];
  const HostMemoryPlan& plan = options.memory;
  if (keeps_gradients_) {
    std::vector<int64_t> lengths;
    for (const OptimizerShard* shard : shards) lengths.push_back(shard != nullptr ? shard->numel() : 0);
    const std::vector<at::Tensor> copies = host_tensors(lengths, options.gradient_dtype, options.pinned, &team);
    for (size_t u = 0; u < shards.size(); ++u) units_[u].gradient = copies[u];
  }
  for (int64_t i = 0; i < plan.pieces; ++i) {
    auto slot = std::make_unique<Slot>();
    if (!keeps_gradients_) {
      slot->gradient = host_tensor(plan.piece_numel, options.gradient_dtype, options.pinned, &team);
    }
    slot->parameter = host_tensor(plan.piece_numel, options.parameter_dtype, options.pinned, &team);
    slots_.push_back(std::move(slot));
  }
  for (const auto& [length, count] : plan.spares) {
    for (int64_t i = 0; i < count; ++i) spares_.add(make_host_states(length, plan.moment_dtype, &team));
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
  TORCH_CHECK(!state.taken, "the gradient of unit ", unit, " was passed twice in one step");
  state.taken = true;
  state.parameter = parameter;
  if (staged_) state.released.record(c10::cuda::getCurrentCUDAStream());
  if (keeps_gradients_) {
    copy_gradient(state, gradient);
  } else {
    state.gradient = gradient;
  }
  {
    const std::lock_guard lock(mutex_);
    if (!expected_) return;
    arrived_.push_back(unit);
  }
  changed_.notify_all();
}

void HostOptimizer::copy_gradient(Unit& unit, const at::Tensor& gradient) {
  if (!staged_) {
    unit.gradient.copy_(gradient);
    return;
  }
  unit.released.block(*down_);
  C10_CUDA_CHECK(cudaMemcpyAsync(unit.gradient.data_ptr(), gradient.const_data_ptr(), gradient.nbytes(),
                                 cudaMemcpyDeviceToHost, *down_));
  unit.copied.record(*down_);
}

void HostOptimizer::wait_for_copy(size_t unit) {
  if (staged_) units_[unit].copied.block(c10::cuda::getCurrentCUDAStream());
}

void HostOptimizer::order(size_t unit, Kind kind, const AdamWUpdate& update) {
  ++units_[unit].ordered;
  auto job = std::make_shared<Job>();
  job->unit = unit;
  job->kind = kind;
  job->update = update;
  jobs_.push_back(std::move(job));
}

void HostOptimizer::give_spare_back(Unit& unit) {
  spares_.add(std::exchange(unit.next, {}));
  unit.ahead = Ahead::kNone;
}

void HostOptimizer::finish(const AdamWUpdate& update) {
  {
    const std::lock_guard lock(mutex_);
    throw_if_failed();
    expected_.reset();
    arrived_.clear();
    for (size_t u = 0; u < units_.size(); ++u) {
      Unit& unit = units_[u];
      if (unit.shard == nullptr) continue;
      unit.taken = false;
      const bool is_ahead = unit.ahead == Ahead::kRunning || unit.ahead == Ahead::kComputed;
      const bool right = is_ahead && same(unit.next_update, update);
      if (right && unit.ahead == Ahead::kRunning) {
        ++unit.ordered;
        unit.ahead = Ahead::kConfirmed;
        continue;
      }
      if (right) std::swap(unit.shard->states(), unit.next);
      if (unit.ahead == Ahead::kComputed) give_spare_back(unit);
      if (unit.ahead == Ahead::kRunning) unit.ahead = Ahead::kDropped;
      if (!right) order(u, Kind::kUpdate, update);
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
      unit.taken = false;
      if (unit.ahead != Ahead::kRunning && unit.ahead != Ahead::kComputed) continue;
      if (unit.ahead == Ahead::kComputed) {
        give_spare_back(unit);
      } else {
        unit.ahead = Ahead::kDropped;
      }
      // The parameters have been overwritten, so write them again.
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

template <typename Condition>
std::unique_lock<std::mutex> HostOptimizer::lock_when(const Condition& condition) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || condition(); });
  throw_if_failed();
  return lock;
}

bool HostOptimizer::ready(size_t unit) {
  const std::lock_guard lock(mutex_);
  return failure_ || is_done(unit);
}

void HostOptimizer::wait_for_states(size_t unit) {
  lock_when([&] { return is_done(unit); });
}

void HostOptimizer::wait(size_t unit) {
  wait_for_states(unit);
  Unit& state = units_[unit];
  if (staged_ && state.uploaded.isCreated()) state.uploaded.block(c10::cuda::getCurrentCUDAStream());
}

void HostOptimizer::wait_for_all() {
  for (size_t unit = 0; unit < units_.size(); ++unit) wait(unit);
}

StateHold HostOptimizer::hold(size_t unit) {
  const std::unique_lock lock = lock_when([&] { return is_done(unit); });
  return {holds_, units_[unit].shard->states()};
}

void HostOptimizer::add_spares_for_holds() {
  std::vector<int64_t> lengths;
  {
    const std::lock_guard lock(mutex_);
    for (const Unit& unit : units_) {
      if (unit.shard != nullptr) lengths.push_back(unit.shard->numel());
    }
  }
  for (const int64_t length : lengths) {
    OptimizerStates spare = make_host_states(length, options_.memory.moment_dtype, nullptr);
    const std::lock_guard lock(mutex_);
    spares_.add(std::move(spare));
  }
  changed_.notify_all();
}

void HostOptimizer::wait_for_holds(size_t unit) {
  lock_when([&] { return !holds_->is_held(units_[unit].shard->states()); });
}

void HostOptimizer::release(size_t unit) {
  wait(unit);
  wait_for_holds(unit);
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(units_[unit].ahead == Ahead::kNone, "unit ", unit, " must not be released in the middle of a step");
  const int64_t length = units_[unit].shard->numel();
  units_[unit].shard = nullptr;
  const auto left = std::count_if(units_.begin(), units_.end(), [&](const Unit& other) {
    return other.shard != nullptr && other.shard->numel() == length;
  });
  options_.memory.spares[length] = spares_.shrink(length, left);
  units_[unit].gradient = units_[unit].parameter = at::Tensor();
}

HostOptimizer::Ahead HostOptimizer::ahead(size_t unit) const {
  const std::lock_guard lock(mutex_);
  return units_[unit].ahead;
}

MemoryUse HostOptimizer::memory_use() const {
  MemoryUse use{.host_staging = options_.memory.staging_bytes(), .host_spares = options_.memory.spare_bytes()};
  if (!keeps_gradients_) return use;
  for (const Unit& unit : units_) {
    if (unit.gradient.defined()) use.host_gradients += static_cast<int64_t>(unit.gradient.nbytes());
  }
  return use;
}

}  // namespace mpzero::parallel
