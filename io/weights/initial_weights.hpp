#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "base/parameter_source.hpp"
#include "base/process_group.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/weights/weight_source.hpp"

namespace mpzero::io {

// The initial weights of a run: finite, also in the type that the run trains in, and hashed as they are read.
// Thread-safe.
//
// The hash is the sum, modulo 2^64, of one XXH3-64 for each block of 2^18 elements of each parameter, over its name,
// shape, block number and the XXH3-64 of its values as fp32. It does not depend on the number of ranks, on how tensors
// are split over files, or on which of the types a file stores the same values in.
class InitialWeights final : public ParameterSource {
 public:
  // `type`: the compute type of the run. `weights` must outlive this object.
  InitialWeights(const WeightSource& weights, WeightType type) : weights_(weights), type_(type) {}

  // Throws UserError naming tensor, file and index if a value is NaN or infinite, or would be in `type`. Reads past the
  // range to the end of the last block that begins in it: the reader of a block's first element hashes it.
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override;

  // The hash of what all ranks have read: each element of `units` once. `counts`: whether this rank's reads count; if
  // every rank has read everything, only one rank's count. 16 hexadecimal digits, the same on every rank. Collective.
  std::string hash(std::span<const UnitSpec> units, bool counts, ProcessGroup& group) const;

 private:
  void add_block(const ParameterSpec& parameter, int64_t block, std::span<const float> values) const;

  const WeightSource& weights_;
  WeightType type_;
  mutable std::atomic<uint64_t> sum_{0};
  mutable std::atomic<int64_t> blocks_{0};
};

// The hash of weights without starting a run: each rank reads a part of them. Collective.
std::string hash_of(const WeightSource& weights, std::span<const UnitSpec> units, ProcessGroup& group);

}  // namespace mpzero::io
