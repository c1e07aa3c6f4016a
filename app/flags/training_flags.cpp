#include "app/flags/training_flags.hpp"

#include "base/error.hpp"

namespace mpzero {

const std::vector<FlagGroup>& training_flags() {
  static const std::vector<FlagGroup> groups = {model_flags(),        override_flags(), data_flags(),
                                                optimization_flags(), loop_flags(),     checkpoint_flags()};
  return groups;
}

const Flag* find_flag(const std::string& name) {
  for (const FlagGroup& group : training_flags()) {
    for (const Flag& flag : group.flags) {
      if (flag.is_named(name)) return &flag;
    }
  }
  return nullptr;
}

const Flag& flag_named(const std::string& name) {
  if (const Flag* flag = find_flag(name)) return *flag;
  throw_failure("--{} is not a flag of mpzero train", name);
}

}  // namespace mpzero
