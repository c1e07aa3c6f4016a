#include "parallel/zero/flat_unit.hpp"

#include <algorithm>

namespace mpzero::parallel {
namespace {

// In elements: 128 bytes of bf16.
constexpr int64_t kPartAlignment = 64;

}  // namespace

FlatLayout::FlatLayout(int64_t numel, int parts) : parts_(parts), numel_(numel) {
  const int64_t share = (numel + parts - 1) / parts;
  part_numel_ = (share + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

int64_t FlatLayout::part_used(int part) const { return std::clamp<int64_t>(numel_ - part_begin(part), 0, part_numel_); }

std::vector<at::Tensor> parameter_views(const at::Tensor& flat, const UnitSpec& unit) {
  std::vector<at::Tensor> views;
  views.reserve(unit.parameters.size());
  int64_t offset = 0;
  for (const ParameterSpec& parameter : unit.parameters) {
    views.push_back(flat.narrow(0, offset, parameter.numel()).view(parameter.shape));
    offset += parameter.numel();
  }
  return views;
}

}  // namespace mpzero::parallel
