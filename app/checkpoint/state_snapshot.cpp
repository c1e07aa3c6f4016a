#include "app/checkpoint/state_snapshot.hpp"

#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDAFunctions.h>

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
// Bytes per copy. Small enough to balance threads within a unit, large enough to hide the scheduling overhead.
constexpr int64_t kCopyBytes = int64_t{4} << 20;

int64_t round_up_to_page_elements(int64_t count) { return (count + kPageElements - 1) / kPageElements * kPageElements; }

// Copies within host memory, distributed over threads.
class Copies {
 public:
  void add(const void* from, void* to, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += kCopyBytes) {
      pieces_.push_back({static_cast<const std::byte*>(from) + at, static_cast<std::byte*>(to) + at,
                         std::min(kCopyBytes, bytes - at)});
    }
  }
  void run(int threads) const {
    io::parallel_for(static_cast<int64_t>(pieces_.size()), threads, [&](int64_t i) {
      const Piece& piece = pieces_[static_cast<size_t>(i)];
      std::memcpy(piece.to, piece.from, static_cast<size_t>(piece.bytes));
    });
  }

 private:
  struct Piece {
    const std::byte* from;
    std::byte* to;
    int64_t bytes;
  };
  std::vector<Piece> pieces_;
};

std::vector<parallel::Carried> carried_of(size_t units, const auto& of_unit) {
  std::vector<parallel::Carried> all;
  for (size_t u = 0; u < units; ++u) all.push_back(of_unit(u));
  return all;
}

}  // namespace

std::vector<at::Tensor> carried_tensors(std::span<const parallel::Carried> values) {
  std::vector<at::Tensor> tensors;
  for (const parallel::Carried& of_unit : values) {
    for (const at::Tensor& tensor : {of_unit.gradient_residual, of_unit.parameters}) {
      if (tensor.defined()) tensors.push_back(tensor);
    }
  }
  return tensors;
}

StateSnapshot::StateSnapshot(parallel::ZeroEngine& engine, std::vector<bool> writes, bool carried, at::Device device,
                             int copy_threads)
    : engine_(engine),
      device_(device),
      copy_threads_(copy_threads),
      part_of_unit_(writes.size()),
      holds_(writes.size()) {
  int64_t elements = 0;
  for (size_t u = 0; u < writes.size(); ++u) {
    const int64_t count = engine.shard(u).count;
    // make_room_for_holds() allocates memory for all units.
    if (engine.can_hold(u)) held_bytes_ += static_cast<int64_t>(kStateKinds.size()) * count * kFloatBytes;
    if (!writes[u] || count == 0) continue;
    part_of_unit_[u] = parts_.size();
    const Way way = engine.can_hold(u) ? Way::kHeld : engine.state_on_host(u) ? Way::kFromHost : Way::kFromGpu;
    pinned_ = pinned_ || way == Way::kFromGpu;
    for (const StateKind kind : states_of(engine.parts().parts()[u])) {
      parts_.push_back({.unit = u, .kind = kind, .way = way, .begin = elements, .count = count});
      if (way != Way::kHeld) elements += round_up_to_page_elements(count);
    }
  }
  if (parts_.empty()) held_bytes_ = 0;
  if (carried) {
    const auto like = carried_of(writes.size(), [&](size_t u) { return engine.like_carried(u); });
    for (const at::Tensor& tensor : carried_tensors(like)) {
      const auto bytes = static_cast<int64_t>(tensor.nbytes());
      carried_.push_back({.begin = elements, .bytes = bytes});
      elements += round_up_to_page_elements((bytes + kFloatBytes - 1) / kFloatBytes);
      pinned_ = pinned_ || tensor.is_cuda();
    }
    if (!carried_.empty()) engine.set_residual_reader([this] { wait_for_carried(); });
  }
  // One extra page for alignment.
  copied_bytes_ = elements == 0 ? 0 : (elements + kPageElements) * kFloatBytes;
}

StateSnapshot::~StateSnapshot() {
  if (from_host_.valid()) from_host_.wait();
  if (stream_) copied_.synchronize();
  if (!carried_.empty()) engine_.set_residual_reader({});
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
  if (parts_.empty() && carried_.empty()) return;
  allocate();
  if (allocation_.valid()) memory_ = allocation_.get();
  std::vector<at::Tensor> carried;
  if (!carried_.empty()) {
    carried = carried_tensors(carried_of(holds_.size(), [&](size_t u) { return engine_.carried(u); }));
  }
  if (pinned_ && !stream_) stream_ = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device_.index());
  if (stream_) take_from_gpu(carried);
  from_host_ = std::async(std::launch::async, [this, carried] { take_from_host(carried); }).share();
}

void StateSnapshot::take_from_gpu(const std::vector<at::Tensor>& carried) {
  c10::cuda::CUDAEvent updated;
  updated.record(c10::cuda::getCurrentCUDAStream());
  updated.block(*stream_);
  const c10::StreamGuard guard(*stream_);
  for (size_t i = 0; i < carried.size(); ++i) {
    const at::Tensor bytes = carried[i].flatten().view(at::kByte);
    memory_.view(at::kByte)
        .narrow(0, carried_[i].begin * kFloatBytes, carried_[i].bytes)
        .copy_(bytes, /*non_blocking=*/true);
  }
  if (!carried.empty()) carried_copied_.record(*stream_);
  for (const Part& part : parts_) {
    if (part.way != Way::kFromGpu) continue;
    memory_.narrow(0, part.begin, part.count).copy_(engine_.state(part.unit, part.kind), /*non_blocking=*/true);
  }
  copied_.record(*stream_);
}

void StateSnapshot::take_from_host(const std::vector<at::Tensor>& carried) {
  Copies copies;
  for (size_t i = 0; i < carried.size(); ++i) {
    if (!carried[i].is_cpu()) continue;
    copies.add(carried[i].const_data_ptr(), memory_.data_ptr<float>() + carried_[i].begin, carried_[i].bytes);
  }
  for (size_t u = 0; u < holds_.size(); ++u) {
    if (part_of_unit_[u] && parts_[*part_of_unit_[u]].way == Way::kHeld) holds_[u] = engine_.hold(u);
  }
  for (const Part& part : parts_) {
    if (part.way != Way::kFromHost) continue;
    const at::Tensor state = engine_.state(part.unit, part.kind);
    if (state.scalar_type() == at::kFloat) {
      copies.add(state.const_data_ptr<float>(), memory_.data_ptr<float>() + part.begin, part.count * kFloatBytes);
    } else {
      memory_.narrow(0, part.begin, part.count).copy_(state);  // parameters of a frozen unit
    }
  }
  copies.run(copy_threads_);
}

void StateSnapshot::wait_for_carried() {
  if (stream_) carried_copied_.block(c10::cuda::getCurrentCUDAStream(device_.index()));
  if (device_.is_cpu() && from_host_.valid()) from_host_.wait();
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

std::span<const std::byte> StateSnapshot::carried(size_t index) const {
  const CarriedPart& part = carried_[index];
  return {reinterpret_cast<const std::byte*>(memory_.const_data_ptr<float>() + part.begin),
          static_cast<size_t>(part.bytes)};
}

}  // namespace mpzero
