#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/parameter_spec.hpp"
#include "parallel/codes/weight_codec.hpp"
#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// Where the elements of a flat unit are that is gathered as codes, one byte an element, and the plain elements between
// the coded ranges as they are, two bytes. Each rank has one part of the unit. It sends the codes of its part, in
// place, and a message of its plain elements, as long as the longest one of any rank; these then go to their places in
// `plain`, where all of the unit's plain elements lie one after another.
class CodedLayout {
 public:
  // Of a unit that is gathered as it is.
  CodedLayout() = default;
  // Rank r of `ranks` has elements [r * part, (r + 1) * part) of the unit's `numel`, which are padded at the end.
  CodedLayout(int64_t numel, int64_t part, int ranks, std::vector<CodedRange> ranges);

  // Whether fewer bytes are gathered than of the unit as it is.
  bool saves() const { return !ranges_.empty() && 2 * message_ < part_; }
  const std::vector<CodedRange>& ranges() const { return ranges_; }
  int64_t part() const { return part_; }        // elements, and bytes of codes, of a rank
  int64_t message() const { return message_; }  // plain elements that a rank sends, padding included
  // The buffer that a unit is gathered into, in elements of two bytes.
  int64_t buffer_numel() const { return plain_begin() + plain_; }

  // The parts of such a buffer (bf16 [buffer_numel()]).
  struct Buffer {
    at::Tensor codes;     // bytes [ranks * part]: the unit, in its order; undefined values where an element is plain
    at::Tensor messages;  // bf16 [ranks * message]
    at::Tensor plain;     // bf16, the unit's plain elements
  };
  Buffer split(const at::Tensor& buffer) const;
  // The unit's parameters in such a buffer, of `type` where they are codes.
  std::vector<at::Tensor> views(const at::Tensor& buffer, const UnitSpec& unit, at::ScalarType type) const;

  // Consecutive plain elements of one rank: their places in its part, in its message, and in `plain`.
  struct Piece {
    int rank;
    int64_t in_part, in_message, in_plain, count;
  };
  // By rank, then by place.
  const std::vector<Piece>& pieces() const { return pieces_; }
  // What a rank has of each range, as elements of its part; a count of 0 where it has none.
  std::vector<CodedRange> ranges_of(int rank) const;

 private:
  int64_t codes_numel() const;
  int64_t plain_begin() const { return codes_numel() + ranks_ * message_; }

  std::vector<CodedRange> ranges_, plain_ranges_;
  std::vector<Piece> pieces_;
  int64_t part_ = 0, message_ = 0, plain_ = 0;
  int ranks_ = 0;
};

// Gathers units as codes from the ranks of a node. A range has one scale for all its elements, which no rank has alone:
// the first gather of new values finds the maxima of this rank's part and gathers those before it encodes. Each gather
// encodes this rank's part into its place in the buffer, which takes no memory and reads 1 / ranks of the unit.
//
// The collectives of a gather, in this order: plain elements; maxima, the first time; codes. What waits for the first
// two must not wait for the last, so that a gather can be prepared while the one before it runs.
class CodedGather {
 public:
  // `layouts`: by unit; those that do not save anything are not for this. `node`, which outlives this: the ranks that
  // have the parts.
  CodedGather(std::vector<CodedLayout> layouts, std::shared_ptr<const WeightCodec> codec, Communicator& node,
              at::Device device);

  bool has(size_t unit) const { return layouts_[unit].saves(); }
  // The unit's next gather is of new values.
  void outdate(size_t unit) { outdated_[unit] = true; }
  // Gathers this rank's part (bf16 [part]) of the unit into `buffer` (bf16 [buffer_numel()]). The result is complete
  // once the collective and what the current stream has been given are done.
  std::unique_ptr<PendingCollective> gather(size_t unit, const at::Tensor& part, const at::Tensor& buffer);
  // The unit's parameters in such a buffer: codes, or bf16.
  std::vector<at::Tensor> views(size_t unit, const UnitSpec& spec, const at::Tensor& buffer) const {
    return layouts_[unit].views(buffer, spec, codec_->type());
  }
  // Of the unit's ranges as gathered last: see WeightCodec::scales_out.
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
