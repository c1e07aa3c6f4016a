#include "io/checkpoint/stored_checkpoint.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/collectives.hpp"
#include "base/error.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
void StoredCheckpoint::read_unit(const UnitSpec& unit, StateKind kind, int64_t begin, std::span<float> out) const {
  const int64_t end = begin + static_cast<int64_t>(out.size());
  int64_t offset = 0;
  for (const ParameterSpec& parameter : unit.parameters) {
    const int64_t first = std::max(begin, offset);
    const int64_t last = std::min(end, offset + parameter.numel());
    if (first < last) {
      read(parameter.name, kind, first - offset,
           out.subspan(static_cast<size_t>(first - begin), static_cast<size_t>(last - first)));
    }
    offset += parameter.numel();
  }
  if (begin < 0 || end > offset) {
    throw_failure("elements [{}, {}) were asked for of unit {}, which has {}", begin, end, unit.name, offset);
  }
}

std::map<std::string, std::string> check_same_files(const fs::path& folder, const FileChecksums& read,
                                                    ProcessGroup& group) {
  const std::vector<FileChecksums> of_ranks = all_gather(group, read);
  std::map<std::string, std::string> checksums;
  run_on_all_ranks(group, [&] {
    for (const FileChecksums& of_rank : of_ranks) {
      for (const auto& [name, checksum] : of_rank) {
        const auto [known, is_new] = checksums.try_emplace(name, checksum);
        if (is_new || known->second == checksum) continue;
        throw_failure("{} was replaced by another process while it was read: the ranks have read {} of different saves",
                      folder.string(), name);
      }
    }
  });
  return checksums;
}

void check_same_parameters(const StoredCheckpoint& checkpoint, std::span<const UnitSpec> of_run) {
  // The checkpoint's parameters in the run's groups; what the run lacks comes last.
  std::map<std::string, const ParameterSpec*> stored;
  for (const ParameterSpec& parameter : checkpoint.parameters()) stored.emplace(parameter.name, &parameter);
  std::vector<UnitSpec> units;
  for (const UnitSpec& unit : of_run) {
    UnitSpec& mine = units.emplace_back(UnitSpec{unit.name, {}});
    for (const ParameterSpec& parameter : unit.parameters) {
      const auto found = stored.find(parameter.name);
      if (found == stored.end()) continue;
      mine.parameters.push_back(*found->second);
      stored.erase(found);
    }
  }
  UnitSpec rest{"rest", {}};
  for (const auto& [name, parameter] : stored) rest.parameters.push_back(*parameter);
  if (!rest.parameters.empty()) units.push_back(std::move(rest));
  check_same_model(units, of_run, checkpoint.folder());
}

}  // namespace mpzero::io
