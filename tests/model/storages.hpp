#pragma once

#include <ATen/core/Tensor.h>

#include <set>
#include <vector>

namespace mpzero::model {

// Returns the bytes that the tensors keep alive. Each storage counts once, in full.
inline int64_t storage_bytes(const std::vector<at::Tensor>& tensors) {
  std::set<const void*> seen;
  int64_t sum = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !seen.insert(tensor.storage().unsafeGetStorageImpl()).second) continue;
    sum += static_cast<int64_t>(tensor.storage().nbytes());
  }
  return sum;
}

}  // namespace mpzero::model
