#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/faults/target.hpp"

namespace mpzero::faults {

struct Fault {
  Target* target = nullptr;
  std::string kind;
  std::string what;

  std::string name() const { return target->name() + "/" + kind + "/" + what; }
};

struct CampaignOptions {
  int workers = 1;
  std::chrono::seconds limit{60};           // a fault that takes longer counts as hung
  int64_t memory_bytes = int64_t{2} << 30;  // limit on address space beyond a worker's initial size; 0: no limit
  std::filesystem::path scratch;
};

// Tries all faults in worker processes, which are replaced if they crash or hang. Returns one verdict per fault, in the
// order of `faults`.
std::vector<Verdict> try_faults(const std::vector<Fault>& faults, const CampaignOptions& options);

}  // namespace mpzero::faults
