#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/parameter_spec.hpp"
#include "parallel/codes/weight_codec.hpp"
#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// Buffer layout of a flat unit that is gathered in quantized form. Quantized elements use one byte, and the unquantized
// ("plain") elements between quantized ranges use two bytes. Each rank has one part of the unit. A rank sends its
// quantized elements in place and its plain elements as a message, padded to the longest message of any rank. Received
// plain elements are then copied to `plain`, contiguous over the unit.
class CodedLayout {
 public:
  // Creates an empty layout for a unit that is gathered without quantization.
  CodedLayout() = default;
  // Creates the layout of a unit with `numel` elements, padded at the end. Rank r of `ranks` has elements [r * part, (r
  // + 1) * part).
  CodedLayout(int64_t numel, int64_t part, int ranks, std::vector<CodedRange> ranges);

  // Returns true if the layout gathers fewer bytes than an unquantized gather.
  bool saves() const { return !ranges_.empty() && 2 * message_ < part_; }
  const std::vector<CodedRange>& ranges() const { return ranges_; }
  int64_t part() const { return part_; }        // elements per rank, and bytes per rank in `codes`
  int64_t message() const { return message_; }  // plain elements sent per rank, including padding
  // Returns the size of a unit's gather buffer, in two-byte elements.
  int64_t buffer_numel() const { return plain_begin() + plain_; }

  // Views of a gather buffer (bf16 [buffer_numel()]).
  struct Buffer {
    at::Tensor codes;     // bytes [ranks * part], in unit order; undefined at plain elements
    at::Tensor messages;  // bf16 [ranks * message]
    at::Tensor plain;     // bf16, plain elements of the unit
  };
  Buffer split(const at::Tensor& buffer) const;
  // Returns views of the unit's parameters in a gather buffer. Quantized parameters have dtype `type`.
  std::vector<at::Tensor> views(const at::Tensor& buffer, const UnitSpec& unit, at::ScalarType type) const;

  // Consecutive plain elements of one rank, with offsets in the rank's part, in the rank's message and in `plain`.
  struct Piece {
    int rank;
    int64_t in_part, in_message, in_plain, count;
  };
  // Returns the pieces of all ranks, sorted by rank and offset.
  const std::vector<Piece>& pieces() const { return pieces_; }
  // Returns the intersection of each range with a rank's part, relative to the part. The count is 0 if the intersection
  // is empty.
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
// part of the range. The first gather after the values change therefore computes the amax of this rank's part of each
// range and gathers the amax values of all ranks before quantization. Each gather writes the quantized part of this
// rank directly to the gather buffer, without additional memory.
//
// Order of collectives in a gather: plain elements, amax values (only for new values), quantized elements. Work that
// depends on the first two collectives must not wait for the third, so that a gather can be prepared while the previous
// gather runs.
class CodedGather {
 public:
  // `layouts`: one per unit; units whose layout does not save bytes are skipped. `node`: communicator of the ranks that
  // have the parts of each unit; must outlive this object.
  CodedGather(std::vector<CodedLayout> layouts, std::shared_ptr<const WeightCodec> codec, Communicator& node,
              at::Device device);

  bool has(size_t unit) const { return layouts_[unit].saves(); }
  // Marks the unit's values as changed, so that the next gather computes new scales.
  void outdate(size_t unit) { outdated_[unit] = true; }
  // Gathers the unit into `buffer` (bf16 [buffer_numel()]). `part` is this rank's part (bf16 [part]). The result is
  // complete after the collective and the work queued on the current stream are done.
  std::unique_ptr<PendingCollective> gather(size_t unit, const at::Tensor& part, const at::Tensor& buffer);
  // Returns views of the unit's parameters in a gather buffer, each quantized or bf16.
  std::vector<at::Tensor> views(size_t unit, const UnitSpec& spec, const at::Tensor& buffer) const {
    return layouts_[unit].views(buffer, spec, codec_->type());
  }
  // Returns the scales of the unit's ranges as of the last gather; see WeightCodec::scales_out().
  const at::Tensor& scales(size_t unit) const { return scales_[unit]; }

 private:
  void find_scales(size_t unit, const at::Tensor& part);

  std::vector<CodedLayout> layouts_;
  std::shared_ptr<const WeightCodec> codec_;
  Communicator& node_;
  std::vector<at::Tensor> maxima_;  // one per unit: [ranks, ranges]
  std::vector<at::Tensor> scales_;  // one per unit: [2, ranges]
  std::vector<bool> outdated_;
};

}  // namespace mpzero::parallel
