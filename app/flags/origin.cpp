#include "app/flags/origin.hpp"

#include "app/flags/training_flags.hpp"

namespace mpzero {

Origin Origins::of(const std::string& flag) const {
  const auto origin = of_flags.find(flag_named(flag).name);
  return origin == of_flags.end() ? Origin{} : origin->second;
}

void Origins::set(const std::string& flag, const Origin& origin) { of_flags[flag_named(flag).name] = origin; }

}  // namespace mpzero
