#include "parallel/codes/coded_gather.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "parallel/optimizer/adamw_kernels.hpp"

namespace mpzero::parallel {
namespace {

// Alignment in elements: 128 bytes of bf16, for NCCL.
constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t numel) { return (numel + kAlignment - 1) / kAlignment * kAlignment; }

// Returns the intersection of two ranges. The count is 0 if the intersection is empty.
CodedRange common(const CodedRange& a, const CodedRange& b) {
  const int64_t begin = std::max(a.begin, b.begin), end = std::min(a.begin + a.count, b.begin + b.count);
  return {.begin = begin, .count = std::max<int64_t>(0, end - begin)};
}

bool holds(const CodedRange& range, int64_t begin, int64_t count) {
  return range.begin <= begin && begin + count <= range.begin + range.count;
}

}  // namespace

CodedLayout::CodedLayout(int64_t numel, int64_t part, int ranks, std::vector<CodedRange> ranges)
    : ranges_(std::move(ranges)), part_(part), ranks_(ranks) {
  std::vector<CodedRange> sorted = ranges_;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  int64_t end = 0;
  for (const CodedRange& range : sorted) {
    if (range.begin < end || range.count <= 0) throw_failure("quantized ranges overlap or are empty");
    if (range.begin > end) plain_ranges_.push_back({.begin = end, .count = range.begin - end});
    end = range.begin + range.count;
  }
  if (end > numel || numel > part * ranks)
    throw_failure("quantized ranges end at element {}, but the unit has {} elements in {} shards of {} elements", end,
                  numel, ranks, part);
  if (end < numel) plain_ranges_.push_back({.begin = end, .count = numel - end});
  for (int rank = 0; rank < ranks; ++rank) {
    int64_t sent = 0;
    for (const CodedRange& range : plain_ranges_) {
      const CodedRange own = common(range, {.begin = rank * part, .count = part});
      if (own.count == 0) continue;
      pieces_.push_back({.rank = rank,
                         .in_part = own.begin - rank * part,
                         .in_message = sent,
                         .in_plain = plain_,
                         .count = own.count});
      sent += own.count;
      plain_ += own.count;
    }
    message_ = std::max(message_, aligned(sent));
  }
}

int64_t CodedLayout::codes_numel() const { return aligned((ranks_ * part_ + 1) / 2); }

CodedLayout::Buffer CodedLayout::split(const at::Tensor& buffer) const {
  return {.codes = buffer.narrow(0, 0, codes_numel()).view(at::kByte).narrow(0, 0, ranks_ * part_),
          .messages = buffer.narrow(0, codes_numel(), ranks_ * message_),
          .plain = buffer.narrow(0, plain_begin(), plain_)};
}

std::vector<at::Tensor> CodedLayout::views(const at::Tensor& buffer, const UnitSpec& unit, at::ScalarType type) const {
  const Buffer parts = split(buffer);
  const at::Tensor codes = parts.codes.view(type);
  std::vector<at::Tensor> views;
  int64_t begin = 0, in_plain = 0;
  for (const ParameterSpec& parameter : unit.parameters) {
    const int64_t count = parameter.numel();
    const auto holds_it = [&](const CodedRange& range) { return holds(range, begin, count); };
    if (std::any_of(ranges_.begin(), ranges_.end(), holds_it)) {
      views.push_back(codes.narrow(0, begin, count).view(parameter.shape));
    } else {
      if (!std::any_of(plain_ranges_.begin(), plain_ranges_.end(), holds_it)) {
        throw_failure("a quantized range contains only part of {}", parameter.name);
      }
      views.push_back(parts.plain.narrow(0, in_plain, count).view(parameter.shape));
      in_plain += count;
    }
    begin += count;
  }
  return views;
}

std::vector<CodedRange> CodedLayout::ranges_of(int rank) const {
  std::vector<CodedRange> own;
  for (const CodedRange& range : ranges_) {
    own.push_back(common(range, {.begin = rank * part_, .count = part_}));
    own.back().begin -= rank * part_;
  }
  return own;
}

namespace {

// Stride in fp32 elements. cuBLASLt rejects matmuls whose scales are not aligned to 16 bytes.
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
    const at::Tensor values = part.narrow(0, own[i].begin, own[i].count);
    const at::Tensor encoded = own_codes.narrow(0, own[i].begin, own[i].count);
    if (is_simulated_kernel(values, values.nbytes() + encoded.nbytes())) continue;
    codec_->encode_out(values, scales_[unit][0][static_cast<int64_t>(i)], encoded);
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
    const at::Tensor values = part.narrow(0, ranges[i].begin, ranges[i].count);
    if (!is_simulated_kernel(values, values.nbytes())) codec_->raise_maximum(values, own[static_cast<int64_t>(i)]);
  }
  node_.all_gather(own, maxima.view({-1}))->wait();
  const at::Tensor found = at::empty(scales_[unit].sizes(), scales_[unit].options());
  if (!is_simulated_kernel(maxima, maxima.nbytes() + found.nbytes())) codec_->scales_out(maxima, found);
  scales_[unit].copy_(found, /*non_blocking=*/true);
}

}  // namespace mpzero::parallel
