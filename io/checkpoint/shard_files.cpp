#include "io/checkpoint/shard_files.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/files/damaged.hpp"
#include "io/files/output_file.hpp"
#include "io/files/scratch_file.hpp"
#include "io/hdf5/file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr int64_t kShardVersion = 1;

// Datasets of at least two pages are page-aligned, so that their values are written without a copy.
constexpr uint64_t kAlignment = OutputFile::kAlignment;

// The layout of a file without its values.
struct Layout {
  int64_t size = 0;
  std::vector<ShardDataset> datasets;  // by offset
  std::vector<size_t> shards;          // shard index of each dataset
  std::vector<std::byte> structure;    // bytes outside of datasets, in order
};

// Returns the content of `file` outside of the datasets of `layout`.
std::vector<std::byte> read_structure(const File& file, const Layout& layout) {
  std::vector<std::byte> structure;
  const auto add = [&](int64_t begin, int64_t end) {
    const size_t before = structure.size();
    structure.resize(before + static_cast<size_t>(end - begin));
    file.read(begin, std::span(structure).subspan(before));
  };
  int64_t position = 0;
  for (const ShardDataset& dataset : layout.datasets) {
    add(position, dataset.offset);
    position = dataset.offset + dataset.bytes();
  }
  add(position, layout.size);
  return structure;
}

Layout lay_out(std::span<const UnitShard> shards) {
  const ScratchFile scratch;
  hdf5::File file = hdf5::File::create(scratch.path(), kAlignment);
  std::vector<std::pair<ShardDataset, size_t>> found;
  for (size_t i = 0; i < shards.size(); ++i) {
    const UnitShard& shard = shards[i];
    if (shard.count == 0) continue;
    if (shard.begin < 0 || shard.count < 0 || shard.begin + shard.count > shard.unit->numel()) {
      throw_failure("a shard spans elements {} to {} of unit {}, which has only {} elements", shard.begin,
                    shard.begin + shard.count, shard.unit->name, shard.unit->numel());
    }
    hdf5::Group group = file.create_group(shard.unit->name);
    group.set_attribute("begin", shard.begin);
    group.set_attribute("count", shard.count);
    const uint64_t extent = static_cast<uint64_t>(shard.count);
    for (const StateKind kind : states_of(*shard.unit)) {
      const int64_t offset = group.reserve_dataset<float>(name_of(kind), std::span(&extent, 1));
      found.emplace_back(ShardDataset{shard.unit->name, kind, shard.begin, shard.count, offset, {}}, i);
    }
  }
  file.set_attribute("format_version", kShardVersion);
  file.close();
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first.offset < b.first.offset; });
  const File laid_out = File::open_for_reading(scratch.path());
  Layout layout;
  layout.size = laid_out.size();
  for (auto& [dataset, shard] : found) {
    layout.datasets.push_back(std::move(dataset));
    layout.shards.push_back(shard);
  }
  layout.structure = read_structure(laid_out, layout);
  return layout;
}

std::span<const float> fetch_checked(const ShardValues& values, size_t shard, const ShardDataset& dataset) {
  const std::span<const float> fetched = values.fetch(shard, dataset.kind);
  if (static_cast<int64_t>(fetched.size()) != dataset.count) {
    throw_failure("unit {}: fetch returned {} values of {}, but the shard has {} elements", dataset.unit,
                  fetched.size(), name_of(dataset.kind), dataset.count);
  }
  return fetched;
}

json to_json(std::span<const UnitSpec> units) {
  json list = json::array();
  for (const UnitSpec& unit : units) {
    json parameters = json::array();
    for (const ParameterSpec& parameter : unit.parameters) {
      parameters.push_back({{"name", parameter.name}, {"shape", parameter.shape}});
      if (!parameter.trainable) parameters.back()["trainable"] = false;
    }
    list.push_back({{"unit", unit.name}, {"parameters", std::move(parameters)}});
    if (unit.in_base) list.back()["in_base"] = true;
  }
  return list;
}

std::vector<UnitSpec> units_from_json(const json& list) {
  std::vector<UnitSpec> units;
  for (const json& entry : list) {
    UnitSpec unit{entry.at("unit").get<std::string>(), {}, entry.value("in_base", false)};
    for (const json& parameter : entry.at("parameters")) {
      unit.parameters.push_back({parameter.at("name").get<std::string>(),
                                 parameter.at("shape").get<std::vector<int64_t>>(),
                                 parameter.value("trainable", true)});
    }
    units.push_back(std::move(unit));
  }
  return units;
}

