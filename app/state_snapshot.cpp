#include "app/state_snapshot.hpp"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/aligned_buffers.hpp"
#include "io/parallel_blocks.hpp"
#include "parallel/host_memory.hpp"

namespace mpzero {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kPageElements = io::kPageBytes / kFloatBytes;
// What a thread copies at a time: small beside a unit, large beside what handing it out costs.
constexpr int64_t kCopyElements = int64_t{1} << 20;
constexpr StateKind kKinds[] = {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq};

int64_t round_up_to_page_elements(int64_t count) { return (count + kPageElements - 1) / kPageElements * kPageElements; }

}  // namespace

StateSnapshot::StateSnapshot(const parallel::ZeroEngine& engine, std::vector<bool> writes, at::Device device,
                             int copy_threads)
    : engine_(engine), device_(device), copy_threads_(copy_threads), part_of_unit_(writes.size()) {
  int64_t elements = 0;
  for (size_t u = 0; u < writes.size(); ++u) {
    const int64_t count = engine.shard(u).count;
    if (!writes[u] || count == 0) continue;
    part_of_unit_[u] = parts_.size();
    for (const StateKind kind : kKinds) {
      parts_.push_back({.unit = u, .kind = kind, .begin = elements, .count = count});
      elements += round_up_to_page_elements(count);
      if (!engine.state_on_host(u)) pinned_ = true;
    }
  }
  // A page more, since memory need not begin at one.
  bytes_ = elements == 0 ? 0 : (elements + kPageElements) * kFloatBytes;
}

StateSnapshot::~StateSnapshot() {
  if (host_copy_.valid()) host_copy_.wait();
  if (stream_) copied_.synchronize();
}

void StateSnapshot::allocate() {
  if (bytes_ == 0 || memory_.defined() || allocation_.valid()) return;
  allocation_ = std::async(std::launch::async, [elements = bytes_ / kFloatBytes, pinned = pinned_, device = device_] {
    if (device.is_cuda()) c10::cuda::set_device(device.index());
    const at::Tensor memory = parallel::host_tensor(elements, at::kFloat, pinned);
    const auto address = reinterpret_cast<uintptr_t>(memory.const_data_ptr());
    const auto past_page = static_cast<int64_t>(address % static_cast<uintptr_t>(io::kPageBytes)) / kFloatBytes;
    const int64_t skipped = past_page == 0 ? 0 : kPageElements - past_page;
    return memory.narrow(0, skipped, elements - kPageElements);
  });
}

void StateSnapshot::begin() {
  if (bytes_ == 0) return;
  allocate();
  if (allocation_.valid()) memory_ = allocation_.get();
  on_host_.clear();
  on_host_parts_.clear();
  if (pinned_ && !stream_) stream_ = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device_.index());
  if (stream_) {
    at::cuda::CUDAEvent updated;
    updated.record(c10::cuda::getCurrentCUDAStream());
    updated.block(*stream_);
  }
  for (const Part& part : parts_) {
    const at::Tensor state = engine_.state(part.unit, part.kind);
    if (state.is_cuda()) {
      const c10::StreamGuard beside(*stream_);
      memory_.narrow(0, part.begin, part.count).copy_(state, /*non_blocking=*/true);
    } else {
      on_host_.push_back(state);
      on_host_parts_.push_back(part);
    }
  }
  if (stream_) copied_.record(*stream_);
  host_copy_ = on_host_.empty() ? std::shared_future<void>()
                                : std::async(std::launch::async, [this] { copy_on_host(); }).share();
}

void StateSnapshot::copy_on_host() {
  struct Piece {
    const float* from;
    float* to;
    int64_t count;
  };
  std::vector<Piece> pieces;
  auto* memory = memory_.data_ptr<float>();
  for (size_t i = 0; i < on_host_.size(); ++i) {
    const Part& part = on_host_parts_[i];
    const auto* state = on_host_[i].const_data_ptr<float>();
    for (int64_t at = 0; at < part.count; at += kCopyElements) {
      pieces.push_back({state + at, memory + part.begin + at, std::min(kCopyElements, part.count - at)});
    }
  }
  io::parallel_for(static_cast<int64_t>(pieces.size()), copy_threads_, [&](int64_t i) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    std::memcpy(piece.to, piece.from, static_cast<size_t>(piece.count * kFloatBytes));
  });
}

void StateSnapshot::before_update() {
  if (host_copy_.valid()) host_copy_.wait();
  if (stream_) copied_.block(c10::cuda::getCurrentCUDAStream(device_.index()));
}

void StateSnapshot::wait() {
  if (host_copy_.valid()) host_copy_.get();
  if (stream_) copied_.synchronize();
}

std::span<const float> StateSnapshot::values(size_t unit, StateKind kind) const {
  if (!part_of_unit_[unit]) return {};
  const Part& part = parts_[*part_of_unit_[unit] + static_cast<size_t>(kind)];
  return {memory_.const_data_ptr<float>() + part.begin, static_cast<size_t>(part.count)};
}

}  // namespace mpzero
