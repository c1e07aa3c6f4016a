#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/weight_source.hpp"

namespace mpzero::io {

// Handling of lm_head.weight if the model ties it to the embedding (tie_word_embeddings).
enum class TiedHead : uint8_t {
  kCompare,   // read() throws if lm_head.weight differs from the embedding
  kPassOver,  // read() ignores lm_head.weight, for example for a resumed run
};

// Maps the tensor names of `source` to the parameter names of the model in `units`. Removes a common prefix
// ("_orig_mod." from torch.compile, "module." from DDP) and adds the prefix "model." if a base model was saved without
// it. warnings() reports these changes. parameters() returns the parameters of the model. Throws UserError for
// unexpected tensors, mismatched shapes and a missing lm_head.weight. Thread-safe.
std::unique_ptr<WeightSource> match_weights(std::unique_ptr<WeightSource> source, std::span<const UnitSpec> units,
                                            const std::filesystem::path& folder, TiedHead head = TiedHead::kCompare);

}  // namespace mpzero::io
