#include "parallel/optimizer/host_memory_plan.hpp"

#include <algorithm>
#include <numeric>

#include "parallel/optimizer/adamw_kernels.hpp"

namespace mpzero::parallel {
namespace {

constexpr int64_t kHostBytes = 18;  // maximum per parameter

// A piece is large enough for copies at full PCIe bandwidth and for several threads. There are enough pieces to keep
// both directions of the bus and the threads busy, but few enough to fit into the last-level cache. Gradients and
// parameters in transit then do not use the host's memory bandwidth, which is the bottleneck of the update.
constexpr int64_t kPieceNumel = int64_t{1} << 20;
constexpr int64_t kPieces = 8;

// Returns the bytes of a parameter's fp32 master weight and moments.
int64_t state_bytes(c10::ScalarType moment_dtype) {
  return static_cast<int64_t>(sizeof(float) + 2 * c10::elementSize(moment_dtype));
}

HostMemoryPlan plan_pieces(const HostMemoryDemand& demand) {
  if (demand.lengths.empty()) return {};
  const int64_t longest = *std::max_element(demand.lengths.begin(), demand.lengths.end());
  const int64_t blocks = (longest + kHostBlock - 1) / kHostBlock;
  HostMemoryPlan plan;
  plan.moment_dtype = demand.moment_dtype;
  plan.keeps_gradients = demand.keeps_gradients;
  plan.piece_numel = std::min(kPieceNumel, blocks * kHostBlock);
  if (!demand.staged) return plan;
  plan.pieces = kPieces;
  const auto bytes = [&](c10::ScalarType type) {
    return plan.piece_numel * static_cast<int64_t>(c10::elementSize(type));
  };
  plan.piece_bytes = (demand.keeps_gradients ? 0 : bytes(demand.gradient_dtype)) + bytes(demand.parameter_dtype);
  return plan;
}

}  // namespace

int64_t HostMemoryPlan::spare_bytes() const {
  int64_t bytes = 0;
  for (const auto& [length, count] : spares) bytes += length * count * state_bytes(moment_dtype);
  return bytes;
}

int64_t default_extra_bytes(const HostMemoryDemand& demand) {
  const int64_t numel = std::accumulate(demand.lengths.begin(), demand.lengths.end(), int64_t{0});
  const int64_t parameter_bytes =
      demand.parameters_stay ? static_cast<int64_t>(c10::elementSize(demand.parameter_dtype)) : 0;
  return std::max<int64_t>(0, numel * (kHostBytes - state_bytes(demand.moment_dtype) - parameter_bytes) -
                                  plan_pieces(demand).staging_bytes());
}

HostMemoryPlan plan_host_memory(const HostMemoryDemand& demand, int64_t extra_bytes) {
  HostMemoryPlan plan = plan_pieces(demand);
  int64_t left = extra_bytes;
  for (auto length = demand.lengths.rbegin(); length != demand.lengths.rend(); ++length) {
    left -= *length * state_bytes(demand.moment_dtype);
    if (left < 0) break;
    ++plan.spares[*length];
  }
  return plan;
}

}  // namespace mpzero::parallel
