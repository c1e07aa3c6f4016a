#include "tests/model/architecture/family.hpp"

namespace mpzero::model {

TEST_CASE("Granite's multipliers are read and default to 1") {
  CHECK(of_family("granite").attention_multiplier == 1.0);
  CHECK(of_family("granite").logits_scaling == 1.0);
  const ModelConfig config = of_family("granite", {{"embedding_multiplier", 12},
                                                   {"residual_multiplier", 0.22},
                                                   {"attention_multiplier", 0.015625},
                                                   {"logits_scaling", 8}});
  CHECK(config.embedding_multiplier == 12);
  CHECK(config.residual_multiplier == 0.22);
  CHECK(config.attention_multiplier == 0.015625);
  CHECK(config.logits_scaling == 8);
  for (const char* key : {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"}) {
    CHECK_THAT(refused("granite", {{key, 0}}), Contains(std::string(key) + " is 0"));
    CHECK_THAT(refused("llama", {{key, 2}}), Contains(key));
  }
}

}  // namespace mpzero::model
