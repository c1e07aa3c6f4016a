#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/mpi_communicator.hpp"
#include "parallel/comm_thread/communication_thread.hpp"
#include "parallel/mpi/late_sum.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/same_bits.hpp"

namespace mpzero::parallel {

// A random program of collectives over several communicators, with many collectives in flight at a time. Results must
// be bitwise equal to those that one process computes from all ranks' data. All ranks run the same program, but wait at
// different times. Calls of the control plane are interleaved.
class RandomCollectives {
 public:
  // Uses two communicators over all ranks, one of which uses a ring for gathers. With `two_levels`, also uses the
  // communicators within and between nodes of two ranks.
  RandomCollectives(MpiRuntime& mpi, unsigned seed, bool two_levels)
      : mpi_(mpi), program_(seed), own_(seed * 31 + static_cast<unsigned>(mpi.rank())) {
    add(mpi, {}, /*around_ring=*/false);
    add(mpi, {}, /*around_ring=*/true);
    if (!two_levels) return;
    node_ = mpi.split(mpi.rank() / 2);
    place_ = mpi.split(mpi.rank() % 2);
    add(*node_, {mpi.rank() / 2 * 2, 1}, /*around_ring=*/false);
    add(*place_, {mpi.rank() % 2, 2}, /*around_ring=*/false);
  }

  void run(int collectives) {
    for (int i = 0; i < collectives; ++i) {
      INFO("collective " << i);
      if (groups_.size() > 2 && below(program_, 5) == 0) {
        start_on_both_levels(i);
      } else {
        start_one(i);
      }
      if (below(program_, 3) == 0) call_control_plane(i);
      while (!open_.empty() && below(own_, 3) == 0) check(below(own_, static_cast<unsigned>(open_.size())));
      // Limits the number of collectives in flight, because memory is limited.
      while (open_.size() > 12) check(0);
    }
    while (!open_.empty()) check(below(own_, static_cast<unsigned>(open_.size())));
  }

 private:
  struct Group {
    std::unique_ptr<MpiCommunicator> communicator;
    int first = 0, stride = 1;  // rank r of the group is global rank first + r * stride
    int rank_of_all(int rank) const { return first + rank * stride; }
  };
  struct Open {
    std::string what;
    std::unique_ptr<PendingCollective> pending{};
    std::vector<at::Tensor> alive{};
    at::Tensor result{}, expected{};
  };

  static unsigned below(std::minstd_rand& random, unsigned limit) { return static_cast<unsigned>(random()) % limit; }

  void add(const MpiRuntime& mpi, std::pair<int, int> place, bool around_ring) {
    groups_.push_back({.communicator = std::make_unique<MpiCommunicator>(mpi, around_ring),
                       .first = place.first,
                       .stride = place.second == 0 ? 1 : place.second});
  }

  // Returns the data of global rank `rank` in a collective. The values are not small integers, so a sum in a different
  // order has different bits.
  static at::Tensor data(int64_t numel, at::ScalarType type, int collective, int rank) {
    const at::Tensor values = at::empty({numel}, at::kFloat);
    float* const to = values.data_ptr<float>();
    uint32_t state = static_cast<uint32_t>(collective) * 2654435761U + static_cast<uint32_t>(rank) * 40503U + 1;
    for (int64_t i = 0; i < numel; ++i) {
      state = state * 1664525U + 1013904223U;
      to[i] = static_cast<float>(static_cast<int32_t>(state >> 8) - (1 << 23)) / 65536.0F;
    }
    return values.to(type);
  }

  // Returns the sum in rank order, in fp32 or fp64, without rounding to `type`.
  at::Tensor sum(const Group& group, int64_t numel, at::ScalarType type, int collective) const {
    const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
    at::Tensor total = data(numel, type, collective, group.rank_of_all(0)).to(wide);
    for (int rank = 1; rank < group.communicator->world_size(); ++rank) {
      total = total + data(numel, type, collective, group.rank_of_all(rank)).to(wide);
    }
    return total;
  }

  int64_t random_length() {
    static constexpr std::array<unsigned, 5> kLimits{1, 40, 3000, 200'000, 700'000};
    return 1 + below(program_, kLimits[below(program_, below(program_, 4) == 0 ? 5 : 4)]);
  }
  at::ScalarType random_type() {
    static constexpr std::array<at::ScalarType, 4> kTypes{at::kBFloat16, at::kFloat, at::kBFloat16, at::kDouble};
    return kTypes[below(program_, 4)];
  }

