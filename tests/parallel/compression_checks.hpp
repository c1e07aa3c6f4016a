#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "parallel/quantization/quantize.hpp"
#include "parallel/zero/exchange.hpp"
#include "tests/parallel/engine_checks.hpp"
#include "tests/parallel/same_bits.hpp"

// Checks which random numbers each message is rounded with, on the CPU or a GPU. The oracle uses the CPU kernels, with
// the key (seed, step, unit, sending node) and the position in the unit of each message by definition.
namespace mpzero::parallel {

// Returns the residual [nodes - 1, shard_numel] of a node with `node_sum` [node_shard_numel] (fp32 on the CPU) after
// one step that began without a residual.
inline at::Tensor expected_residual(const at::Tensor& node_sum, const FlatLayout& layout, int nodes, int node,
                                    int shard_index, const Compression& compression, uint64_t step, uint64_t unit) {
  const int64_t count = layout.shard_numel();
  const BlockFormat& format = compression.gradient_bits == 4 ? kInt4 : kInt8;
  const RoundingKey key = rounding_key(compression.seed, step, unit, static_cast<uint64_t>(node));
  const at::Tensor message = at::zeros({format.message_bytes(count)}, at::kByte);
  std::vector<at::Tensor> residuals;
  for (int64_t to = 0; to < nodes; ++to) {
    if (to == node) continue;
    const at::Tensor residual = residuals.emplace_back(at::zeros({count}));
    // A node shard begins at the first of its `nodes` shards.
    const int64_t position = (shard_index / nodes * nodes + to) * count;
    quantize_with_residual(node_sum.narrow(0, to * count, count), residual, message, format, key, position);
  }
  return at::stack(residuals);
}

// Returns the correlation of two vectors of rounding errors. For independent vectors, it has mean 0 and standard
// deviation 1 / sqrt(length).
inline double correlation(const at::Tensor& one, const at::Tensor& other) {
  const at::Tensor a = one.cpu().to(at::kDouble).flatten(), b = other.cpu().to(at::kDouble).flatten();
  return (a.dot(b) / (a.norm() * b.norm())).item<double>();
}

// Requires that the correlation of any two elements of `errors` is within 5 standard deviations.
inline void check_independent(const std::vector<at::Tensor>& errors) {
  for (size_t i = 0; i < errors.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      INFO("errors " << j << " and " << i << " of " << errors.size());
      REQUIRE(std::abs(correlation(errors[i], errors[j])) < 5 / std::sqrt(static_cast<double>(errors[i].numel())));
    }
  }
}

// Sums the same values in several steps and units and for several nodes, and checks that each sum is rounded with
// different random numbers.
inline void check_exchange_rounding(Communicator& inter_node, const ParallelLayout& ranks, int shard_index,
                                    at::Device device) {
  const int nodes = ranks.nodes, node = inter_node.rank();
  const int64_t numel = int64_t{6000} * ranks.ranks();
  const std::vector<FlatLayout> layouts(2, FlatLayout(numel, ranks.ranks(), nodes));
  const int64_t count = layouts[0].shard_numel();
  at::manual_seed(3);
  const at::Tensor node_sum = at::randn({count}).repeat({nodes});
  for (const int bits : {8, 4}) {
    const Compression compression{.gradient_bits = bits, .weights = false, .seed = 9};
    GradientExchange exchange(layouts, shard_index, inter_node,
                              {.compression = compression, .residual_dtype = at::kFloat, .device = device});
    std::vector<at::Tensor> errors;
    for (const int64_t step : {1, 2, 1000}) {
      exchange.clear();
      exchange.begin_step(step);
      for (size_t u = 0; u < layouts.size(); ++u) {
        INFO(bits << " bits, step " << step << ", unit " << u << ", node " << node << " of " << nodes);
        const at::Tensor shard = at::zeros({count}, at::TensorOptions().device(device));
        exchange.sum(u, node_sum.to(device), shard)->wait();
        const at::Tensor residual = exchange.residual(u).cpu().clone();
        REQUIRE(same_bits(residual, expected_residual(node_sum, layouts[u], nodes, node, shard_index, compression,
                                                      static_cast<uint64_t>(step), u)));
        for (int64_t other = 0; other + 1 < nodes; ++other) errors.push_back(residual[other]);
      }
    }
    check_independent(errors);
  }
}

// Checks that an engine rounds the gradients of update n with the key of step n, even if it skipped earlier updates.
// Each node has one rank.
inline void check_engine_rounding(at::Device device, const Levels& parameters, const Levels& gradients,
                                  ProcessGroup& group) {
  const int nodes = gradients.layout().nodes;
  for (const int64_t before : {0, 4}) {
    for (const int bits : {8, 4}) {
      ToyRun run{.stage = 2, .samples = nodes, .steps = before + 1, .dtype = at::kFloat};
      run.compression = {.gradient_bits = bits, .weights = false, .seed = 11};
      ZeroEngine engine = make_toy_engine(run, device, parameters, gradients);
      engine.initialize(ToyWeights(), group);
      train_toy(engine, run, device, group.rank(), group.world_size(), /*first_step=*/before);
      for (size_t u = 0; u < toy_units().size(); ++u) {
        INFO(bits << " bits, update " << before + 1 << ", unit " << u);
        const FlatLayout layout(toy_units()[u].numel(), nodes, nodes);
        const at::Tensor sum = at::zeros({layout.padded_numel()});
        for (int64_t sample = group.rank(); sample < run.samples; sample += group.world_size()) {
          sum.narrow(0, 0, layout.numel()).add_(toy_gradient(toy_units()[u], before, sample));
        }
        const at::Tensor residual = engine.carried(u).gradient_residual.cpu();
        // In small units, the shards of other ranks are padding.
        if (u == 1) REQUIRE(residual.abs().max().item<float>() > 0);
        REQUIRE(same_bits(residual, expected_residual(sum, layout, nodes, gradients.node(), gradients.shard_index(),
                                                      run.compression, static_cast<uint64_t>(before + 1), u)));
      }
    }
  }
}

}  // namespace mpzero::parallel
