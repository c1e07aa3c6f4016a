#pragma once

#include <cstdint>
#include <variant>
#include <vector>

namespace mpzero::model {

// Scaling methods for the rotary frequencies f_i = theta^(-2i/D). Names and results match transformers'
// ROPE_INIT_FUNCTIONS.

// Linear scaling: divides each f_i by `factor`.
struct LinearRopeScaling {
  double factor = 1.0;
  bool operator==(const LinearRopeScaling&) const = default;
};

// Dynamic NTK scaling for sequences of T > L = max_position_embeddings tokens: multiplies theta by (factor * T / L -
// factor + 1)^(D / (D - 2)).
struct DynamicRopeScaling {
  double factor = 1.0;
  bool operator==(const DynamicRopeScaling&) const = default;
};

// Llama 3.1's scaling: wavelengths above original_max_position_embeddings / low_freq_factor are multiplied by `factor`,
// wavelengths below original_max_position_embeddings / high_freq_factor are unchanged, and wavelengths in between are
// interpolated.
struct Llama3RopeScaling {
  double factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 8192;
  bool operator==(const Llama3RopeScaling&) const = default;
};

// YaRN (Peng et al., 2023, arXiv:2309.00071): frequencies with more than beta_fast rotations in
// original_max_position_embeddings tokens are unchanged, frequencies with fewer than beta_slow rotations are divided by
// `factor`, and frequencies in between are interpolated. cos and sin are multiplied by attention_factor. `truncate`
// rounds the bounds of the interpolated band outward to integers.
struct YarnRopeScaling {
  double factor = 1.0;
  int64_t original_max_position_embeddings = 0;
  double attention_factor = 1.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;
  bool operator==(const YarnRopeScaling&) const = default;
};

// LongRoPE (Ding et al., 2024, arXiv:2402.13753): divides f_i by short_factor[i], or by long_factor[i] if a sequence
// has more than original_max_position_embeddings tokens. cos and sin are multiplied by attention_factor.
struct LongRopeScaling {
  std::vector<double> short_factor, long_factor;  // [D / 2]
  int64_t original_max_position_embeddings = 0;
  double attention_factor = 1.0;
  bool operator==(const LongRopeScaling&) const = default;
};

using RopeScaling =
    std::variant<Llama3RopeScaling, LinearRopeScaling, DynamicRopeScaling, YarnRopeScaling, LongRopeScaling>;

}  // namespace mpzero::model