  void start_one(int collective) {
    const Group& group = groups_[below(program_, static_cast<unsigned>(groups_.size()))];
    Communicator& communicator = *group.communicator;
    const int ranks = communicator.world_size(), rank = communicator.rank();
    const int own = group.rank_of_all(rank);
    const int64_t n = random_length();
    const at::ScalarType type = random_type();
    const bool in_place = below(program_, 2) == 0;
    Open open;
    switch (below(program_, 4)) {
      case 0: {
        const at::Tensor full = at::zeros({ranks * n}, type);
        at::Tensor shard = in_place ? full.narrow(0, rank * n, n) : at::zeros({n}, type);
        shard.copy_(data(n, type, collective, own));
        open = {
            .what = "all_gather", .pending = communicator.all_gather(shard, full), .alive = {shard}, .result = full};
        open.expected = at::zeros({ranks * n}, type);
        for (int r = 0; r < ranks; ++r) {
          open.expected.narrow(0, r * n, n).copy_(data(n, type, collective, group.rank_of_all(r)));
        }
        break;
      }
      case 1: {
        const bool adds = !in_place && below(program_, 2) == 0;
        const at::ScalarType kept = !in_place && type == at::kBFloat16 && below(program_, 2) == 0 ? at::kFloat : type;
        const at::Tensor full = data(ranks * n, type, collective, own);
        at::Tensor shard = in_place ? full.narrow(0, rank * n, n) : data(n, kept, collective, -1);
        const at::Tensor total = sum(group, ranks * n, type, collective).narrow(0, rank * n, n);
        open.expected = (adds ? shard.to(total.scalar_type()) + total : total).to(kept);
        open.what = "reduce_scatter";
        open.pending = communicator.reduce_scatter_sum(full, shard, adds ? SumMode::kAdd : SumMode::kOverwrite);
        open.alive = {full};
        open.result = shard;
        break;
      }
      case 2: {
        const at::Tensor sent = data(ranks * n, type, collective, own);
        open.result = at::zeros({ranks * n}, type);
        open.expected = at::zeros({ranks * n}, type);
        for (int r = 0; r < ranks; ++r) {
          const at::Tensor theirs = data(ranks * n, type, collective, group.rank_of_all(r));
          open.expected.narrow(0, r * n, n).copy_(theirs.narrow(0, rank * n, n));
        }
        open.what = "all_to_all";
        open.pending = communicator.all_to_all(sent, open.result);
        open.alive = {sent};
        break;
      }
      default: {
        open.result = data(n, type, collective, own);
        open.expected = sum(group, n, type, collective).to(type);
        open.what = "all_reduce";
        open.pending = communicator.all_reduce_sum(open.result);
      }
    }
    open_.push_back(std::move(open));
  }

  // Reduces within the node and then between nodes without waiting, as for gradients.
  void start_on_both_levels(int collective) {
    const Group &node = groups_[2], &place = groups_[3];
    const int64_t nodes = place.communicator->world_size(), peers = node.communicator->world_size();
    const int64_t n = random_length();
    const at::Tensor full =
        data(peers * nodes * n, at::kBFloat16, collective, node.rank_of_all(node.communicator->rank()));
    const at::Tensor node_sum = at::zeros({nodes * n}, at::kFloat);
    const at::Tensor rounded = at::zeros({nodes * n}, at::kBFloat16);
    Open open{.what = "both levels", .alive = {full, node_sum, rounded}, .result = at::zeros({n}, at::kFloat)};
    const std::unique_ptr<PendingCollective> within = node.communicator->reduce_scatter_sum(full, node_sum);
    {
      HostOrder order;
      within->wait();
      order.run([node_sum, rounded] { rounded.copy_(node_sum); });
      open.pending = place.communicator->reduce_scatter_sum(rounded, open.result);
    }
    at::Tensor total = at::zeros({n}, at::kFloat);
    for (int64_t other = 0; other < nodes; ++other) {
      at::Tensor sum_of_node = at::zeros({n}, at::kFloat);
      for (int64_t peer = 0; peer < peers; ++peer) {
        const at::Tensor theirs =
            data(peers * nodes * n, at::kBFloat16, collective, static_cast<int>(other * peers + peer));
        const int64_t begin = (node.communicator->rank() * nodes + place.communicator->rank()) * n;
        sum_of_node = sum_of_node + theirs.narrow(0, begin, n).to(at::kFloat);
      }
      total = total + sum_of_node.to(at::kBFloat16).to(at::kFloat);
    }
    open.expected = total;
    open_.push_back(std::move(open));
  }

  // Calls the control plane while tensors are in flight, as in the training loop. Each rank contributes `value(rank)`.
  void call_control_plane(int i) {
    const int ranks = mpi_.world_size();
    const auto value = [i](int rank) { return 7 * i + rank; };
    switch (below(program_, 4)) {
      case 0: {
        const std::vector<std::string> texts =
            mpi_.all_gather(std::string(static_cast<size_t>(value(mpi_.rank())), 'x'));
        REQUIRE(std::ssize(texts) == ranks);
        for (int rank = 0; rank < ranks; ++rank) {
          REQUIRE(std::ssize(texts[static_cast<size_t>(rank)]) == value(rank));
        }
        break;
      }
      case 1: {
        REQUIRE(late_sum_.next(value(mpi_.rank())) == late_sum_expected_);
        late_sum_expected_ = 0;
        for (int rank = 0; rank < ranks; ++rank) late_sum_expected_ += value(rank);
        break;
      }
      case 2: {
        const std::unique_ptr<MpiRuntime> half = mpi_.split(mpi_.rank() % 2);
        REQUIRE(half->world_size() == (ranks + 1 - mpi_.rank() % 2) / 2);
        REQUIRE(half->rank() == mpi_.rank() / 2);
        break;
      }
      default:
        mpi_.barrier();
    }
  }

  void check(size_t index) {
    Open open = std::move(open_[index]);
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(index));
    INFO(open.what << " of " << open.expected.numel() << " " << c10::toString(open.expected.scalar_type()));
    open.pending->wait();
    REQUIRE(same_bits(open.result, open.expected));
  }

  MpiRuntime& mpi_;
  std::minstd_rand program_;  // the same on all ranks
  std::minstd_rand own_;
  std::unique_ptr<MpiRuntime> node_, place_;
  std::vector<Group> groups_;
  std::vector<Open> open_;
  LateSum late_sum_;
  int late_sum_expected_ = 0;
};

}  // namespace mpzero::parallel