// Writes and syncs `folder/name`. Omits empty shards. Returns an empty name if all shards are empty.
ManifestFile write_optimizer_file(const fs::path& folder, const std::string& name, std::span<const UnitShard> shards,
                                  const ShardValues& values, const WriteOptions& options) {
  ManifestFile entry;
  if (std::all_of(shards.begin(), shards.end(), [](const UnitShard& shard) { return shard.count == 0; })) return entry;
  Layout layout = lay_out(shards);
  entry.name = name;
  entry.size = layout.size;
  entry.structure_checksum = checksum(layout.structure);

  OutputFile file(folder / name, {.expected_size = layout.size, .stop = options.stop, .pace = options.pace},
                  *options.files);
  std::vector<OutputFile::Piece> pieces;
  std::span<const std::byte> structure = layout.structure;
  int64_t position = 0;
  const auto add = [&](std::span<const std::byte> bytes, std::span<uint64_t> checksums) {
    pieces.push_back({bytes, checksums});
    position += static_cast<int64_t>(bytes.size());
  };
  const auto add_structure = [&](int64_t end) {
    const auto bytes = static_cast<size_t>(end - position);
    add(structure.first(bytes), {});
    structure = structure.subspan(bytes);
  };
  for (size_t i = 0; i < layout.datasets.size(); ++i) {
    ShardDataset& dataset = layout.datasets[i];
    add_structure(dataset.offset);
    dataset.checksums.resize(static_cast<size_t>(dataset.blocks()));
    add(std::as_bytes(fetch_checked(values, layout.shards[i], dataset)), dataset.checksums);
    if (values.all_stay) continue;
    file.append(pieces);
    pieces.clear();
  }
  add_structure(layout.size);
  file.append(pieces);
  file.finish();
  entry.datasets = std::move(layout.datasets);
  return entry;
}

ManifestFile write_model_states(const fs::path& folder, const ModelStates& states, FileSystem& files) {
  const TrainingProgress& progress = states.progress;
  const ScratchFile scratch;
  hdf5::File out = hdf5::File::create(scratch.path());
  out.set_attribute("format_version", kShardVersion);
  out.set_attribute("global_steps", progress.step);
  out.set_attribute("tokens_seen", progress.tokens_seen);
  out.set_attribute("windows_seen", progress.sequences_seen);
  out.set_attribute("seed", progress.seed);
  out.set_attribute("data_order", progress.data_order);
  out.set_attribute("lr", progress.lr);
  out.set_attribute("dtype", progress.dtype);
  out.set_attribute("zero_stage", static_cast<int64_t>(progress.zero_stage));
  out.set_attribute("model_config", progress.model_config_json);
  out.set_attribute("ds_config", progress.run_config_json);
  if (!progress.settings_json.empty()) out.set_attribute("settings", progress.settings_json);
  out.set_attribute("param_shapes", to_json(states.units).dump());
  out.close();

  const File laid_out = File::open_for_reading(scratch.path());
  std::vector<std::byte> bytes(static_cast<size_t>(laid_out.size()));
  laid_out.read(0, bytes);
  OutputFile file(folder / kModelStatesName, {.expected_size = laid_out.size()}, files);
  file.append(bytes);
  file.finish();
  return {.name = kModelStatesName, .size = file.size(), .structure_checksum = checksum(bytes), .datasets = {}};
}

}  // namespace

ModelStates read_model_states(const fs::path& path, std::span<const std::byte> bytes) {
  const hdf5::File in = hdf5::File::open_image(path, bytes);
  if (const auto version = in.attribute<int64_t>("format_version"); version != kShardVersion) {
    throw_user_error(
        "{} has format version {}, but this build reads version {}; use the version of mpzero that wrote the file",
        path.string(), version, kShardVersion);
  }
  ModelStates states;
  TrainingProgress& progress = states.progress;
  progress.step = in.attribute<int64_t>("global_steps");
  progress.tokens_seen = in.attribute<int64_t>("tokens_seen");
  progress.sequences_seen = in.attribute<int64_t>("windows_seen");
  progress.seed = in.attribute<uint64_t>("seed");
  if (in.has_attribute("data_order")) progress.data_order = in.text_attribute("data_order");
  if (in.has_attribute("lr")) progress.lr = in.attribute<double>("lr");
  progress.dtype = in.text_attribute("dtype");
  progress.zero_stage = static_cast<int>(in.attribute<int64_t>("zero_stage"));
  progress.model_config_json = in.text_attribute("model_config");
  progress.run_config_json = in.text_attribute("ds_config");
  if (in.has_attribute("settings")) progress.settings_json = in.text_attribute("settings");
  try {
    states.units = units_from_json(parse_json(in.text_attribute("param_shapes"), kManifestLimits));
  } catch (const JsonError& error) {
    throw_damaged(path, fmt::format("param_shapes is invalid ({})", error.what()));
  } catch (const json::exception& unexpected) {
    throw_damaged(path, fmt::format("param_shapes is invalid ({})", unexpected.what()));
  }
  return states;
}

std::string Hdf5Writer::write_shards(const fs::path& folder, int rank, const ShardValues& values,
                                     const WriteOptions& options) const {
  const ManifestFile file =
      write_optimizer_file(folder, optimizer_file_name(progress_.dtype, rank), shards_, values, options);
  std::string written = file.name.empty() ? "" : to_text(file) + "\n";
  if (carried_ != nullptr) {
    written += to_text(write_carried_file(folder, carried_file_name(progress_.dtype, rank), *carried_, options)) + "\n";
  }
  return written;
}

std::vector<ManifestFile> Hdf5Writer::finish(const fs::path& folder, std::span<const std::string> written,
                                             FileSystem& files) const {
  const ModelStates states{progress_, units_of(shards_)};
  Manifest manifest;
  manifest.files.push_back(write_model_states(folder, states, files));
  for (const std::string& of_rank : written) {
    std::istringstream lines(of_rank);
    for (std::string line; std::getline(lines, line);) manifest.files.push_back(manifest_file_from_text(line));
  }
  check_complete(manifest, states.units);
  return std::move(manifest.files);
}

}  // namespace mpzero::io
