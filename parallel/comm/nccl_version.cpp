#include <nccl.h>

#include "parallel/comm/library_versions.hpp"

namespace mpzero::parallel {

int nccl_version_code() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

}  // namespace mpzero::parallel
