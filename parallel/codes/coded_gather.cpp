#include "parallel/codes/coded_gather.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>

namespace mpzero::parallel {
namespace {

// In fp32 numbers: cuBLASLt refuses products whose scales are not at multiples of 16 bytes.
constexpr int64_t kScaleStride = 64;

}  // namespace

CodedGather::CodedGather(std::vector<CodedLayout> layouts, std::shared_ptr<const WeightCodec> codec, Communicator& node,
                         at::Device device)
    : layouts_(std::move(layouts)),
      codec_(std::move(codec)),
      node_(node),
      maxima_(layouts_.size()),
      scales_(layouts_.size()),
      outdated_(layouts_.size(), true) {
  for (size_t unit = 0; unit < layouts_.size(); ++unit) {
    if (!has(unit)) continue;
    const auto ranges = static_cast<int64_t>(layouts_[unit].ranges().size());
    maxima_[unit] = at::zeros({node.world_size(), ranges}, at::TensorOptions().dtype(at::kFloat).device(device));
    scales_[unit] = at::zeros({2, ranges, kScaleStride}, maxima_[unit].options()).select(2, 0);
  }
}

std::unique_ptr<PendingCollective> CodedGather::gather(size_t unit, const at::Tensor& part, const at::Tensor& buffer) {
  const CodedLayout& layout = layouts_[unit];
  const auto [codes, messages, plain] = layout.split(buffer);
  const int rank = node_.rank();
  const int64_t length = layout.message();
  std::unique_ptr<PendingCollective> of_plain;
  if (length > 0) {
    const at::Tensor own = messages.narrow(0, rank * length, length);
    for (const CodedLayout::Piece& piece : layout.pieces()) {
      if (piece.rank != rank) continue;
      own.narrow(0, piece.in_message, piece.count)
          .copy_(part.narrow(0, piece.in_part, piece.count), /*non_blocking=*/true);
    }
    of_plain = node_.all_gather(own, messages);
  }
  if (outdated_[unit]) find_scales(unit, part);
  outdated_[unit] = false;
  const at::Tensor own_codes = codes.narrow(0, rank * layout.part(), layout.part());
  const std::vector<CodedRange> own = layout.ranges_of(rank);
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i].count == 0) continue;
    codec_->encode_out(part.narrow(0, own[i].begin, own[i].count), scales_[unit][0][static_cast<int64_t>(i)],
                       own_codes.narrow(0, own[i].begin, own[i].count));
  }
  std::unique_ptr<PendingCollective> of_codes = node_.all_gather(own_codes, codes);
  if (!of_plain) return of_codes;
  of_plain->wait();
  for (const CodedLayout::Piece& piece : layout.pieces()) {
    plain.narrow(0, piece.in_plain, piece.count)
        .copy_(messages.narrow(0, piece.rank * length + piece.in_message, piece.count), /*non_blocking=*/true);
  }
  return of_codes;
}

void CodedGather::find_scales(size_t unit, const at::Tensor& part) {
  const at::Tensor& maxima = maxima_[unit];
  const at::Tensor own = maxima[node_.rank()];
  own.zero_();
  const std::vector<CodedRange> ranges = layouts_[unit].ranges_of(node_.rank());
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].count == 0) continue;
    codec_->raise_maximum(part.narrow(0, ranges[i].begin, ranges[i].count), own[static_cast<int64_t>(i)]);
  }
  node_.all_gather(own, maxima.view({-1}))->wait();
  const at::Tensor found = at::empty(scales_[unit].sizes(), scales_[unit].options());
  codec_->scales_out(maxima, found);
  scales_[unit].copy_(found, /*non_blocking=*/true);
}

}  // namespace mpzero::parallel
