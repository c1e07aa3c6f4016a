#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/machine/system.hpp"
#include "parallel/network/network.hpp"

namespace mpzero::doctor {

struct Options {
  bool quick = false;      // skip slow checks
  bool bandwidth = false;  // measure collectives
  std::string json;        // JSON report; empty: none
  std::filesystem::path checkpoint_dir = "checkpoints";
  std::string device = "auto";  // "auto", "cuda" or "cpu", as for mpzero train
  parallel::NetworkChoice network = parallel::NetworkChoice::kAuto;
  System system;
  std::optional<int64_t> given_patience;  // in seconds

  // Returns the timeout for checks on this host, which may hang in a driver or file system.
  std::chrono::seconds patience() const;
};

// Parses the flags of `mpzero doctor` (`--flag value` or `--flag=value`). Throws UserError.
Options parse_options(const std::vector<std::string>& arguments);

// Returns the text of `mpzero doctor --help`.
std::string options_help();

}  // namespace mpzero::doctor
