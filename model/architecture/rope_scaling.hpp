#pragma once

#include <cstdint>
#include <variant>
#include <vector>

namespace mpzero::model {

// Scalings of the rotary frequencies f_i = theta^(-2i/D), with the names and results of transformers'
// ROPE_INIT_FUNCTIONS.

// f_i / factor.
struct LinearRopeScaling {
  double factor = 1.0;
  bool operator==(const LinearRopeScaling&) const = default;
};

// For sequences of T > L = max_position_embeddings tokens: theta * (factor * T / L - factor + 1)^(D / (D - 2)).
struct DynamicRopeScaling {
  double factor = 1.0;
  bool operator==(const DynamicRopeScaling&) const = default;
};

// Llama 3.1's: wavelengths above original_max_position_embeddings / low_freq_factor are multiplied by `factor`, those
// below original_max_position_embeddings / high_freq_factor are unchanged, those between are interpolated.
struct Llama3RopeScaling {
  double factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 8192;
  bool operator==(const Llama3RopeScaling&) const = default;
};

// Peng et al., 2023, arXiv:2309.00071: frequencies that turn more than beta_fast times within
// original_max_position_embeddings are unchanged, those that turn less than beta_slow times are divided by `factor`,
// those between are interpolated. cos and sin are multiplied by attention_factor. `truncate`: the ends of the band are
// whole dimensions.
struct YarnRopeScaling {
  double factor = 1.0;
  int64_t original_max_position_embeddings = 0;
  double attention_factor = 1.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;
  bool operator==(const YarnRopeScaling&) const = default;
};

// Ding et al., 2024, arXiv:2402.13753: f_i / short_factor[i], or f_i / long_factor[i] for sequences of more than
// original_max_position_embeddings tokens. cos and sin are multiplied by attention_factor.
struct LongRopeScaling {
  std::vector<double> short_factor, long_factor;  // [D / 2]
  int64_t original_max_position_embeddings = 0;
  double attention_factor = 1.0;
  bool operator==(const LongRopeScaling&) const = default;
};

using RopeScaling =
    std::variant<Llama3RopeScaling, LinearRopeScaling, DynamicRopeScaling, YarnRopeScaling, LongRopeScaling>;

}  // namespace mpzero::model
