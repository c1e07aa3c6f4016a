// Pipeline of pieces: the part of HostOptimizer that runs in its own thread.

#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "parallel/optimizer/adamw_kernels.hpp"
#include "parallel/optimizer/host_optimizer.hpp"

namespace mpzero::parallel {
namespace {

// Number of pieces queued for the team, so that the team does not wait for the optimizer's thread.
constexpr size_t kPiecesOfTeam = 3;
// Maximum number of pieces in progress without buffers.
constexpr size_t kPiecesWithoutBuffers = 8;

const void* at_element(const at::Tensor& tensor, int64_t index) {
  return static_cast<const char*>(tensor.const_data_ptr()) + index * static_cast<int64_t>(tensor.element_size());
}
void* mutable_at_element(const at::Tensor& tensor, int64_t index) {
  return static_cast<char*>(tensor.data_ptr()) + index * static_cast<int64_t>(tensor.element_size());
}

}  // namespace

void HostOptimizer::run() {
  try {
    const c10::OptionalDeviceGuard guard(staged_ ? std::optional(options_.device) : std::nullopt);
    const size_t most = staged_ ? slots_.size() : kPiecesWithoutBuffers;
    while (true) {
      while (pieces_.size() < most && issue_piece()) {
      }
      if (!pieces_.empty()) {
        for (size_t i = 0; i < std::min(kPiecesOfTeam, pieces_.size()); ++i) start_update(pieces_[i]);
        complete_oldest();
        continue;
      }
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ending_ || can_begin(); });
      if (ending_) break;
    }
    // Buffers must outlive the copies from them.
    if (staged_) up_->synchronize();
  } catch (...) {
    // The team may still be working on its tasks.
    for (const Piece& piece : pieces_) {
      while (piece.task && !piece.task->done()) std::this_thread::yield();
    }
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
  }
  changed_.notify_all();
}

bool HostOptimizer::can_begin() const {
  if (jobs_.empty()) return expected_ && !arrived_.empty();
  const Job& job = *jobs_.front();
  const Unit& unit = units_[job.unit];
  // The pieces of this job and of the previous job would modify the same states.
  if (unit.under_way) return false;
  if (job.kind == Kind::kPublish || !holds_->is_held(unit.shard->states())) return true;
  return spares_.has(unit.shard->numel(), *holds_);
}

std::shared_ptr<HostOptimizer::Job> HostOptimizer::begin_ordered() {
  std::shared_ptr<Job> job = std::move(jobs_.front());
  jobs_.pop_front();
  Unit& unit = units_[job->unit];
  unit.under_way = true;
  if (job->kind == Kind::kUpdate && holds_->is_held(unit.shard->states())) {
    unit.next = spares_.take(unit.shard->numel(), *holds_).value();
    unit.ahead = Ahead::kConfirmed;
    job->into_spare = true;
  }
  return job;
}

std::shared_ptr<HostOptimizer::Job> HostOptimizer::begin_ahead() {
  while (!arrived_.empty()) {
    const size_t u = arrived_.front();
    arrived_.pop_front();
    Unit& unit = units_[u];
    if (unit.shard == nullptr) continue;
    std::optional<OptimizerStates> spare = spares_.take(unit.shard->numel(), *holds_);
    if (!spare) continue;
    unit.next = *std::move(spare);
    unit.next_update = *expected_;
    unit.ahead = Ahead::kRunning;
    unit.under_way = true;
    auto job = std::make_shared<Job>();
    job->unit = u;
    job->update = *expected_;
    job->into_spare = true;
    return job;
  }
  return nullptr;
}

std::shared_ptr<HostOptimizer::Job> HostOptimizer::next_job() {
  const std::lock_guard lock(mutex_);
  if (ending_ || !can_begin()) return nullptr;
  return jobs_.empty() ? begin_ahead() : begin_ordered();
}

bool HostOptimizer::is_dropped(const Job& job) {
  const std::lock_guard lock(mutex_);
  return ending_ || (job.into_spare && units_[job.unit].ahead == Ahead::kDropped);
}

bool HostOptimizer::issue_piece() {
  if (job_ && is_dropped(*job_)) close(std::exchange(job_, nullptr));
  if (!job_) job_ = next_job();
  if (!job_) return false;
  Job& job = *job_;
  Unit& unit = units_[job.unit];
  const int64_t numel = unit.shard->numel();
  Piece piece;
  piece.job = job_;
  piece.begin = job.issued;
  piece.count = std::min(options_.memory.piece_numel, numel - job.issued);
  if (staged_) {
    piece.slot = slots_[next_slot_].get();
    next_slot_ = (next_slot_ + 1) % slots_.size();
    if (piece.slot->uploaded.isCreated()) piece.slot->uploaded.synchronize();
    if (piece.begin == 0) unit.released.block(*up_);
    if (job.kind != Kind::kPublish && !keeps_gradients_) {
      if (piece.begin == 0) unit.released.block(*down_);
      C10_CUDA_CHECK(cudaMemcpyAsync(piece.slot->gradient.data_ptr(), at_element(unit.gradient, piece.begin),
                                     static_cast<size_t>(piece.count) * unit.gradient.element_size(),
                                     cudaMemcpyDeviceToHost, *down_));
      piece.slot->arrived.record(*down_);
    }
  }
  job.issued += piece.count;
  ++job.in_flight;
  pieces_.push_back(std::move(piece));
  if (job.issued == numel) {
    job.closed = true;
    job_.reset();
  }
  return true;
}

