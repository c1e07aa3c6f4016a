#include "parallel/comm/copy_engines.hpp"

#include <fmt/format.h>

#include "parallel/comm/library_versions.hpp"

namespace mpzero::parallel {

std::optional<std::string> copy_engine_hazard(int nccl_version, int world_size) {
  // With two ranks, and no others, the flags of a collective go through a multicast object that the peer may not have
  // mapped yet, so that it waits for ever (https://github.com/NVIDIA/nccl/issues/2241, mended in 2.31.2).
  constexpr int kFirst = 22900;
  constexpr int kMended = 23102;
  if (world_size != 2 || nccl_version < kFirst || nccl_version >= kMended) return std::nullopt;
  return fmt::format(
      "NCCL {} can hang in the first collective that copy engines do between two ranks (NVIDIA/nccl issue 2241), so "
      "NCCL's kernels do them, on multiprocessors that computing lacks; NCCL {} and later do not hang",
      version_text(nccl_version), version_text(kMended));
}

}  // namespace mpzero::parallel
