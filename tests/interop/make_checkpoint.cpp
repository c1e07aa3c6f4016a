#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/process_group.hpp"
#include "io/checkpoint_dir/save.hpp"
#include "io/files/atomic_file.hpp"
#include "io/weights/folder_weights.hpp"
#include "tests/base/thread_group.hpp"

// make_checkpoint WEIGHTS_DIR CHECKPOINT_DIR TAG RANKS: a checkpoint whose master weights are those of a Hugging Face
// folder and whose moments are the weights times 2 and times 3, as RANKS ranks would have written it. For the interop
// tests.
namespace {

using namespace mpzero;

// "layers.3" of "model.layers.3.mlp.up_proj.weight".
std::string unit_of(const std::string& parameter) {
  constexpr std::string_view kLayers = "model.layers.";
  if (parameter.starts_with(kLayers)) {
    return "layers." + parameter.substr(kLayers.size(), parameter.find('.', kLayers.size()) - kLayers.size());
  }
  return parameter.find("embed_tokens") != std::string::npos ? "embedding" : "head";
}

std::vector<UnitSpec> units_of(const io::FolderWeights& weights) {
  std::map<std::string, UnitSpec> units;
  for (const ParameterSpec& parameter : weights.parameters()) {
    UnitSpec& unit = units[unit_of(parameter.name)];
    unit.name = unit_of(parameter.name);
    unit.parameters.push_back(parameter);
  }
  std::vector<UnitSpec> list;
  for (auto& [name, unit] : units) list.push_back(std::move(unit));
  return list;
}

std::vector<float> full_unit(const io::FolderWeights& weights, const UnitSpec& unit, float factor) {
  std::vector<float> values(static_cast<size_t>(unit.numel()));
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    const ParameterSpec& parameter = unit.parameters[i];
    weights.read(parameter, 0,
                 std::span(values).subspan(static_cast<size_t>(parameter_offset(unit, i)),
                                           static_cast<size_t>(parameter.numel())));
  }
  if (factor != 1) {
    for (float& value : values) value *= factor;
  }
  return values;
}

void write_rank(const io::FolderWeights& weights, const std::vector<UnitSpec>& units, const std::string& config,
                const std::string& dir, const std::string& tag, ProcessGroup& group) {
  io::SaveJob job{.checkpoint_dir = dir, .tag = tag, .progress = {}, .shards = {}, .model_type = {}};
  for (const UnitSpec& unit : units) {
    const int64_t share = (unit.numel() + group.world_size() - 1) / group.world_size();
    const int64_t begin = std::min(unit.numel(), group.rank() * share);
    job.shards.push_back({&unit, begin, std::min(share, unit.numel() - begin)});
  }
  job.progress.step = 5;
  job.progress.dtype = "bf16";
  job.progress.model_config_json = config;
  std::vector<float> values;
  const auto fetch = [&](size_t i, io::StateKind kind) {
    values = full_unit(weights, units[i], 1.0F + static_cast<float>(kind));
    return std::span<const float>(values).subspan(static_cast<size_t>(job.shards[i].begin),
                                                  static_cast<size_t>(job.shards[i].count));
  };
  io::save_checkpoint(job, {.fetch = fetch}, group);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 5) throw std::invalid_argument("make_checkpoint WEIGHTS_DIR CHECKPOINT_DIR TAG RANKS");
    const std::string folder = argv[1];
    const io::FolderWeights weights(folder);
    const std::string config = io::read_text_file(folder + "/config.json", 1 << 20);
    const std::vector<UnitSpec> units = units_of(weights);
    const std::vector<std::string> errors = ThreadGroup(std::stoi(argv[4])).run([&](ProcessGroup& group) {
      write_rank(weights, units, config, argv[2], argv[3], group);
    });
    for (const std::string& error : errors) {
      if (!error.empty()) throw std::runtime_error(error);
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "make_checkpoint: {}\n", error.what());
    return 1;
  }
}
