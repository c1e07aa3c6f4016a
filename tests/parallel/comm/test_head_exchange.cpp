#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include "base/error.hpp"
#include "parallel/comm/head_exchange.hpp"
#include "parallel/comm/mpi_communicator.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

namespace mpzero::parallel {
namespace {

constexpr int64_t kBatch = 2, kLength = 8, kHeadDim = 3;

// [B, T, heads, D] with distinct elements.
at::Tensor whole(int64_t heads) {
  return at::arange(kBatch * kLength * heads * kHeadDim, at::kFloat).view({kBatch, kLength, heads, kHeadDim});
}

}  // namespace

TEST_CASE("each rank exchanges its tokens of all heads for all tokens of the heads that its queries read") {
  MpiCommunicator group(mpi());
  const HeadExchange exchange(group);
  const int64_t ranks = group.world_size(), tokens = kLength / ranks;
  constexpr int64_t kQueryHeads = 12;
  const int64_t queries = kQueryHeads / ranks;
  for (const int64_t heads : {1, 2, 3, 6, 12}) {
    INFO(heads << " heads");
    const at::Tensor all = whole(heads);
    const at::Tensor x = all.narrow(1, group.rank() * tokens, tokens);
    const at::Tensor y = exchange.to_heads(x);
    const int64_t local = exchange.local_heads(heads);
    REQUIRE(y.sizes() == at::IntArrayRef({kBatch, kLength, local, kHeadDim}));
    REQUIRE(queries % local == 0);
    for (int64_t query = 0; query < queries; ++query) {
      const int64_t read = (group.rank() * queries + query) / (kQueryHeads / heads);
      CHECK(at::equal(y.select(2, query / (queries / local)), all.select(2, read)));
    }
    // The way back sums as many copies as there are of each head.
    CHECK(at::equal(exchange.to_tokens(y, heads), x.mul(local * ranks / heads)));
  }
}

TEST_CASE("the gradients of repeated heads are summed") {
  MpiCommunicator group(mpi());
  const HeadExchange exchange(group);
  const int64_t ranks = group.world_size(), tokens = kLength / ranks;
  // One head: each rank has a copy, whose gradient here is `all` times the rank counted from 1.
  const at::Tensor all = whole(1);
  const at::Tensor dx = exchange.to_tokens(all.mul(group.rank() + 1), 1);
  CHECK(at::equal(dx, all.narrow(1, group.rank() * tokens, tokens).mul(ranks * (ranks + 1) / 2)));
}

TEST_CASE("heads that do not match the exchange are refused before it starts") {
  MpiCommunicator group(mpi());
  const HeadExchange exchange(group);
  CHECK_THROWS_AS(exchange.to_tokens(whole(exchange.local_heads(4) + 1), 4), Failure);
}

}  // namespace mpzero::parallel
