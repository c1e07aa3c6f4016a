#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "app/health/cast_ranges.hpp"
#include "tests/base/thread_group.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using model::CastRange;
using model::CastRanges;
using enum model::LayerProduct;
using enum model::OperandKind;

namespace {

// Three layers, of which the last is in bf16.
CastRanges ranges_of(double maximum, int64_t zeros = 0, int64_t layer = 1) {
  std::vector<CastRange> all(CastRanges::index(3, kQkv, kInput));
  for (size_t i = 0; i < CastRanges::index(2, kQkv, kInput); ++i) {
    all[i] = {.casts = 1, .maximum = 0.5};
    if (i % model::kOperandKinds.size() == 0) all[i].sampled = 1000;
  }
  CastRange& odd = all[CastRanges::index(layer, kDown, kInput)];
  odd.maximum = maximum;
  odd.zeros = zeros;
  return CastRanges(std::move(all));
}

ZeroShareWarning warning(model::fp8::Scaling scaling = model::fp8::Scaling::kTensorwise) {
  return {scaling, [](int64_t layer, model::LayerProduct product) {
            return "layers." + std::to_string(layer) + "." + std::string(name(product));
          }};
}

}  // namespace

TEST_CASE("ranges of several ranks are merged") {
  ThreadGroup group(3);
  const std::vector<std::string> errors = group.run([](ProcessGroup& rank) {
    const CastRanges all = over_ranks(rank, ranges_of(10.0 * (rank.rank() + 1), 30 * rank.rank()));
    CHECK(all.at(1, kDown, kInput).maximum == 30);
    CHECK(all.at(1, kDown, kInput).zero_share() == 0.03);
    CHECK(all.at(0, kDown, kInput).maximum == 0.5);
    CHECK(all.at(2, kDown, kInput).casts == 0);
  });
  for (const std::string& error : errors) CHECK(error.empty());
}

TEST_CASE("the largest value over layers ignores layers in bf16") {
  CHECK(largest_of_layers(ranges_of(7), kDown, kInput) == 7);
  CHECK(largest_of_layers(ranges_of(7), kDown, kWeight) == 0.5);
  CHECK(largest_zero_share(ranges_of(7, 20), kDown) == 0.02);
  CHECK(largest_zero_share(ranges_of(7, 20), kQkv) == 0.0);
  CHECK(largest_of_layers(CastRanges(), kDown, kInput) == std::nullopt);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(*largest_of_layers(ranges_of(nan, 0, 0), kDown, kInput)));
  CHECK(std::isnan(*largest_of_layers(ranges_of(nan, 0, 1), kDown, kInput)));
}

TEST_CASE("ranges are written as lists by layer") {
  const nlohmann::ordered_json json = to_json(ranges_of(1234567, 125));
  CHECK(json["input"]["down"]["max"].dump() == "[0.5,1235000.0,null]");
  CHECK(json["input"]["down"]["zero_share"].dump() == "[0.0,0.125,null]");
  CHECK(json["weight"]["qkv"].dump() == R"({"max":[0.5,0.5,null]})");
  CHECK(json["gradient"]["gate_up"].size() == 1);
  CHECK(json["input"].size() == 4);
  CHECK(to_json(ranges_of(std::numeric_limits<double>::infinity()))["input"]["down"]["max"][1].is_null());
}

TEST_CASE("one warning reports the input with the most underflows") {
  ZeroShareWarning judge = warning();
  CHECK(judge.judge(CastRanges(), 9) == std::nullopt);
  CHECK(judge.judge(ranges_of(1e9, 49), 10) == std::nullopt);
  std::vector<CastRange> two = ranges_of(5310.4, 80).all();
  two[CastRanges::index(0, kQkv, kInput)].zeros = 60;
  CHECK(judge.judge(CastRanges(two), 20) ==
        "FP8 underflow: in step 20, 8% of the input of the down projection in layer 1 became 0 (amax 5310); "
        "keep this projection in bf16 (\"layers.1.down\" in fp8.filter_fqns), scale per row (fp8.recipe rowwise) or "
        "lower the learning rate.");
  CHECK(judge.judge(ranges_of(1e9, 900), 30) == std::nullopt);
}

TEST_CASE("with rowwise scaling, the warning does not suggest rowwise scaling") {
  const std::optional<std::string> said = warning(model::fp8::Scaling::kRowwise).judge(ranges_of(100, 50), 7);
  REQUIRE(said);
  CHECK(said->find("5% of the input") != std::string::npos);
  CHECK(said->find("rowwise") == std::string::npos);
}
