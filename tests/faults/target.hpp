#pragma once

#include <cstddef>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/faults/outcome.hpp"

namespace mpzero::faults {

using Random = std::mt19937_64;

// The subject of faults: files with a reader, or a writer with its folder. Created once, then used by several
// processes, each with its own scratch folder.
class Target {
 public:
  virtual ~Target() = default;

  virtual std::string name() const = 0;
  virtual std::vector<std::string> kinds() const = 0;
  // Faults of a kind: all, or about `count` of them chosen by `random`. A fault's name determines it, so the same name
  // is the same fault again.
  virtual std::vector<std::string> faults(const std::string& kind, size_t count, Random& random) = 0;
  // Tries one fault. `scratch` is empty at a process's first call, and later holds what earlier calls left in it.
  virtual Verdict try_fault(const std::string& kind, const std::string& fault,
                            const std::filesystem::path& scratch) = 0;
};

}  // namespace mpzero::faults
