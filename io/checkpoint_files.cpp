#include "io/checkpoint_files.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/checksum.hpp"
#include "io/hdf5.hpp"
#include "io/parallel_blocks.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr int64_t kFormatVersion = 1;

// Below this many blocks the threads would cost more than they save.
constexpr int64_t kBlocksWorthThreads = 4;

void write_dataset(File& file, ShardDataset& dataset, std::span<const float> values) {
  if (static_cast<int64_t>(values.size()) != dataset.count) {
    throw_failure("unit {} came with {} values of {} where its shard has {}", dataset.unit, values.size(),
                  name_of(dataset.kind), dataset.count);
  }
  const std::span<const std::byte> bytes = std::as_bytes(values);
  dataset.checksums.resize(static_cast<size_t>(dataset.blocks()));
  parallel_for(dataset.blocks(), dataset.blocks() < kBlocksWorthThreads ? 1 : io_threads(), [&](int64_t block) {
    const int64_t begin = block * kChecksumBlockBytes;
    const int64_t size = std::min(kChecksumBlockBytes, dataset.bytes() - begin);
    const std::span<const std::byte> part = bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
    dataset.checksums[static_cast<size_t>(block)] = checksum(part);
    file.write(dataset.offset + begin, part);
  });
  file.start_writeback(dataset.offset, dataset.bytes());
}

json to_json(std::span<const UnitSpec> units) {
  json list = json::array();
  for (const UnitSpec& unit : units) {
    json parameters = json::array();
    for (const ParameterSpec& parameter : unit.parameters) {
      parameters.push_back({{"name", parameter.name}, {"shape", parameter.shape}});
    }
    list.push_back({{"unit", unit.name}, {"parameters", std::move(parameters)}});
  }
  return list;
}

std::vector<UnitSpec> units_from_json(const json& list) {
  std::vector<UnitSpec> units;
  for (const json& entry : list) {
    UnitSpec unit{entry.at("unit").get<std::string>(), {}};
    for (const json& parameter : entry.at("parameters")) {
      unit.parameters.push_back(
          {parameter.at("name").get<std::string>(), parameter.at("shape").get<std::vector<int64_t>>()});
    }
    units.push_back(std::move(unit));
  }
  return units;
}

}  // namespace

ManifestFile write_optimizer_file(const fs::path& folder, const std::string& name, std::span<const UnitShard> shards,
                                  const FetchShard& fetch) {
  ManifestFile entry;
  if (std::all_of(shards.begin(), shards.end(), [](const UnitShard& shard) { return shard.count == 0; })) return entry;
  const fs::path path = folder / name;
  entry.name = name;
  hdf5::File layout = hdf5::File::create(path);
  std::vector<size_t> shard_of_dataset;
  for (size_t i = 0; i < shards.size(); ++i) {
    const UnitShard& shard = shards[i];
    if (shard.count == 0) continue;
    if (shard.begin < 0 || shard.count < 0 || shard.begin + shard.count > shard.unit->numel()) {
      throw_failure("shard [{}, {}) reaches out of unit {}, which has {} elements", shard.begin,
                    shard.begin + shard.count, shard.unit->name, shard.unit->numel());
    }
    hdf5::Group group = layout.create_group(shard.unit->name);
    group.set_attribute("begin", shard.begin);
    group.set_attribute("count", shard.count);
    const uint64_t extent = static_cast<uint64_t>(shard.count);
    for (const StateKind kind : {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq}) {
      const int64_t offset = group.reserve_dataset<float>(name_of(kind), std::span(&extent, 1));
      entry.datasets.push_back({shard.unit->name, kind, shard.begin, shard.count, offset, {}});
      shard_of_dataset.push_back(i);
    }
  }
  layout.set_attribute("format_version", kFormatVersion);
  layout.close();

  File file = File::open_for_update(path);
  for (size_t i = 0; i < entry.datasets.size(); ++i) {
    ShardDataset& dataset = entry.datasets[i];
    write_dataset(file, dataset, fetch(shard_of_dataset[i], dataset.kind));
  }
  std::sort(entry.datasets.begin(), entry.datasets.end(),
            [](const ShardDataset& a, const ShardDataset& b) { return a.offset < b.offset; });
  entry.size = file.size();
  entry.structure_checksum = structure_checksum(file, entry.datasets, entry.size);
  file.sync();
  return entry;
}

ManifestFile write_model_states(const fs::path& folder, const ModelStates& states) {
  const TrainingProgress& progress = states.progress;
  const fs::path path = folder / kModelStatesName;
  hdf5::File out = hdf5::File::create(path);
  out.set_attribute("format_version", kFormatVersion);
  out.set_attribute("global_steps", progress.step);
  out.set_attribute("tokens_seen", progress.tokens_seen);
  out.set_attribute("windows_seen", progress.windows_seen);
  out.set_attribute("seed", progress.seed);
  out.set_attribute("data_order", progress.data_order);
  out.set_attribute("lr", progress.lr);
  out.set_attribute("dtype", progress.dtype);
  out.set_attribute("zero_stage", static_cast<int64_t>(progress.zero_stage));
  out.set_attribute("model_config", progress.model_config_json);
  out.set_attribute("ds_config", progress.run_config_json);
  out.set_attribute("param_shapes", to_json(states.units).dump());
  out.close();

  File file = File::open_for_update(path);
  ManifestFile entry{kModelStatesName, file.size(), 0, {}};
  entry.structure_checksum = structure_checksum(file, {}, entry.size);
  file.sync();
  return entry;
}

ModelStates read_model_states(const fs::path& path) {
  const hdf5::File in = hdf5::File::open(path);
  if (const auto version = in.attribute<int64_t>("format_version"); version != kFormatVersion) {
    throw_user_error("{} has format version {}, this mpzero reads version {}: use the mpzero that wrote it",
                     path.string(), version, kFormatVersion);
  }
  ModelStates states;
  TrainingProgress& progress = states.progress;
  progress.step = in.attribute<int64_t>("global_steps");
  progress.tokens_seen = in.attribute<int64_t>("tokens_seen");
  progress.windows_seen = in.attribute<int64_t>("windows_seen");
  progress.seed = in.attribute<uint64_t>("seed");
  if (in.has_attribute("data_order")) progress.data_order = in.text_attribute("data_order");
  if (in.has_attribute("lr")) progress.lr = in.attribute<double>("lr");
  progress.dtype = in.text_attribute("dtype");
  progress.zero_stage = static_cast<int>(in.attribute<int64_t>("zero_stage"));
  progress.model_config_json = in.text_attribute("model_config");
  progress.run_config_json = in.text_attribute("ds_config");
  try {
    states.units = units_from_json(json::parse(in.text_attribute("param_shapes")));
  } catch (const json::exception& unexpected) {
    throw_damaged(path, fmt::format("param_shapes is not as expected ({})", unexpected.what()));
  }
  return states;
}

}  // namespace mpzero::io
