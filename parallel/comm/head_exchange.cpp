#include "parallel/comm/head_exchange.hpp"

#include <ATen/ops/empty_like.h>

#include <numeric>

#include "base/error.hpp"

namespace mpzero::parallel {

int64_t HeadExchange::local_heads(int64_t heads) const {
  const int64_t ranks = group_->world_size();
  return std::lcm(heads, ranks) / ranks;
}

at::Tensor HeadExchange::exchange(const at::Tensor& sent) const {
  at::Tensor received = at::empty_like(sent);
  group_->all_to_all(sent.view({-1}), received.view({-1}))->wait();
  return received;
}

at::Tensor HeadExchange::to_heads(const at::Tensor& x) const {
  const int64_t ranks = group_->world_size();
  const int64_t batch = x.size(0), tokens = x.size(1), heads = x.size(2), head_dim = x.size(3);
  const int64_t local = local_heads(heads);
  const int64_t copies = local * ranks / heads;
  const at::Tensor sent = x.unsqueeze(3)
                              .expand({batch, tokens, heads, copies, head_dim})
                              .reshape({batch, tokens, ranks, local, head_dim})
                              .permute({2, 0, 1, 3, 4})
                              .contiguous();
  return exchange(sent).permute({1, 0, 2, 3, 4}).reshape({batch, ranks * tokens, local, head_dim});
}

at::Tensor HeadExchange::to_tokens(const at::Tensor& y, int64_t heads) const {
  const int64_t ranks = group_->world_size();
  const int64_t batch = y.size(0), local = y.size(2), head_dim = y.size(3);
  if (local != local_heads(heads) || y.size(1) % ranks != 0) {
    throw_failure("cannot exchange {} tokens with {} local heads for {} heads on {} ranks", y.size(1), local, heads,
                  ranks);
  }
  const int64_t tokens = y.size(1) / ranks;
  const at::Tensor sent = y.reshape({batch, ranks, tokens, local, head_dim}).permute({1, 0, 2, 3, 4}).contiguous();
  const at::Tensor all = exchange(sent).permute({1, 2, 0, 3, 4});
  const int64_t copies = local * ranks / heads;
  const at::Tensor by_head = all.reshape({batch, tokens, heads, copies, head_dim});
  return copies == 1 ? by_head.squeeze(3) : by_head.sum(3);
}

}  // namespace mpzero::parallel
