// Gathers of codes over ranks: those of the whole unit, and the bytes of the formula.
#include <ATen/ATen.h>

#include <random>

#include "parallel/codes/coded_gather.hpp"
#include "parallel/comm/forwarding_communicator.hpp"
#include "parallel/comm/mpi_communicator.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/mpi_for_tests.hpp"
#include "tests/parallel/same_bits.hpp"
#include "tests/parallel/toy_codec.hpp"

namespace mpzero::parallel {
namespace {

// Counts what is gathered, by type, in bytes that all ranks together have afterwards.
class CountedRanks final : public ForwardingCommunicator {
 public:
  CountedRanks() : ForwardingCommunicator(std::make_unique<MpiCommunicator>(mpi())) {}
  std::unique_ptr<PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& full) override {
    gathered.push_back({full.scalar_type(), static_cast<int64_t>(full.nbytes())});
    return communicator().all_gather(shard, full);
  }
  std::unique_ptr<PendingCollective> reduce_scatter_sum(const at::Tensor& full, const at::Tensor& shard,
                                                        SumMode mode) override {
    return communicator().reduce_scatter_sum(full, shard, mode);
  }
  std::unique_ptr<PendingCollective> all_to_all(const at::Tensor& sent, const at::Tensor& received) override {
    return communicator().all_to_all(sent, received);
  }
  std::unique_ptr<PendingCollective> all_reduce_sum(const at::Tensor& tensor) override {
    return communicator().all_reduce_sum(tensor);
  }

  std::vector<std::pair<at::ScalarType, int64_t>> gathered;
};

const UnitSpec& unit() {
  static const UnitSpec spec{
      .name = "unit", .parameters = {{"norm", {40}}, {"q", {30, 40}}, {"k", {9, 40}}, {"b", {7}}, {"o", {40, 31}}}};
  return spec;
}
// q and k share a scale.
const std::vector<CodedRange>& ranges() {
  static const std::vector<CodedRange> all{{.begin = 40, .count = 39 * 40},
                                           {.begin = 40 + 39 * 40 + 7, .count = 40 * 31}};
  return all;
}

struct Gathered {
  std::vector<at::Tensor> views;
  at::Tensor scales;
};

// By all ranks, of their parts of `values` [numel].
Gathered gather(CodedGather& codes, const CodedLayout& layout, const at::Tensor& values) {
  const at::Tensor padded = at::zeros({layout.part() * mpi().world_size()}, at::kBFloat16);
  padded.narrow(0, 0, values.numel()).copy_(values);
  const at::Tensor part = padded.narrow(0, layout.part() * mpi().rank(), layout.part()).clone();
  // What an earlier user left.
  const at::Tensor buffer = at::full({layout.buffer_numel()}, 77, at::kBFloat16);
  codes.gather(0, part, buffer)->wait();
  Gathered made{.views = codes.views(0, unit(), buffer), .scales = codes.scales(0).clone()};
  return made;
}

// Oracle: the codec on whole ranges.
void check(const Gathered& made, const ToyCodec& codec, const at::Tensor& values) {
  int64_t begin = 0;
  for (size_t p = 0; p < made.views.size(); ++p) {
    const int64_t count = unit().parameters[p].numel();
    at::Tensor expected = values.narrow(0, begin, count);
    for (size_t r = 0; r < ranges().size(); ++r) {
      if (begin < ranges()[r].begin || begin >= ranges()[r].begin + ranges()[r].count) continue;
      const at::Tensor whole = values.narrow(0, ranges()[r].begin, ranges()[r].count);
      const at::Tensor maximum = at::zeros({}), codes = at::zeros({count}, at::kByte);
      codec.raise_maximum(whole, maximum);
      CHECK(same_bits(made.scales[0][static_cast<int64_t>(r)], maximum));
      codec.encode_out(expected, maximum, codes);
      expected = codes;
    }
    INFO(unit().parameters[p].name);
    CHECK(same_bits(made.views[p], expected.view(unit().parameters[p].shape)));
    begin += count;
  }
}

at::Tensor random_values(uint64_t seed) {
  at::manual_seed(seed);
  return at::rand({unit().numel()}).add(0.1).to(at::kBFloat16);
}

}  // namespace

TEST_CASE("gathered FP8 data equals casts of whole matrices and transfers the expected bytes") {
  const int ranks = mpi().world_size();
  const int64_t part = (unit().numel() / ranks + 64) / 64 * 64;
  const CodedLayout layout(unit().numel(), part, ranks, ranges());
  REQUIRE(layout.saves());
  const auto codec = std::make_shared<const ToyCodec>(std::vector<std::vector<CodedRange>>{ranges()});
  CountedRanks communicator;
  CodedGather codes({layout}, codec, communicator, at::kCPU);
  for (uint64_t update = 0; update < 4; ++update) {
    at::Tensor values = random_values(update);
    // The largest one is on another rank each time.
    values[40 + static_cast<int64_t>(update) * 350] = 3;
    codes.outdate(0);
    for (int use = 0; use < 3; ++use) {
      CAPTURE(update, use);
      communicator.gathered.clear();
      check(gather(codes, layout, values), *codec, values);
      std::vector<std::pair<at::ScalarType, int64_t>> expected{{at::kBFloat16, 2 * ranks * layout.message()}};
      // Maxima, once after an update.
      if (use == 0) expected.emplace_back(at::kFloat, 4 * ranks * 2);
      expected.emplace_back(at::kByte, ranks * part);
      CHECK(communicator.gathered == expected);
    }
  }
}

TEST_CASE("scales are kept until a unit is outdated") {
  const int ranks = mpi().world_size();
  const int64_t part = (unit().numel() / ranks + 64) / 64 * 64;
  const CodedLayout layout(unit().numel(), part, ranks, ranges());
  const auto codec = std::make_shared<const ToyCodec>(std::vector<std::vector<CodedRange>>{ranges()});
  CountedRanks communicator;
  CodedGather codes({layout}, codec, communicator, at::kCPU);
  const at::Tensor values = random_values(1);
  const at::Tensor before = gather(codes, layout, values).scales;
  CHECK(same_bits(gather(codes, layout, values * 0.5).scales, before));
  codes.outdate(0);
  CHECK_FALSE(same_bits(gather(codes, layout, values * 0.5).scales, before));
}

}  // namespace mpzero::parallel