void HostOptimizer::start_update(Piece& piece) {
  if (piece.task) return;
  const Job& job = *piece.job;
  Unit& unit = units_[job.unit];
  const bool to_device = staged_ && unit.parameter.is_cuda();
  void* const parameter =
      to_device ? piece.slot->parameter.data_ptr() : mutable_at_element(unit.parameter, piece.begin);
  const bool parameter_is_bf16 = unit.parameter.scalar_type() == at::kBFloat16;
  const OptimizerStates& states = unit.shard->states();
  float* const master = states.master.data_ptr<float>() + piece.begin;
  const int64_t blocks = (piece.count + kHostBlock - 1) / kHostBlock;
  const auto end_of = [count = piece.count](int64_t block) { return std::min((block + 1) * kHostBlock, count); };
  if (job.kind == Kind::kPublish) {
    // The stream orders uploads, but parameters in host memory may still be read by work queued earlier.
    if (staged_ && !to_device) unit.released.synchronize();
    piece.task = team_.start(blocks, [=](int64_t block) {
      round_host_range(master, parameter, parameter_is_bf16, block * kHostBlock, end_of(block));
    });
    return;
  }
  const bool in_slot = staged_ && !keeps_gradients_;
  if (staged_) (in_slot ? piece.slot->arrived : unit.copied).synchronize();
  AdamWSpans spans{.gradient = in_slot ? piece.slot->gradient.const_data_ptr() : at_element(unit.gradient, piece.begin),
                   .gradient_is_bf16 = unit.gradient.scalar_type() == at::kBFloat16,
                   .master = master,
                   .exp_avg = mutable_at_element(states.exp_avg, piece.begin),
                   .exp_avg_sq = mutable_at_element(states.exp_avg_sq, piece.begin),
                   .moments_are_bf16 = states.exp_avg.scalar_type() == at::kBFloat16,
                   .parameter = parameter,
                   .parameter_is_bf16 = parameter_is_bf16,
                   .count = piece.count,
                   .first = unit.shard->first() + piece.begin,
                   .parameter_stays_cached = to_device};
  if (job.into_spare) {
    spans.next_master = unit.next.master.data_ptr<float>() + piece.begin;
    spans.next_exp_avg = mutable_at_element(unit.next.exp_avg, piece.begin);
    spans.next_exp_avg_sq = mutable_at_element(unit.next.exp_avg_sq, piece.begin);
  }
  const DecayRanges& decay = unit.shard->decay();
  piece.task = team_.start(blocks, [spans, update = job.update, end_of, &decay, first = piece.begin](int64_t block) {
    decay.visit(first + block * kHostBlock, first + end_of(block), update,
                [&](int64_t begin, int64_t end, const AdamWUpdate& own) {
                  adamw_host_range(spans, own, begin - first, end - first);
                });
  });
}

void HostOptimizer::complete_oldest() {
  Piece& piece = pieces_.front();
  piece.task->wait();
  Unit& unit = units_[piece.job->unit];
  if (staged_ && unit.parameter.is_cuda()) {
    C10_CUDA_CHECK(cudaMemcpyAsync(mutable_at_element(unit.parameter, piece.begin), piece.slot->parameter.data_ptr(),
                                   static_cast<size_t>(piece.count) * unit.parameter.element_size(),
                                   cudaMemcpyHostToDevice, *up_));
    piece.slot->uploaded.record(*up_);
  }
  const std::shared_ptr<Job> job = std::move(piece.job);
  pieces_.pop_front();
  if (--job->in_flight == 0 && job->closed) finish_job(*job);
}

void HostOptimizer::close(const std::shared_ptr<Job>& job) {
  job->closed = true;
  if (job->in_flight == 0) finish_job(*job);
}

void HostOptimizer::finish_job(const Job& job) {
  Unit& unit = units_[job.unit];
  if (staged_ && unit.parameter.is_cuda()) unit.uploaded.record(*up_);
  {
    const std::lock_guard lock(mutex_);
    unit.under_way = false;
    if (unit.ahead == Ahead::kRunning) {
      unit.ahead = Ahead::kComputed;
      return;
    }
    const bool dropped = unit.ahead == Ahead::kDropped;
    if (unit.ahead == Ahead::kConfirmed) std::swap(unit.shard->states(), unit.next);
    if (job.into_spare) give_spare_back(unit);
    if (dropped) return;
    ++unit.done;
  }
  changed_.notify_all();
}

}  // namespace mpzero::parallel
