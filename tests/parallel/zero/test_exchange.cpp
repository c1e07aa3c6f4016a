// Oracle: sums over the nodes in fp64, and what error feedback promises.

#include <ATen/ATen.h>

#include "base/collectives.hpp"
#include "parallel/zero/exchange.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/compression_checks.hpp"
#include "tests/parallel/same_bits.hpp"
#include "tests/parallel/virtual_nodes.hpp"

namespace mpzero::parallel {
namespace {

// A unit whose shards are no multiples of a block, and a small one.
std::vector<FlatLayout> layouts_of(const ParallelLayout& ranks) {
  return {FlatLayout(5000, ranks.ranks(), ranks.nodes), FlatLayout(70, ranks.ranks(), ranks.nodes)};
}

// The node sums of one rank's node shard in one step: the same for all that compute them.
at::Tensor node_sum(const FlatLayout& layout, int64_t step, int64_t place, int64_t node) {
  at::manual_seed(static_cast<uint64_t>(1000 * step + 100 * place + node));
  return at::randn({layout.node_shard_numel()}) * at::exp(at::randn({layout.node_shard_numel()}));
}

struct Exchanged {
  std::vector<at::Tensor> sums;  // of the shard over all steps, in fp64, by unit
  std::vector<at::Tensor> exact;
  std::vector<at::Tensor> residuals;
  std::vector<at::Tensor> first_sums;
};

Exchanged run(int ranks_per_node, const Compression& compression, int64_t steps, at::ScalarType residual_dtype) {
  VirtualNodes ranks(ranks_per_node);
  const Levels levels = ranks.levels();
  const std::vector<FlatLayout> layouts = layouts_of(levels.layout());
  GradientExchange exchange(layouts, levels.shard_index(), levels.inter_node(),
                            {.compression = compression, .residual_dtype = residual_dtype, .device = at::kCPU});
  const int64_t nodes = levels.layout().nodes, place = levels.intra_node().rank();
  Exchanged all;
  for (size_t u = 0; u < layouts.size(); ++u) {
    const int64_t count = layouts[u].shard_numel();
    all.sums.push_back(at::zeros({count}, at::kDouble));
    all.exact.push_back(at::zeros({count}, at::kDouble));
    for (int64_t step = 1; step <= steps; ++step) {
      exchange.begin_step(step);
      const at::Tensor shard = at::zeros({count});
      exchange.sum(u, node_sum(layouts[u], step, place, levels.node()), shard)->wait();
      if (step == 1) all.first_sums.push_back(shard.clone());
      all.sums[u] += shard;
      for (int64_t node = 0; node < nodes; ++node) {
        all.exact[u] += node_sum(layouts[u], step, place, node).narrow(0, levels.node() * count, count);
      }
    }
    all.residuals.push_back(exchange.residual(u).clone());
  }
  return all;
}

// What the other nodes have not sent yet of this rank's shard of the unit.
at::Tensor residuals_of_others(const at::Tensor& residual, int ranks_per_node) {
  VirtualNodes ranks(ranks_per_node);
  const Levels levels = ranks.levels();
  const int64_t nodes = levels.layout().nodes, own = levels.node();
  const at::Tensor mine = residual.to(at::kFloat);
  const at::Tensor all = at::zeros({nodes, nodes - 1, mine.size(1)});
  levels.inter_node().all_gather(mine.flatten(), all.view({-1}))->wait();
  at::Tensor sum = at::zeros({mine.size(1)}, at::kDouble);
  for (int64_t node = 0; node < nodes; ++node) {
    if (node != own) sum += all[node][own < node ? own : own - 1];
  }
  return sum;
}

}  // namespace

TEST_CASE("over many steps, the received sum is exact except for the remaining residual") {
  for (const int size : node_sizes()) {
    for (const int bits : {8, 4}) {
      for (const at::ScalarType kept : {at::kFloat, at::kBFloat16}) {
        const int64_t steps = 20;
        const Exchanged all = run(size, {.gradient_bits = bits, .weights = false, .seed = 3}, steps, kept);
        for (size_t u = 0; u < all.sums.size(); ++u) {
          INFO(size << " ranks a node, " << bits << " bits, unit " << u << ", kept in " << c10::toString(kept));
          const at::Tensor missing = all.exact[u] - all.sums[u];
          const at::Tensor unsent = residuals_of_others(all.residuals[u], size);
          REQUIRE(unsent.abs().max().item<double>() > 0);
          // fp32 sums of 20 steps of values up to 100 or so; a bf16 residual is rounded by 1/256 of itself a step.
          const double rounding = kept == at::kFloat ? 1e-5 : 1.0 / 256 * unsent.abs().max().item<double>();
          CHECK((missing - unsent).abs().max().item<double>() < static_cast<double>(steps) * (rounding + 1e-5));
        }
      }
    }
  }
}

TEST_CASE("the error of a single step is within the quantization step") {
  for (const int size : node_sizes()) {
    const Exchanged fine = run(size, {.gradient_bits = 8}, 1, at::kFloat);
    const Exchanged coarse = run(size, {.gradient_bits = 4}, 1, at::kFloat);
    for (size_t u = 0; u < fine.sums.size(); ++u) {
      const double norm = fine.exact[u].norm().item<double>();
      const double error = (fine.sums[u] - fine.exact[u]).norm().item<double>();
      CHECK(error > 0);
      CHECK(error < 0.05 * norm);
      CHECK((coarse.sums[u] - coarse.exact[u]).norm().item<double>() > 3 * error);
    }
  }
}

TEST_CASE("a repeated run has the same bits, and a different seed gives different bits") {
  for (const int size : node_sizes()) {
    const Compression compression{.gradient_bits = 8, .weights = false, .seed = 5};
    const Exchanged one = run(size, compression, 3, at::kBFloat16);
    const Exchanged again = run(size, compression, 3, at::kBFloat16);
    Compression reseeded = compression;
    reseeded.seed = 6;
    const Exchanged other = run(size, reseeded, 3, at::kBFloat16);
    for (size_t u = 0; u < one.sums.size(); ++u) {
      REQUIRE(same_bits(one.sums[u], again.sums[u]));
      REQUIRE(same_bits(one.residuals[u], again.residuals[u]));
      REQUIRE(!same_bits(one.first_sums[u], other.first_sums[u]));
    }
  }
}

TEST_CASE("each step, unit, sender and receiver is rounded with different random numbers") {
  for (const int size : node_sizes()) {
    VirtualNodes ranks(size);
    const Levels levels = ranks.levels();
    check_exchange_rounding(levels.inter_node(), levels.layout(), levels.shard_index(), at::kCPU);
  }
}

}  // namespace mpzero::parallel
