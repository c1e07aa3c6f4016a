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

// mpzero's runs of the starts in resume_cases, without an engine: their settings, positions and data.
namespace mpzero::resume_cases {

// A run between two starts.
struct ProductRun {
  RunSetup setup;  // with the configuration of the continued run
  RunPosition position;

  RunPosition at(int64_t step) const;
};

// One folder with the token files of all cases.
class Inputs {
 public:
  Inputs() { write_files(folder_.path()); }

  const std::filesystem::path& folder() const { return folder_.path(); }

  // Throw UserError if mpzero refuses the start, or if no steps remain.
  ProductRun begin(const Start& start) const;
  ProductRun resume(const ProductRun& before, int64_t stop, const Start& start) const;

  // Returns the windows of the first epochs in the order in which a single rank with a batch size of 1 reads them
  // without a resume.
  const std::vector<int64_t>& order(const Settings& settings) const;
  // Returns the windows that all ranks together read in the `steps` steps after step `done`.
  std::vector<int64_t> windows_read(const Start& start, const ProductRun& run, int64_t done, int64_t steps) const;

 private:
  RunSetup set_up(const Start& start) const;

  io::testing::TemporaryFolder folder_;
  mutable std::map<std::tuple<int64_t, int64_t, bool>, std::vector<int64_t>> orders_;
};

struct CaseNumbers {
  int64_t first, end;
};
// RESUME_CASES sets the number of cases (4,000 with NIGHTLY=1), and RESUME_FIRST sets the first case.
CaseNumbers case_numbers();

}  // namespace mpzero::resume_cases
