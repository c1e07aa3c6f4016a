#pragma once

#include <string>

#include "base/error.hpp"

namespace mpzero {

// The sentence that `work` refuses its user's mistake with.
template <typename Work>
std::string error_from(const Work& work) {
  try {
    work();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace mpzero
