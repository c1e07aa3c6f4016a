#include "parallel/comm/copy_engines.hpp"

#include <fmt/format.h>

#include "parallel/comm/library_versions.hpp"

namespace mpzero::parallel {

std::optional<std::string> copy_engine_hazard(int nccl_version, int world_size) {
  // With exactly two ranks, the flags of a collective use a multicast object that the peer may not have mapped yet, so
  // the collective hangs (https://github.com/NVIDIA/nccl/issues/2241, fixed in 2.31.2).
  constexpr int kFirst = 22900;
  constexpr int kFixed = 23102;
  if (world_size != 2 || nccl_version < kFirst || nccl_version >= kFixed) return std::nullopt;
  return fmt::format(
      "NCCL {} can hang in the first copy-engine collective between two ranks (NVIDIA/nccl issue 2241); using "
      "NCCL kernels instead, which occupy SMs; upgrade to NCCL {} or later",
      version_text(nccl_version), version_text(kFixed));
}

}  // namespace mpzero::parallel
