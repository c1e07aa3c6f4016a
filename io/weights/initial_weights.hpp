#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "base/parameter_source.hpp"
#include "base/process_group.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/weights/safetensors.hpp"

namespace mpzero::io {

// Weights as a run begins with them: numbers all of them, also in the type that it trains in, and hashed as they are
// read. May be used from several threads at once.
//
// The hash is the sum, modulo 2^64, of one XXH3-64 for each block of 2^18 elements of each parameter, over its name,
// shape, the block's number and the XXH3-64 of its values as fp32. It is the same for any number of ranks, any split of
// the tensors over files, and any of the types in which a file can hold the same values.
class InitialWeights final : public ParameterSource {
 public:
  // `type`: in which the run computes. `weights` outlives this.
  InitialWeights(const SafetensorsSource& weights, WeightType type) : weights_(weights), type_(type) {}

  // Throws UserError naming tensor, file and place where a value is NaN or infinite, or would be in `type`. Reads on
  // behind the range to the end of the last block that begins in it: whoever reads a block's first element hashes it.
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override;

  // Of all that all ranks have read: each element of `units` once. `counts`: whether what this rank has read counts;
  // where every rank has read everything, one of them does. 16 hexadecimal digits, the same on every rank. Collective.
  std::string hash(std::span<const UnitSpec> units, bool counts, ProcessGroup& group) const;

 private:
  void add_block(const ParameterSpec& parameter, int64_t block, std::span<const float> values) const;

  const SafetensorsSource& weights_;
  WeightType type_;
  mutable std::atomic<uint64_t> sum_{0};
  mutable std::atomic<int64_t> blocks_{0};
};

// The hash of weights that no run takes: each rank reads a share of them. Collective.
std::string hash_of(const SafetensorsSource& weights, std::span<const UnitSpec> units, ProcessGroup& group);

}  // namespace mpzero::io
