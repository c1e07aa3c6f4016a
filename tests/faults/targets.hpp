#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/faults/target.hpp"

namespace mpzero::faults {

struct TargetPlaces {
  std::filesystem::path source;    // the repository, which has files of stock DeepSpeed
  std::filesystem::path programs;  // the folder of the program and library that play a disk's faults
  std::filesystem::path tokens;    // a file of app/prepare_data.py; empty: there is none
  std::filesystem::path scratch;
};

// All targets.
std::vector<std::unique_ptr<Target>> make_targets(const TargetPlaces& places);

}  // namespace mpzero::faults
