#include <fmt/format.h>

#include <stdexcept>

#include "tests/faults/disk_targets.hpp"
#include "tests/faults/readings.hpp"

namespace mpzero::faults {
namespace fs = std::filesystem;
namespace {

constexpr const char* kShardBytes = "700";  // several files

Save old_save() { return {.step = 3, .values = 1}; }
Save new_save() { return {.step = 6, .values = 2}; }
Save other_save() { return {.step = 9, .values = 3}; }

}  // namespace

ExportingProgram::ExportingProgram(std::string name, fs::path programs, fs::path scratch)
    : name_(std::move(name)), programs_(std::move(programs)), scratch_(std::move(scratch)) {
  const fs::path folder = scratch_ / "files";
  fs::remove_all(folder);
  for (const Save& save : {old_save(), new_save(), other_save()}) {
    write_save(folder / "checkpoints", save);
    const fs::path output = scratch_ / "export";
    fs::remove_all(output);
    export_as_fp32(folder / "checkpoints" / save.tag(), output, std::stoll(kShardBytes));
    right_.push_back(read_export(output));
    if (save.step == old_save().step) fs::rename(output, folder / "output");
  }
  before_ = read_files(folder);
}

std::vector<std::string> ExportingProgram::words(const fs::path& folder, const Save& save) const {
  return {"export", folder / "checkpoints" / save.tag(), folder / "output", kShardBytes};
}

std::vector<std::string> ExportingProgram::faults(const std::string& kind, size_t count, Random& random) {
  const fs::path folder = scratch_ / "files";
  write_files(folder, before_);
  SubjectProcess subject(programs_, words(folder, new_save()), {"", folder / "output", ""}, scratch_);
  subject.wait();
  if (!subject.succeeded()) throw std::runtime_error(name_ + " fails on a good disk");
  const auto calls = subject.calls();
  return some_of(kind == "disk"   ? disk_errors(calls, /*of_writer=*/true)
                 : kind == "kill" ? kills(calls)
                                  : stops(calls),
                 count, random);
}

Verdict ExportingProgram::try_fault(const std::string& kind, const std::string& fault, const fs::path& scratch) {
  const fs::path folder = scratch / "files", output = folder / "output";
  write_files(folder, before_);
  // The last conversion that succeeded: 0 the old one, 1 the new one, 2 the other conversion.
  size_t last = 0;
  Verdict verdict{Outcome::kRight, ""};
  {
    SubjectProcess subject(programs_, words(folder, new_save()), {fault, output, ""}, scratch);
    if (kind == "overlap" && subject.wait_for_stop()) {
      SubjectProcess other(programs_, words(folder, other_save()), {"", output, ""}, scratch / "other");
      other.wait();
      if (other.succeeded()) last = 2;
      if (!other.succeeded()) verdict = other.judge(output);
      subject.go_on();
    }
    subject.wait();
    if (subject.succeeded()) last = 1;
    if (!subject.succeeded() && !subject.was_killed()) verdict = worse_of(verdict, subject.judge(folder));
  }
  // Without a config.json transformers loads nothing.
  const bool loads = fs::exists(output / "config.json");
  if (!loads && last == 1) return {Outcome::kLost, "neither the old weights nor the new ones exist"};
  try {
    // A program that failed may have failed after the last step.
    const std::string found = loads ? read_export(output) : right_[last];
    if (found != right_[last] && !(last != 1 && found == right_[1])) {
      return {Outcome::kWrong, "the weights are not those of a checkpoint, or not of the one that was converted"};
    }
  } catch (const std::exception& error) {
    return {Outcome::kLost, fmt::format("neither the old weights nor the new ones: {}", error.what())};
  }
  fs::remove_all(output / ".zero_to_fp32.tmp");  // as the error of the next conversion tells the user
  try {
    export_as_fp32(folder / "checkpoints" / new_save().tag(), output, std::stoll(kShardBytes));
    if (read_export(output) != right_[1]) return {Outcome::kWrong, "the next conversion gives other weights"};
  } catch (const std::exception& error) {
    return {Outcome::kLost, fmt::format("the next conversion: {}", error.what())};
  }
  return verdict;
}

}  // namespace mpzero::faults
