#pragma once

#include <cstddef>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/faults/outcome.hpp"

namespace mpzero::faults {

using Random = std::mt19937_64;

// What faults are tried on: files with a reader, or a writer with the folder that it writes to. Made once, then used by
// several processes, each with a scratch folder of its own.
class Target {
 public:
  virtual ~Target() = default;

  virtual std::string name() const = 0;
  virtual std::vector<std::string> kinds() const = 0;
  // Faults of a kind: all, or about `count` of them as `random` picks. What they say depends on nothing else, so that
  // one that is named is the same fault again.
  virtual std::vector<std::string> faults(const std::string& kind, size_t count, Random& random) = 0;
  // Tries one. `scratch` is empty at a process's first call, and what earlier calls left in it at later ones.
  virtual Verdict try_fault(const std::string& kind, const std::string& fault,
                            const std::filesystem::path& scratch) = 0;
};

}  // namespace mpzero::faults
