// Oracle: what the optimizer wrote, which all copies must follow, and the bits of the other ranks' copies.

#include <ATen/ATen.h>

#include "parallel/quantization/block_format.hpp"
#include "parallel/zero/exchange.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/same_bits.hpp"
#include "tests/parallel/virtual_nodes.hpp"

namespace mpzero::parallel {
namespace {

std::vector<FlatLayout> layouts_of(const ParallelLayout& ranks) {
  return {FlatLayout(5000, ranks.ranks(), ranks.nodes), FlatLayout(70, ranks.ranks(), ranks.nodes)};
}

// A node's new values in a step: weights with updates of Adam's size, the same for all that compute them.
at::Tensor new_values(int64_t count, int64_t step, int64_t place, int64_t node) {
  at::manual_seed(static_cast<uint64_t>(100 * place + node));
  at::Tensor values = at::randn({count}) * 0.02;
  for (int64_t s = 0; s < step; ++s) values += at::randn({count}) * 1e-3;
  return values;
}

// Requires that all nodes hold the same bits of the node shard.
void check_equal_on_all_nodes(const at::Tensor& node_shard, Communicator& inter_node) {
  const at::Tensor all = at::zeros({inter_node.world_size() * node_shard.numel()}, node_shard.options());
  inter_node.all_gather(node_shard, all)->wait();
  for (int64_t node = 0; node < inter_node.world_size(); ++node) {
    REQUIRE(same_bits(all.narrow(0, node * node_shard.numel(), node_shard.numel()), node_shard));
  }
}

}  // namespace

TEST_CASE("all nodes have bitwise equal copies, which follow the optimizers' values") {
  for (const int size : node_sizes()) {
    VirtualNodes ranks(size);
    const Levels levels = ranks.levels();
    const std::vector<FlatLayout> layouts = layouts_of(levels.layout());
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      ParameterExchange exchange(layouts, levels.shard_index(), levels.inter_node(), at::TensorOptions().dtype(type));
      for (size_t u = 0; u < layouts.size(); ++u) {
        INFO(size << " ranks a node, " << c10::toString(type) << ", unit " << u);
        const int64_t count = layouts[u].shard_numel();
        const at::Tensor node_shard = at::zeros({layouts[u].node_shard_numel()}, at::TensorOptions().dtype(type));
        for (int64_t step = 0; step <= 10; ++step) {
          exchange.wanted(u).copy_(new_values(count, step, levels.intra_node().rank(), levels.node()));
          exchange.gather(u, node_shard)->wait();
          check_equal_on_all_nodes(node_shard, levels.inter_node());
          for (int64_t node = 0; node < levels.layout().nodes; ++node) {
            const at::Tensor wanted =
                new_values(count, step, levels.intra_node().rank(), node).to(type).to(at::kDouble);
            const at::Tensor error = (node_shard.narrow(0, node * count, count).to(at::kDouble) - wanted).abs();
            if (step == 0) {
              // The values themselves.
              REQUIRE(error.max().item<double>() == 0);
            } else {
              // A difference is at most some 0.005 and what the last one lost; half a code, and bf16's rounding.
              const at::Tensor rounding = type == at::kFloat ? wanted.abs() * 1e-6 : wanted.abs() / 256;
              REQUIRE((error <= 0.006 / 127 / 2 + rounding).all().item<bool>());
            }
          }
          REQUIRE(same_bits(exchange.own(u, node_shard), node_shard.narrow(0, levels.node() * count, count)));
        }
        // Without updates the copy comes as near as its type allows, whatever was lost before.
        for (int repeat = 0; repeat < 4; ++repeat) exchange.gather(u, node_shard)->wait();
        const at::Tensor rest =
            (exchange.own(u, node_shard).to(at::kDouble) - exchange.wanted(u).to(at::kDouble)).abs();
        CHECK(rest.max().item<double>() <= (type == at::kFloat ? 1e-8 : 0.0));
      }
    }
  }
}

TEST_CASE("a copy that was set is sent unchanged, and the next difference starts from it") {
  for (const int size : node_sizes()) {
    VirtualNodes ranks(size);
    const Levels levels = ranks.levels();
    const std::vector<FlatLayout> layouts = layouts_of(levels.layout());
    const auto options = at::TensorOptions().dtype(at::kBFloat16);
    ParameterExchange straight(layouts, levels.shard_index(), levels.inter_node(), options);
    ParameterExchange resumed(layouts, levels.shard_index(), levels.inter_node(), options);
    for (size_t u = 0; u < layouts.size(); ++u) {
      const int64_t count = layouts[u].shard_numel(), place = levels.intra_node().rank();
      const at::Tensor one = at::zeros({layouts[u].node_shard_numel()}, options), other = at::zeros_like(one);
      const auto step = [&](ParameterExchange& exchange, int64_t number, const at::Tensor& node_shard) {
        exchange.wanted(u).copy_(new_values(count, number, place, levels.node()));
        exchange.gather(u, node_shard)->wait();
      };
      for (int64_t number = 0; number < 3; ++number) step(straight, number, one);
      // As a resumed run: the optimizer writes what it wrote, and the copy is what it was.
      resumed.wanted(u).copy_(new_values(count, 2, place, levels.node()));
      resumed.own(u, other).copy_(straight.own(u, one));
      resumed.begin_with_own(u);
      resumed.gather(u, other)->wait();
      REQUIRE(same_bits(one, other));
      for (int64_t number = 3; number < 6; ++number) {
        step(straight, number, one);
        step(resumed, number, other);
        REQUIRE(same_bits(one, other));
      }
      resumed.begin_with_wanted();
      step(resumed, 6, other);
      REQUIRE(same_bits(resumed.own(u, other), resumed.wanted(u)));
    }
  }
}

}  // namespace mpzero::parallel
