#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/faults/saves.hpp"
#include "tests/faults/target.hpp"

namespace mpzero::faults {

// What a reader gives for files: see readings.hpp. Several programs may read the same files.
using Reading = std::function<std::string(const std::filesystem::path& folder, const std::filesystem::path& scratch)>;

struct Readers {
  // Throws where something is wrong, and then only; may be empty.
  std::function<void(const std::filesystem::path& folder)> verify;
  std::vector<Reading> readings;
  // Of a format without checksums of its values: whether the program tells that these may be others. May be empty.
  std::function<bool(const std::filesystem::path& folder)> tells;
};

// Files whose bytes are changed, cut off, or taken from another save:
//
//   flip   FILE@BYTE.BIT      one bit
//   byte   FILE@BYTE=VALUE    one byte
//   hole   FILE@BYTE+COUNT    zeros, as of a page that was never written
//   cut    FILE@SIZE          the file ends there
//   grow   FILE+COUNT         bytes behind its end
//   gone   FILE               is not there
//   twin   FILE=FILE          holds what the other holds
//   swap   SAVE:FILE,...      these are of the other save
//
// A reader must give what it gives for the whole files (of a swap also what it gives for all files of the other save),
// or refuse them.
class DamagedFiles final : public Target {
 public:
  struct OtherSave {
    std::string name;
    Files files;
  };

  // Reads the files and those of `others` once, from below `scratch`, for what is right.
  DamagedFiles(std::string name, Files files, std::vector<OtherSave> others, Readers readers,
               const std::filesystem::path& scratch);

  std::string name() const override { return name_; }
  std::vector<std::string> kinds() const override;
  std::vector<std::string> faults(const std::string& kind, size_t count, Random& random) override;
  Verdict try_fault(const std::string& kind, const std::string& fault, const std::filesystem::path& scratch) override;

 private:
  // By reading.
  using Texts = std::vector<std::string>;
  Texts read_all(const Files& files, const std::filesystem::path& scratch) const;
  Files damaged(const std::string& kind, const std::string& fault) const;
  Files swapped(const std::string& fault) const;
  Verdict read(const std::filesystem::path& folder, const std::filesystem::path& scratch, bool of_others) const;

  std::string name_;
  Files files_;
  std::vector<OtherSave> others_;
  Readers readers_;
  std::vector<Texts> right_;  // of the files, then of each other save
};

}  // namespace mpzero::faults
