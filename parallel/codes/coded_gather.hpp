#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/parameter_spec.hpp"
#include "parallel/codes/weight_codec.hpp"
#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// Buffer layout of a flat unit that is gathered quantized: quantized ranges at one byte per element, the plain elements
// between them at two bytes. Each rank has one part of the unit. It sends the quantized elements of its part in place,
// and its plain elements as a message, padded to the longest one of any rank. Received plain elements are then copied
// to `plain`, contiguous over the unit.
class CodedLayout {
 public:
  // For a unit that is gathered unquantized.
  CodedLayout() = default;
  // Rank r of `ranks` has elements [r * part, (r + 1) * part) of the unit's `numel`, which are padded at the end.
  CodedLayout(int64_t numel, int64_t part, int ranks, std::vector<CodedRange> ranges);

  // Whether this gathers fewer bytes than the unquantized unit.
  bool saves() const { return !ranges_.empty() && 2 * message_ < part_; }
  const std::vector<CodedRange>& ranges() const { return ranges_; }
  int64_t part() const { return part_; }        // per rank: elements, and bytes of quantized elements
  int64_t message() const { return message_; }  // plain elements that a rank sends, padding included
  // Size of the buffer that a unit is gathered into, in two-byte elements.
  int64_t buffer_numel() const { return plain_begin() + plain_; }

  // The parts of such a buffer (bf16 [buffer_numel()]).
  struct Buffer {
    at::Tensor codes;     // bytes [ranks * part]: the unit, in its order; plain elements are undefined
    at::Tensor messages;  // bf16 [ranks * message]
    at::Tensor plain;     // bf16, the unit's plain elements
  };
  Buffer split(const at::Tensor& buffer) const;
  // The unit's parameters in such a buffer; quantized ones with dtype `type`.
  std::vector<at::Tensor> views(const at::Tensor& buffer, const UnitSpec& unit, at::ScalarType type) const;

  // Consecutive plain elements of one rank: their offsets in its part, in its message, and in `plain`.
  struct Piece {
    int rank;
    int64_t in_part, in_message, in_plain, count;
  };
  // Sorted by rank, then by offset.
  const std::vector<Piece>& pieces() const { return pieces_; }
  // The intersection of each range with a rank's part, in elements of the part; count 0 if empty.
  std::vector<CodedRange> ranges_of(int rank) const;

 private:
  int64_t codes_numel() const;
  int64_t plain_begin() const { return codes_numel() + ranks_ * message_; }

  std::vector<CodedRange> ranges_, plain_ranges_;
  std::vector<Piece> pieces_;
  int64_t part_ = 0, message_ = 0, plain_ = 0;
  int ranks_ = 0;
};

// Gathers quantized units from the ranks of a node. All elements of a range share a scale, but each rank has only a
// part of them: the first gather of new values computes the maxima of this rank's part and gathers the maxima before it
// quantizes. Each gather quantizes this rank's part directly into the buffer, which needs no further memory and reads
// only this rank's share of the unit.
//
// The collectives of a gather, in order: plain elements; maxima, the first time; quantized elements. Work that waits
// for the first two must not wait for the last, so that a gather can be prepared while the previous one runs.
class CodedGather {
 public:
  // `layouts`: by unit; units whose layout saves no bytes are not handled here. `node`: the ranks that have the parts;
  // must outlive this.
  CodedGather(std::vector<CodedLayout> layouts, std::shared_ptr<const WeightCodec> codec, Communicator& node,
              at::Device device);

  bool has(size_t unit) const { return layouts_[unit].saves(); }
  // The unit has new values: its next gather computes new scales.
  void outdate(size_t unit) { outdated_[unit] = true; }
  // Gathers this rank's part (bf16 [part]) of the unit into `buffer` (bf16 [buffer_numel()]). The result is complete
  // once the collective and the work queued on the current stream are done.
  std::unique_ptr<PendingCollective> gather(size_t unit, const at::Tensor& part, const at::Tensor& buffer);
  // The unit's parameters in such a buffer: quantized, or bf16.
  std::vector<at::Tensor> views(size_t unit, const UnitSpec& spec, const at::Tensor& buffer) const {
    return layouts_[unit].views(buffer, spec, codec_->type());
  }
  // Scales of the unit's ranges as of the last gather: see WeightCodec::scales_out.
  const at::Tensor& scales(size_t unit) const { return scales_[unit]; }

 private:
  void find_scales(size_t unit, const at::Tensor& part);

  std::vector<CodedLayout> layouts_;
  std::shared_ptr<const WeightCodec> codec_;
  Communicator& node_;
  std::vector<at::Tensor> maxima_;  // by unit: [ranks, ranges]
  std::vector<at::Tensor> scales_;  // by unit: [2, ranges]
  std::vector<bool> outdated_;
};

}  // namespace mpzero::parallel
