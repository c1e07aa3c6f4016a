#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "io/weights/weight_source.hpp"

namespace mpzero::io {

// How to treat an lm_head.weight if the model's head is its embedding (tie_word_embeddings).
enum class TiedHead : uint8_t {
  kCompare,   // read() throws if it differs from the embedding
  kPassOver,  // read() ignores it, as for a resumed run, whose weights come from its checkpoint
};

// The weights of `source` under the names of `units`, a model's. A prefix that all names have in common (_orig_mod. of
// torch.compile, module. of DDP) is removed, and model. is added if a base model was saved without it; warnings() then
// reports it. parameters() are those of the model. Throws UserError, naming `folder`, for tensors that the model lacks
// or needs in another shape, and for a missing head. Thread-safe.
std::unique_ptr<WeightSource> match_weights(std::unique_ptr<WeightSource> source, std::span<const UnitSpec> units,
                                            const std::filesystem::path& folder, TiedHead head = TiedHead::kCompare);

}  // namespace mpzero::io
