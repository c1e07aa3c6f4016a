// Where the parts of a coded unit are, element by element.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <random>

#include "base/error.hpp"
#include "parallel/codes/coded_gather.hpp"
#include "tests/catch.hpp"

namespace mpzero::parallel {
namespace {

struct RandomUnit {
  UnitSpec spec{.name = "unit", .parameters = {}};
  std::vector<CodedRange> ranges;
  std::vector<bool> coded;  // by parameter
};

// Neighbouring coded parameters share a range, or do not.
RandomUnit random_unit(std::mt19937& random) {
  RandomUnit unit;
  int64_t begin = 0;
  const size_t parameters = 1 + random() % 7;
  for (size_t p = 0; p < parameters; ++p) {
    const int64_t rows = 1 + static_cast<int64_t>(random() % 9), columns = 1 + static_cast<int64_t>(random() % 40);
    unit.spec.parameters.push_back({"p", {rows, columns}});
    unit.coded.push_back(random() % 2 == 0);
    if (unit.coded.back() && p > 0 && unit.coded[p - 1] && random() % 2 == 0) {
      unit.ranges.back().count += rows * columns;
    } else if (unit.coded.back()) {
      unit.ranges.push_back({.begin = begin, .count = rows * columns});
    }
    begin += rows * columns;
  }
  std::shuffle(unit.ranges.begin(), unit.ranges.end(), random);
  return unit;
}

}  // namespace

TEST_CASE("each element of a quantized unit is sent once and reaches its parameter") {
  for (unsigned seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const RandomUnit unit = random_unit(random);
    const int ranks = 1 + static_cast<int>(random() % 4);
    const int64_t numel = unit.spec.numel();
    const int64_t part = (numel + ranks - 1) / ranks + static_cast<int64_t>(random() % 20);
    const CodedLayout layout(numel, part, ranks, unit.ranges);
    REQUIRE(layout.part() == part);
    REQUIRE(layout.message() % 64 == 0);
    CHECK(layout.saves() == (!unit.ranges.empty() && ranks * part + 2 * ranks * layout.message() < 2 * ranks * part));

    const at::Tensor buffer = at::zeros({layout.buffer_numel()}, at::kBFloat16);
    const auto [codes, messages, plain] = layout.split(buffer);
    REQUIRE(codes.numel() == ranks * part);
    REQUIRE(messages.numel() == ranks * layout.message());
    // Codes count from 0, plain elements too: both are exact.
    const at::Tensor unit_codes = at::arange(numel, at::kLong).remainder(251).to(at::kByte);
    const at::Tensor values = at::arange(numel, at::kLong).remainder(255).to(at::kBFloat16);
    const at::Tensor padded = at::zeros({ranks * part}, at::kBFloat16);
    padded.narrow(0, 0, numel).copy_(values);
    for (int rank = 0; rank < ranks; ++rank) {
      for (const CodedRange& own : layout.ranges_of(rank)) {
        if (own.count == 0) continue;
        codes.narrow(0, rank * part + own.begin, own.count)
            .copy_(unit_codes.narrow(0, rank * part + own.begin, own.count));
      }
    }
    int64_t sent = 0;
    for (const CodedLayout::Piece& piece : layout.pieces()) {
      REQUIRE(piece.in_message + piece.count <= layout.message());
      REQUIRE(piece.in_part + piece.count <= part);
      const at::Tensor message = messages.narrow(0, piece.rank * layout.message() + piece.in_message, piece.count);
      message.copy_(padded.narrow(0, piece.rank * part + piece.in_part, piece.count));
      plain.narrow(0, piece.in_plain, piece.count).copy_(message);
      sent += piece.count;
    }
    CHECK(sent == plain.numel());
    const std::vector<at::Tensor> views = layout.views(buffer, unit.spec, at::kByte);
    int64_t begin = 0;
    for (size_t p = 0; p < views.size(); ++p) {
      const ParameterSpec& parameter = unit.spec.parameters[p];
      REQUIRE(views[p].scalar_type() == (unit.coded[p] ? at::kByte : at::kBFloat16));
      const at::Tensor& expected = unit.coded[p] ? unit_codes : values;
      CHECK(at::equal(views[p], expected.narrow(0, begin, parameter.numel()).view(parameter.shape)));
      begin += parameter.numel();
    }
  }
}

TEST_CASE("adjacent elements of a unit stay adjacent if both or neither are quantized") {
  const UnitSpec unit{.name = "unit",
                      .parameters = {{"norm", {4}}, {"q", {2, 8}}, {"k", {3, 8}}, {"b", {2}}, {"c", {3}}}};
  const CodedLayout layout(unit.numel(), 32, 2, {{.begin = 4, .count = 40}});
  const std::vector<at::Tensor> views =
      layout.views(at::zeros({layout.buffer_numel()}, at::kBFloat16), unit, at::kFloat8_e4m3fn);
  const auto follows = [&](size_t index) {
    const auto* end = static_cast<const char*>(views[index - 1].const_data_ptr()) + views[index - 1].nbytes();
    return end == views[index].const_data_ptr() && views[index].is_contiguous();
  };
  CHECK(follows(2));
  CHECK(follows(4));
}

TEST_CASE("quantized ranges that do not match the unit are refused") {
  CHECK_THROWS_AS(CodedLayout(10, 5, 2, {{.begin = 0, .count = 4}, {.begin = 3, .count = 2}}), Failure);
  CHECK_THROWS_AS(CodedLayout(10, 5, 2, {{.begin = 8, .count = 4}}), Failure);
  CHECK_THROWS_AS(CodedLayout(10, 5, 2, {{.begin = 8, .count = 0}}), Failure);
  CHECK_THROWS_AS(CodedLayout(11, 5, 2, {{.begin = 0, .count = 4}}), Failure);
  const UnitSpec unit{.name = "unit", .parameters = {{"a", {6}}, {"b", {4}}}};
  const CodedLayout layout(10, 5, 2, {{.begin = 0, .count = 8}});
  CHECK_THROWS_AS(layout.views(at::zeros({layout.buffer_numel()}, at::kBFloat16), unit, at::kByte), Failure);
}

}  // namespace mpzero::parallel
