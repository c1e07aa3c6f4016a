#include "io/checkpoint/stored_checkpoint.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "base/parameter_spec.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;

void StoredCheckpoint::check(const ParameterSpec& parameter) const {
  const auto all = parameters();
  const auto found = std::ranges::find(all, parameter.name, &ParameterSpec::name);
  if (found == all.end()) {
    throw_user_error("tensor {} is missing from checkpoint {}; use weights of the configured model", parameter.name,
                     folder().string());
  }
  if (found->shape != parameter.shape) {
    throw_user_error(
        "tensor {} of the checkpoint {} has shape [{}], but the model requires [{}]; use weights of the configured "
        "model",
        parameter.name, folder().string(), fmt::join(found->shape, ", "), fmt::join(parameter.shape, ", "));
  }
}

void StoredCheckpoint::read(const std::string& parameter, StateKind kind, int64_t begin, std::span<float> out) const {
  const auto all = parameters();
  const auto found = std::ranges::find(all, parameter, &ParameterSpec::name);
  if (found == all.end()) {
    throw_user_error("{} is a checkpoint of a different model: it has no parameter {}", folder().string(), parameter);
  }
  const int64_t end = begin + static_cast<int64_t>(out.size());
  if (begin < 0 || end > found->numel()) {
    throw_user_error(
        "{} is a checkpoint of a different model: {} has {} elements, but this model needs elements {} to {}",
        folder().string(), parameter, found->numel(), begin, end);
  }
  read_values(*found, kind, begin, out);
}

void StoredCheckpoint::read_unit(const UnitSpec& unit, StateKind kind, int64_t begin, std::span<float> out) const {
  const int64_t end = begin + static_cast<int64_t>(out.size());
  if (begin < 0 || end > unit.numel()) {
    throw_failure("elements {} to {} of unit {} were requested, but the unit has only {} elements", begin, end,
                  unit.name, unit.numel());
  }
  visit_parameters(unit, begin, end, [&](const ParameterRange& range) {
    read(range.parameter.name, kind, range.begin,
         out.subspan(static_cast<size_t>(range.offset), static_cast<size_t>(range.count)));
  });
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
        throw_failure(
            "{} was replaced by another process while it was being read: the ranks read {} from different saves",
            folder.string(), name);
      }
    }
  });
  return checksums;
}

void check_same_parameters(std::span<const ParameterSpec> of_checkpoint, std::span<const UnitSpec> of_run,
                           const fs::path& checkpoint) {
  const auto shape_of = [](const ParameterSpec& parameter) {
    return fmt::format("[{}]", fmt::join(parameter.shape, ", "));
  };
  const std::string remedy = "pass the checkpoint's model with --model_type, --model_config or --init_from";
  std::map<std::string, const ParameterSpec*> saved;
  for (const ParameterSpec& parameter : of_checkpoint) saved.emplace(parameter.name, &parameter);
  for (const UnitSpec& unit : of_run) {
    for (const ParameterSpec& parameter : unit.parameters) {
      const auto found = saved.find(parameter.name);
      if (found == saved.end()) {
        throw_user_error("{} is a checkpoint of a different model: it has no {} with shape {}{}; {}",
                         checkpoint.string(), parameter.name, shape_of(parameter),
                         saved.empty() ? "" : fmt::format(", but it has, for example, {:.100}", saved.begin()->first),
                         remedy);
      }
      if (found->second->shape != parameter.shape) {
        throw_user_error(
            "{} is a checkpoint of a different model: {} has shape {}, but the model of this run needs {}; {}",
            checkpoint.string(), parameter.name, shape_of(*found->second), shape_of(parameter), remedy);
      }
      saved.erase(found);
    }
  }
  if (!saved.empty()) {
    const ParameterSpec& left_over = *saved.begin()->second;
    throw_user_error("{} is a checkpoint of a different model: {} with shape {} is not in the model of this run; {}",
                     checkpoint.string(), left_over.name, shape_of(left_over), remedy);
  }
}

}  // namespace mpzero::io
