#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace mpzero {

// A failure caused by the hosts of some ranks, the `culprits`.
class RankFailure : public Error {
 public:
  RankFailure(const std::string& message, ErrorScope scope, std::vector<int> culprits, int system_error = 0)
      : Error(message, scope, system_error), culprits_(std::move(culprits)) {}
  int exit_code() const override { return kFailureExitCode; }
  const std::vector<int>& culprits() const { return culprits_; }

 private:
  std::vector<int> culprits_;
};

}  // namespace mpzero
