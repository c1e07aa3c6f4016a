#include "io/checkpoint/manifest.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/checkpoint/carried_file.hpp"
#include "io/files/damaged.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr int kManifestVersion = 1;

StateKind kind_of(const std::string& name) {
  for (const StateKind kind : kStateKinds) {
    if (name == name_of(kind)) return kind;
  }
  throw std::invalid_argument("unknown state kind: " + name);
}

// Throws std::invalid_argument if the value does not fit into int64_t. get<int64_t>() would truncate the value.
int64_t integer(const json& value) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= std::numeric_limits<int64_t>::max());
  if (!fits) throw std::invalid_argument(fmt::format("{:.40} instead of an integer", value.dump()));
  return value.get<int64_t>();
}

json to_json(const ManifestFile& file) {
  json datasets = json::array();
  for (const ShardDataset& dataset : file.datasets) {
    std::string checksums;
    checksums.reserve(dataset.checksums.size() * 16);
    for (const uint64_t value : dataset.checksums) checksums += to_hex(value);
    datasets.push_back({{"unit", dataset.unit},
                        {"kind", name_of(dataset.kind)},
                        {"begin", dataset.begin},
                        {"count", dataset.count},
                        {"offset", dataset.offset},
                        {"xxh3_64", std::move(checksums)}});
  }
  if (file.has_own_checksums) {
    json entry = {{"name", file.name}, {"size", file.size}, {"has_own_checksums", true}};
    if (file.directory_checksum) entry["directory_xxh3_64"] = to_hex(*file.directory_checksum);
    return entry;
  }
  return {{"name", file.name},
          {"size", file.size},
          {"structure_xxh3_64", to_hex(file.structure_checksum)},
          {"datasets", std::move(datasets)}};
}

// Throws exceptions of nlohmann::json or the standard library if a value is missing or invalid.
ManifestFile file_from_json(const json& object) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
  };
  ManifestFile file;
  file.name = object.at("name").get<std::string>();
  require(!file.name.empty() && file.name.find('/') == std::string::npos && file.name[0] != '.',
          "a file name that is empty, contains \"/\" or begins with \".\"");
  file.size = integer(object.at("size"));
  file.has_own_checksums = object.value("has_own_checksums", false);
  if (file.has_own_checksums) {
    if (object.contains("directory_xxh3_64")) {
      file.directory_checksum = from_hex(object["directory_xxh3_64"].get<std::string>());
    }
    return file;
  }
  file.structure_checksum = from_hex(object.at("structure_xxh3_64").get<std::string>());
  int64_t end = 0;
  for (const json& entry : object.at("datasets")) {
    ShardDataset dataset;
    dataset.unit = entry.at("unit").get<std::string>();
    dataset.kind = kind_of(entry.at("kind").get<std::string>());
    dataset.begin = integer(entry.at("begin"));
    dataset.count = integer(entry.at("count"));
    dataset.offset = integer(entry.at("offset"));
    require(dataset.begin >= 0 && dataset.count > 0 && dataset.offset >= end, "a dataset out of order");
    require(dataset.offset <= file.size &&
                dataset.count <= (file.size - dataset.offset) / static_cast<int64_t>(sizeof(float)),
            "a dataset that extends past the end of its file");
    end = dataset.offset + dataset.bytes();
    const std::string checksums = entry.at("xxh3_64").get<std::string>();
    require(checksums.size() == static_cast<size_t>(dataset.blocks()) * 16, "a wrong number of checksums");
    for (size_t i = 0; i < checksums.size(); i += 16) {
      dataset.checksums.push_back(from_hex(std::string_view(checksums).substr(i, 16)));
    }
    file.datasets.push_back(std::move(dataset));
  }
  return file;
}

