#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "parallel/codes/coded_layout.hpp"
#include "parallel/codes/weight_codec.hpp"
#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

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
