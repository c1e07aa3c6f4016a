#pragma once

#include <ATen/ATen.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "parallel/comm/communicator.hpp"
#include "tests/catch.hpp"

namespace mpzero::parallel {

// Compares each collective on `device`, in place and out of place, with its definition.
inline void check_collectives(Communicator& communicator, at::Device device) {
  const int rank = communicator.rank();
  const int world_size = communicator.world_size();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const int64_t n : {1, 64, 5000}) {
      const auto options = at::TensorOptions().dtype(dtype).device(device);
      at::Tensor expected = at::zeros({n * world_size}, options);
      for (int r = 0; r < world_size; ++r) expected.narrow(0, r * n, n).fill_(r + 1);

      at::Tensor full = at::zeros({n * world_size}, options);
      communicator.all_gather(at::full({n}, rank + 1, options), full)->wait();
      REQUIRE(full.equal(expected));

      full = at::zeros({n * world_size}, options);
      const at::Tensor own_shard = full.narrow(0, rank * n, n);
      own_shard.fill_(rank + 1);
      communicator.all_gather(own_shard, full)->wait();
      REQUIRE(full.equal(expected));

      // Rank r contributes (r + 1) * i at element i of its shard: small integers, exact in bf16.
      const at::Tensor ramp = at::arange(n * world_size, options.dtype(at::kLong)).remainder(8).to(dtype);
      const double factor = world_size * (world_size + 1) / 2.0;
      const at::Tensor sum = (ramp * factor).narrow(0, rank * n, n);
      at::Tensor shard = at::zeros({n}, options);
      communicator.reduce_scatter_sum(ramp * (rank + 1), shard)->wait();
      REQUIRE(shard.equal(sum));

      full = ramp * (rank + 1);
      shard = full.narrow(0, rank * n, n);
      communicator.reduce_scatter_sum(full, shard)->wait();
      REQUIRE(shard.equal(sum));

      // Sums in the communicator's own memory, accumulated over two calls, in the same dtype and in fp32.
      for (const at::ScalarType kept : {dtype, dtype == at::kDouble ? dtype : at::kFloat}) {
        const at::Tensor own = communicator.buffer(n * world_size, options);
        const at::Tensor kept_shard = communicator.buffer(n, options.dtype(kept));
        for (const SumMode mode : {SumMode::kOverwrite, SumMode::kAdd}) {
          own.copy_(ramp * (rank + 1));
          communicator.reduce_scatter_sum(own, kept_shard, mode)->wait();
        }
        REQUIRE(kept_shard.equal((sum * 2).to(kept)));
      }

      full = ramp * (rank + 1);
      communicator.all_reduce_sum(full)->wait();
      REQUIRE(full.equal(ramp * factor));
    }
  }
  // Bytes: rank r sends 16 * r + s to rank s.
  for (const int64_t n : {1, 48, 5000}) {
    const auto bytes = at::TensorOptions().dtype(at::kByte).device(device);
    const at::Tensor sent = communicator.buffer(n * world_size, bytes);
    const at::Tensor received = communicator.buffer(n * world_size, bytes);
    const at::Tensor expected = at::zeros({n * world_size}, bytes);
    for (int r = 0; r < world_size; ++r) {
      sent.narrow(0, r * n, n).fill_(16 * rank + r);
      expected.narrow(0, r * n, n).fill_(16 * r + rank);
    }
    communicator.all_to_all(sent, received)->wait();
    REQUIRE(received.equal(expected));
    communicator.all_gather(sent.narrow(0, rank * n, n), received)->wait();
    for (int r = 0; r < world_size; ++r) expected.narrow(0, r * n, n).fill_(17 * r);
    REQUIRE(received.equal(expected));
  }
}

}  // namespace mpzero::parallel