// Throws the same exceptions as file_from_json().
RunRecord run_from_json(const json& object) {
  RunRecord run{.id = object.at("id").get<std::string>(), .init_from = object.at("init_from").get<std::string>()};
  if (!is_run_id(run.id)) throw std::invalid_argument("an invalid run id");
  if (object.contains("init_from_xxh3_64")) {
    run.init_from_hash = to_hex(from_hex(object.at("init_from_xxh3_64").get<std::string>()));
  }
  if (object.contains("init_adapters")) {
    run.init_adapters = object.at("init_adapters").get<std::string>();
    run.init_adapters_hash = to_hex(from_hex(object.at("init_adapters_xxh3_64").get<std::string>()));
  }
  return run;
}

// Throws UserError instead of Damaged because the checksum is valid, so another version of mpzero wrote the file. All
// versions of the format must therefore keep `content` and its checksum.
void check_version(const json& version, const fs::path& path) {
  if (version.is_number_integer() && version == kManifestVersion) return;
  throw_user_error(
      "{} has format version {}, but this build reads version {}; use the version of mpzero that wrote the file, or a "
      "newer version",
      path.string(), version.dump(), kManifestVersion);
}

std::string checksum_of_text(const std::string& text) { return to_hex(checksum(std::as_bytes(std::span(text)))); }

}  // namespace

const char* name_of(StateKind kind) {
  switch (kind) {
    case StateKind::kMaster:
      return "master";
    case StateKind::kExpAvg:
      return "exp_avg";
    case StateKind::kExpAvgSq:
      return "exp_avg_sq";
  }
  throw_failure("unknown optimizer state {}", static_cast<int>(kind));
}

std::string optimizer_file_name(const std::string& dtype, int rank) {
  return fmt::format("{}zero_pp_rank_{}_mp_rank_00_optim_states.h5", dtype == "bf16" ? "bf16_" : "", rank);
}

std::string to_text(const ManifestFile& file) { return to_json(file).dump(); }
ManifestFile manifest_file_from_text(const std::string& text) {
  return file_from_json(parse_json(text, kManifestLimits));
}

void write_manifest(const fs::path& folder, const Manifest& manifest, FileSystem& file_system) {
  json files = json::array();
  for (const ManifestFile& file : manifest.files) files.push_back(to_json(file));
  json content = {{"format_version", kManifestVersion},
                  {"block_bytes", kChecksumBlockBytes},
                  {"generation", manifest.generation},
                  {"saved_at", manifest.saved_at},
                  {"files", std::move(files)}};
  if (!manifest.run.id.empty()) content["run"] = {{"id", manifest.run.id}, {"init_from", manifest.run.init_from}};
  if (!manifest.run.init_from_hash.empty()) content["run"]["init_from_xxh3_64"] = manifest.run.init_from_hash;
  if (!manifest.run.init_adapters_hash.empty()) {
    content["run"]["init_adapters"] = manifest.run.init_adapters;
    content["run"]["init_adapters_xxh3_64"] = manifest.run.init_adapters_hash;
  }
  const std::string text = fmt::format("{{\"content\":{},\n\"content_xxh3_64\":\"{}\"}}\n", content.dump(),
                                       checksum_of_text(content.dump()));
  write_text_file(folder / kManifestName, text, file_system);
}

