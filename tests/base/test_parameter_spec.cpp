#include <tuple>

#include "base/parameter_spec.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

const UnitSpec kUnit{"unit", {{"a", {2, 3}}, {"b", {4}}, {"c", {1}}}};

// Name, begin, count and offset of each range.
using Range = std::tuple<std::string, int64_t, int64_t, int64_t>;
std::vector<Range> ranges(int64_t begin, int64_t end) {
  std::vector<Range> found;
  visit_parameters(kUnit, begin, end, [&](const ParameterRange& range) {
    found.emplace_back(range.parameter.name, range.begin, range.count, range.offset);
  });
  return found;
}

}  // namespace

TEST_CASE("a range of a unit is split at parameter boundaries") {
  CHECK((ranges(0, 11) == std::vector<Range>{{"a", 0, 6, 0}, {"b", 0, 4, 6}, {"c", 0, 1, 10}}));
  CHECK((ranges(4, 9) == std::vector<Range>{{"a", 4, 2, 0}, {"b", 0, 3, 2}}));
  CHECK((ranges(7, 8) == std::vector<Range>{{"b", 1, 1, 0}}));
  CHECK((ranges(6, 10) == std::vector<Range>{{"b", 0, 4, 0}}));
  CHECK((ranges(9, 64) == std::vector<Range>{{"b", 3, 1, 0}, {"c", 0, 1, 1}}));  // padding at the end
  CHECK(ranges(5, 5).empty());
  CHECK(ranges(11, 64).empty());
}

TEST_CASE("an output is tied if the model has an embedding and no output weight") {
  const ParameterSpec embedding{"model.embed_tokens.weight", {2, 2}}, output{"lm_head.weight", {2, 2}};
  CHECK(is_output_tied(std::vector{embedding}));
  CHECK_FALSE(is_output_tied(std::vector{embedding, output}));
  CHECK_FALSE(is_output_tied(kUnit.parameters));
}

}  // namespace mpzero
