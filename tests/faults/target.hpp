#pragma once

#include <cstddef>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/faults/outcome.hpp"

namespace mpzero::faults {

using Random = std::mt19937_64;

// Target of faults: files with a reader, or a writer with a folder. A target is created once and then used by several
// processes, each with its own scratch folder.
class Target {
 public:
  virtual ~Target() = default;

  virtual std::string name() const = 0;
  virtual std::vector<std::string> kinds() const = 0;
  // Returns the names of the faults of a kind: all faults, or about `count` faults selected by `random`. A name
  // identifies the fault, so a fault can be repeated by name.
  virtual std::vector<std::string> faults(const std::string& kind, size_t count, Random& random) = 0;
  // Tries one fault. `scratch` is empty in a process's first call, and contains the files of earlier calls in later
  // calls.
  virtual Verdict try_fault(const std::string& kind, const std::string& fault,
                            const std::filesystem::path& scratch) = 0;
};

}  // namespace mpzero::faults