const ManifestFile* Manifest::find(const std::string& name) const {
  const auto found = std::find_if(files.begin(), files.end(), [&](const auto& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

void throw_no_manifest(const fs::path& folder) {
  throw_incomplete("{} has no {}, so it is not a complete mpzero checkpoint; {}", folder.string(), kManifestName,
                   kChooseAnother);
}

Manifest read_manifest(const fs::path& folder) { return read_manifest(OpenFolder(folder)); }

Manifest read_manifest(const OpenFolder& folder) {
  const fs::path path = folder.path() / kManifestName;
  if (!folder.holds(kManifestName)) throw_no_manifest(folder.path());
  Manifest manifest;
  json document;
  try {
    document = parse_json(read_text_file(folder.open(kManifestName), static_cast<int64_t>(kManifestLimits.bytes)),
                          kManifestLimits);
    manifest.checksum = checksum_of_text(document.at("content").dump());
    if (document.at("content_xxh3_64").get<std::string>() != manifest.checksum) {
      throw_damaged(path, "the checksum does not match the content");
    }
    document = document.at("content");
  } catch (const JsonError& error) {
    throw_damaged(path, fmt::format("the JSON is invalid ({})", error.what()));
  } catch (const json::exception&) {
    throw_damaged(path, "the content or the checksum is missing or invalid");
  }
  try {
    check_version(document.at("format_version"), path);
    if (integer(document.at("block_bytes")) != kChecksumBlockBytes) {
      throw std::invalid_argument("an unsupported checksum block size");
    }
    if (document.contains("generation")) manifest.generation = integer(document["generation"]);
    manifest.saved_at = document.value("saved_at", std::string());
    if (document.contains("run")) manifest.run = run_from_json(document["run"]);
    for (const json& file : document.at("files")) manifest.files.push_back(file_from_json(file));
  } catch (const json::exception& unexpected) {
    throw_damaged(path, unexpected.what());
  } catch (const std::invalid_argument& unexpected) {
    throw_damaged(path, fmt::format("the manifest lists {}", unexpected.what()));
  }
  return manifest;
}

void check_sizes(const fs::path& folder, const Manifest& manifest) { check_sizes(OpenFolder(folder), manifest); }

void check_sizes(const OpenFolder& folder, const Manifest& manifest) {
  for (const ManifestFile& file : manifest.files) {
    if (!is_carried_file(file.name)) check_size(folder, file);
  }
}

void check_size(const OpenFolder& folder, const ManifestFile& file) {
  const fs::path path = folder.path() / file.name;
  const std::optional<FileIdentity> found = folder.find(file.name);
  if (!found) throw_damaged(path, "the file is missing");
  if (found->size != file.size) {
    throw_damaged(path, fmt::format("the file has {} bytes instead of {}, so it is {}", found->size, file.size,
                                    found->size < file.size ? "truncated" : "a different file"));
  }
}

std::string mistake_in_shards(const Manifest& manifest, std::span<const UnitSpec> units) {
  std::map<std::tuple<std::string, StateKind>, std::vector<std::pair<int64_t, int64_t>>> ranges;
  for (const ManifestFile& file : manifest.files) {
    for (const ShardDataset& dataset : file.datasets) {
      ranges[{dataset.unit, dataset.kind}].emplace_back(dataset.begin, dataset.begin + dataset.count);
    }
  }
  for (const UnitSpec& unit : units) {
    for (const StateKind kind : states_of(unit)) {
      auto& parts = ranges[{unit.name, kind}];
      std::sort(parts.begin(), parts.end());
      int64_t covered = 0;
      for (const auto& [begin, end] : parts) {
        if (begin != covered) break;
        covered = end;
      }
      if (covered != unit.numel() || (!parts.empty() && parts.back().second != covered)) {
        return fmt::format(
            "the {} shards of unit {} do not add up to its {} elements: the first error is at element {}",
            name_of(kind), unit.name, unit.numel(), covered);
      }
      ranges.erase({unit.name, kind});
    }
  }
  if (ranges.empty()) return "";
  return fmt::format("a rank has a shard of unit {}, but rank 0 does not have this unit",
                     std::get<0>(ranges.begin()->first));
}

void check_complete(const Manifest& manifest, std::span<const UnitSpec> units) {
  if (const std::string mistake = mistake_in_shards(manifest, units); !mistake.empty()) throw_failure("{}", mistake);
}

uint64_t structure_checksum(const File& file, std::span<const ShardDataset> datasets, int64_t size) {
  StreamingChecksum sum;
  std::vector<std::byte> buffer;
  const auto add = [&](int64_t begin, int64_t end) {
    while (begin < end) {
      buffer.resize(static_cast<size_t>(std::min(end - begin, kChecksumBlockBytes)));
      file.read(begin, buffer);
      sum.add(buffer);
      begin += static_cast<int64_t>(buffer.size());
    }
  };
  int64_t position = 0;
  for (const ShardDataset& dataset : datasets) {
    add(position, dataset.offset);
    position = dataset.offset + dataset.bytes();
  }
  add(position, size);
  return sum.value();
}

}  // namespace mpzero::io
