#include <fmt/format.h>

#include <stdexcept>

#include "tests/faults/disk_targets.hpp"
#include "tests/faults/readings.hpp"

namespace mpzero::faults {
namespace fs = std::filesystem;

ReadingProgram::ReadingProgram(std::string name, std::string command, Files files, std::string place,
                               std::map<std::string, Meanwhile> meanwhile, fs::path programs, fs::path scratch)
    : name_(std::move(name)),
      command_(std::move(command)),
      files_(std::move(files)),
      place_(std::move(place)),
      meanwhile_(std::move(meanwhile)),
      programs_(std::move(programs)),
      scratch_(std::move(scratch)) {}

std::vector<std::string> ReadingProgram::kinds() const {
  std::vector<std::string> kinds = {"disk"};
  for (const auto& [kind, what] : meanwhile_) kinds.push_back(kind);
  return kinds;
}

std::vector<std::string> ReadingProgram::words(const fs::path& folder) const {
  std::vector<std::string> words = {command_, place_.empty() ? folder : folder / place_};
  if (command_ == "export") words.insert(words.end(), {folder.parent_path() / "export", "1000000"});
  return words;
}

std::vector<std::string> ReadingProgram::faults(const std::string& kind, size_t count, Random& random) {
  const fs::path folder = scratch_ / "files";
  write_files(folder, files_);
  SubjectProcess subject(programs_, words(folder), {"", folder, ""}, scratch_);
  subject.wait();
  if (!subject.succeeded()) throw std::runtime_error(name_ + " fails on a good disk");
  return some_of(kind == "disk" ? disk_errors(subject.calls(), /*of_writer=*/false) : stops(subject.calls()), count,
                 random);
}

Verdict ReadingProgram::try_fault(const std::string& kind, const std::string& fault, const fs::path& scratch) {
  const fs::path folder = scratch / "files", output = scratch / "export";
  // Its output, printed or in its output folder, without faults.
  const auto result = [&](const SubjectProcess& subject) {
    return command_ == "export" ? read_export(output) : subject.output();
  };
  write_files(folder, files_);
  fs::remove_all(output);
  std::vector<std::string> right;
  {
    SubjectProcess undisturbed(programs_, words(folder), {"", folder, ""}, scratch);
    undisturbed.wait();
    right.push_back(result(undisturbed));
  }
  fs::remove_all(output);
  SubjectProcess subject(programs_, words(folder), {fault, folder, ""}, scratch);
  if (kind != "disk" && subject.wait_for_stop()) {
    meanwhile_.at(kind)(folder);
    subject.go_on();
  }
  subject.wait();
  if (!subject.succeeded()) return subject.judge(folder);
  const std::string printed = result(subject);
  if (printed == right[0]) return {Outcome::kRight, ""};
  if (kind != "disk") {
    fs::remove_all(output);
    SubjectProcess afterwards(programs_, words(folder), {"", folder, ""}, scratch);
    afterwards.wait();
    if (afterwards.succeeded() && printed == result(afterwards)) return {Outcome::kRight, "what came meanwhile"};
  }
  return {Outcome::kWrong, "it succeeded with other values"};
}

}  // namespace mpzero::faults
