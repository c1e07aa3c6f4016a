#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/faults/target.hpp"

namespace mpzero::faults {

struct TargetPlaces {
  std::filesystem::path source;    // the repository, which contains files from stock DeepSpeed
  std::filesystem::path programs;  // the folder with fault_subject and the preloaded library
  std::filesystem::path tokens;    // token file from app/prepare_data.py; empty: none
  std::filesystem::path scratch;
};

// Returns all targets.
std::vector<std::unique_ptr<Target>> make_targets(const TargetPlaces& places);

}  // namespace mpzero::faults
