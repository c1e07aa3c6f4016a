#pragma once

#include <string>

#include "base/error.hpp"

namespace mpzero {

// Returns the message of the UserError that `work` throws.
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
