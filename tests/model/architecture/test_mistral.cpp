#include "tests/model/architecture/family.hpp"

namespace mpzero::model {

TEST_CASE("Mistral's window is 4096 unless the file sets it, and null disables it") {
  CHECK(of_family("mistral").sliding_window == 4096);
  CHECK(of_family("mistral").positions() == 64);
  CHECK(of_family("mistral", {{"sliding_window", 7}}).positions() == 7);
  CHECK_FALSE(of_family("mistral", {{"sliding_window", nullptr}}).sliding_window);
  CHECK_THAT(refused("mistral", {{"sliding_window", 0}}), Contains("sliding_window is 0"));
  CHECK_THAT(refused("mistral", {{"attention_bias", true}}), Contains("attention_bias true"));
}

}  // namespace mpzero::model
