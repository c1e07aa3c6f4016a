#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/faults/saves.hpp"
#include "tests/faults/target.hpp"

namespace mpzero::faults {

// Returns a reader's result for the files in `folder`; see readings.hpp. Several programs may read the same files.
using Reading = std::function<std::string(const std::filesystem::path& folder, const std::filesystem::path& scratch)>;

struct Readers {
  // Throws if and only if the files are damaged. May be empty.
  std::function<void(const std::filesystem::path& folder)> verify;
  std::vector<Reading> readings;
  // For a format without checksums of values: returns true if the program reports that the values may differ. May be
  // empty.
  std::function<bool(const std::filesystem::path& folder)> tells;
};

// Files with changed, truncated or missing bytes, or with files from another save:
//
//   flip   FILE@BYTE.BIT      one bit
//   byte   FILE@BYTE=VALUE    one byte
//   hole   FILE@BYTE+COUNT    zeros, as in a page that was never written
//   cut    FILE@SIZE          the file ends there
//   grow   FILE+COUNT         extra bytes at its end
//   gone   FILE               does not exist
//   twin   FILE=FILE          has the contents of the other file
//   swap   SAVE:FILE,...      these files are from the other save
//
// A reader must either return the result of the intact files (for a swap, alternatively the result of the other save's
// files) or refuse the files. Damage that must_be_refused() must be refused.
class DamagedFiles final : public Target {
 public:
  struct OtherSave {
    std::string name;
    Files files;
  };

  // Reads `files` and the files of `others` once, from a folder in `scratch`, to determine the correct results.
  DamagedFiles(std::string name, Files files, std::vector<OtherSave> others, Readers readers,
               const std::filesystem::path& scratch);

  std::string name() const override { return name_; }
  std::vector<std::string> kinds() const override;
  std::vector<std::string> faults(const std::string& kind, size_t count, Random& random) override;
  Verdict try_fault(const std::string& kind, const std::string& fault, const std::filesystem::path& scratch) override;

 private:
  // One result per reader.
  using Texts = std::vector<std::string>;
  Texts read_all(const Files& files, const std::filesystem::path& scratch) const;
  Files damaged(const std::string& kind, const std::string& fault) const;
  Files swapped(const std::string& fault) const;
  // Returns true unless the damage may have no effect: padding in an archive or a token file, or a trailing newline.
  bool must_be_refused(const std::string& kind, const std::string& fault) const;
  Verdict read(const std::filesystem::path& folder, const std::filesystem::path& scratch, bool of_others) const;

  std::string name_;
  Files files_;
  std::vector<OtherSave> others_;
  Readers readers_;
  std::vector<Texts> right_;  // correct results of the files, then of each other save
};

}  // namespace mpzero::faults
