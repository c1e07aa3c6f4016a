#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <tuple>
#include <vector>

#include "app/checkpoint/resume_checks.hpp"
#include "app/config/run_setup.hpp"
#include "tests/app/checkpoint/resume_cases.hpp"
#include "tests/io/temporary_folder.hpp"

// The product's runs of the starts of resume_cases, without an engine: their settings, positions and data.
namespace mpzero::resume_cases {

// A run between two of its starts.
struct ProductRun {
  RunSetup setup;  // its config as the run continues
  RunPosition position;

  RunPosition at(int64_t step) const;
};

// One folder with the token files of all cases.
class Inputs {
 public:
  Inputs() { write_files(folder_.path()); }

  const std::filesystem::path& folder() const { return folder_.path(); }

  // Throw UserError where the product refuses the start, and where nothing is left to train.
  ProductRun begin(const Start& start) const;
  ProductRun resume(const ProductRun& before, int64_t stop, const Start& start) const;

  // The windows of the first epochs in the order in which one rank with a batch of 1 reads them, without a resume.
  const std::vector<int64_t>& order(const Settings& settings) const;
  // The windows of `steps` steps after step `done`, as all ranks together read them.
  std::vector<int64_t> windows_read(const Start& start, const ProductRun& run, int64_t done, int64_t steps) const;

 private:
  RunSetup set_up(const Start& start) const;

  io::testing::TemporaryFolder folder_;
  mutable std::map<std::tuple<int64_t, int64_t, bool>, std::vector<int64_t>> orders_;
};

struct CaseNumbers {
  int64_t first, end;
};
// RESUME_CASES says how many cases run (NIGHTLY=1: 4,000), RESUME_FIRST the first of them.
CaseNumbers case_numbers();

}  // namespace mpzero::resume_cases
