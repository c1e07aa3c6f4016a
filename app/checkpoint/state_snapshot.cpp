#include "app/checkpoint/state_snapshot.hpp"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/bytes/aligned_buffers.hpp"
#include "io/bytes/parallel_blocks.hpp"
#include "parallel/host/host_memory.hpp"

namespace mpzero {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kPageElements = io::kPageBytes / kFloatBytes;
// What a thread copies at a time: small compared with a unit, large compared with the cost of distributing it.
constexpr int64_t kCopyElements = int64_t{1} << 20;
constexpr StateKind kKinds[] = {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq};

int64_t round_up_to_page_elements(int64_t count) { return (count + kPageElements - 1) / kPageElements * kPageElements; }

}  // namespace

StateSnapshot::StateSnapshot(parallel::ZeroEngine& engine, std::vector<bool> writes, at::Device device,
                             int copy_threads)
    : engine_(engine),
      device_(device),
      copy_threads_(copy_threads),
      part_of_unit_(writes.size()),
      holds_(writes.size()) {
  int64_t elements = 0;
  for (size_t u = 0; u < writes.size(); ++u) {
    const int64_t count = engine.shard(u).count;
    // What holding them takes is taken for all units.
    if (engine.can_hold(u)) held_bytes_ += 3 * count * kFloatBytes;
    if (!writes[u] || count == 0) continue;
    part_of_unit_[u] = parts_.size();
    const Way way = engine.can_hold(u) ? Way::kHeld : engine.state_on_host(u) ? Way::kFromHost : Way::kFromGpu;
    pinned_ = pinned_ || way == Way::kFromGpu;
    for (const StateKind kind : kKinds) {
      parts_.push_back({.unit = u, .kind = kind, .way = way, .begin = elements, .count = count});
      if (way != Way::kHeld) elements += round_up_to_page_elements(count);
    }
  }
  if (parts_.empty()) held_bytes_ = 0;
  // A page more, since memory need not begin at one.
  copied_bytes_ = elements == 0 ? 0 : (elements + kPageElements) * kFloatBytes;
}

StateSnapshot::~StateSnapshot() {
  if (from_host_.valid()) from_host_.wait();
  if (stream_) copied_.synchronize();
}

void StateSnapshot::allocate() {
  if (bytes() == 0 || memory_.defined() || allocation_.valid()) return;
  allocation_ = std::async(std::launch::async, [this] {
    if (device_.is_cuda()) c10::cuda::set_device(device_.index());
    if (held_bytes_ > 0) engine_.make_room_for_holds();
    const int64_t elements = copied_bytes_ / kFloatBytes;
    const at::Tensor memory = parallel::host_tensor(elements, at::kFloat, pinned_);
    if (elements == 0) return memory;
    const auto address = reinterpret_cast<uintptr_t>(memory.const_data_ptr());
    const auto past_page = static_cast<int64_t>(address % static_cast<uintptr_t>(io::kPageBytes)) / kFloatBytes;
    const int64_t skipped = past_page == 0 ? 0 : kPageElements - past_page;
    return memory.narrow(0, skipped, elements - kPageElements);
  });
}

void StateSnapshot::begin() {
  gpu_waited_ = false;
  if (parts_.empty()) return;
  allocate();
  if (allocation_.valid()) memory_ = allocation_.get();
  if (pinned_ && !stream_) stream_ = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device_.index());
  if (stream_) {
    at::cuda::CUDAEvent updated;
    updated.record(c10::cuda::getCurrentCUDAStream());
    updated.block(*stream_);
    const c10::StreamGuard guard(*stream_);
    for (const Part& part : parts_) {
      if (part.way != Way::kFromGpu) continue;
      memory_.narrow(0, part.begin, part.count).copy_(engine_.state(part.unit, part.kind), /*non_blocking=*/true);
    }
    copied_.record(*stream_);
  }
  from_host_ = std::async(std::launch::async, [this] { take_from_host(); }).share();
}

void StateSnapshot::take_from_host() {
  struct Piece {
    const float* from;
    float* to;
    int64_t count;
  };
  std::vector<Piece> pieces;
  for (size_t u = 0; u < holds_.size(); ++u) {
    if (part_of_unit_[u] && parts_[*part_of_unit_[u]].way == Way::kHeld) holds_[u] = engine_.hold(u);
  }
  for (const Part& part : parts_) {
    if (part.way != Way::kFromHost) continue;
    const auto* state = engine_.state(part.unit, part.kind).const_data_ptr<float>();
    auto* const memory = memory_.data_ptr<float>() + part.begin;
    for (int64_t at = 0; at < part.count; at += kCopyElements) {
      pieces.push_back({state + at, memory + at, std::min(kCopyElements, part.count - at)});
    }
  }
  io::parallel_for(static_cast<int64_t>(pieces.size()), copy_threads_, [&](int64_t i) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    std::memcpy(piece.to, piece.from, static_cast<size_t>(piece.count * kFloatBytes));
  });
}

void StateSnapshot::before_update() {
  if (from_host_.valid()) from_host_.wait();
  if (!stream_ || gpu_waited_) return;
  const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(device_.index());
  wait_began_.record(current);
  copied_.block(current);
  wait_ended_.record(current);
  gpu_waited_ = true;
}

double StateSnapshot::gpu_seconds_waited() {
  if (!gpu_waited_) return 0;
  wait_ended_.synchronize();
  constexpr double kMilliseconds = 1e3;
  return static_cast<double>(wait_began_.elapsed_time(wait_ended_)) / kMilliseconds;
}

void StateSnapshot::wait() {
  if (from_host_.valid()) from_host_.get();
  if (stream_) copied_.synchronize();
}

void StateSnapshot::release() {
  if (from_host_.valid()) from_host_.wait();
  for (parallel::StateHold& hold : holds_) hold.release();
}

std::span<const float> StateSnapshot::values(size_t unit, StateKind kind) const {
  if (!part_of_unit_[unit]) return {};
  const Part& part = parts_[*part_of_unit_[unit] + static_cast<size_t>(kind)];
  const float* const values = part.way == Way::kHeld ? holds_[unit].states()[kind].const_data_ptr<float>()
                                                     : memory_.const_data_ptr<float>() + part.begin;
  return {values, static_cast<size_t>(part.count)};
}

}  // namespace mpzero
