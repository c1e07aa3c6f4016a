#include "io/data/mixture.hpp"

namespace mpzero::io {

size_t draw(std::span<MixtureSource> sources) {
  double total = 0, draws = 1;
  for (const MixtureSource& source : sources) {
    total += source.weight;
    draws += static_cast<double>(source.drawn);
  }
  // Selects the first source with the largest weight / (drawn + 1) among the sources below their upper quota.
  const MixtureSource* next = nullptr;
  for (const MixtureSource& source : sources) {
    const auto drawn = static_cast<double>(source.drawn);
    if (drawn * total >= source.weight * draws) continue;
    if (next == nullptr || source.weight * static_cast<double>(next->drawn + 1) > next->weight * (drawn + 1)) {
      next = &source;
    }
  }
  const auto index = static_cast<size_t>(next - sources.data());
  ++sources[index].windows_seen;
  ++sources[index].drawn;
  return index;
}

}  // namespace mpzero::io
