#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "io/bytes/checksum.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/run_record.hpp"
#include "io/files/atomic_file.hpp"
#include "io/files/open_folder.hpp"

// `manifest.json` describes the files of a checkpoint. The manifest is written last, so a folder without a manifest is
// not a complete checkpoint.
//
// Checksums are per block of a dataset, not per file, so that each rank verifies only the blocks that it reads,
// regardless of the number of ranks. The bytes between the datasets (HDF5 metadata, a few KiB) have a separate
// checksum.
namespace mpzero::io {

inline constexpr const char* kManifestName = "manifest.json";
// Limits for the manifest and for the list of units in the model file. The manifest of a checkpoint of 10^12 parameters
// needs several MB.
inline constexpr JsonLimits kManifestLimits{.bytes = size_t{1} << 28};
inline constexpr const char* kModelStatesName = "mp_rank_00_model_states.h5";

// Elements [begin, begin + count) of a unit as fp32, at byte `offset` of the file.
struct ShardDataset {
  std::string unit;
  StateKind kind = StateKind::kMaster;
  int64_t begin = 0;
  int64_t count = 0;
  int64_t offset = 0;
  std::vector<uint64_t> checksums;  // one per kChecksumBlockBytes; the last block may be shorter

  int64_t bytes() const { return count * static_cast<int64_t>(sizeof(float)); }
  int64_t blocks() const { return (bytes() + kChecksumBlockBytes - 1) / kChecksumBlockBytes; }
};

struct ManifestFile {
  std::string name;
  int64_t size = 0;
  uint64_t structure_checksum = 0;     // covers the bytes outside of datasets
  std::vector<ShardDataset> datasets;  // sorted by offset
  // True for archives in DeepSpeed's format, which contain their own checksums.
  bool has_own_checksums = false;
  // TorchZipReader::directory_checksum() of the archive, which covers the full file. std::nullopt for other files and
  // for archives from older versions of mpzero.
  // NOLINTNEXTLINE(readability-redundant-member-init): avoids gcc's -Wmissing-field-initializers
  std::optional<uint64_t> directory_checksum{};
};

struct Manifest {
  // Sequence number of the save in its checkpoint folder, counted from 1. A later save has a larger generation,
  // regardless of its step. The generation is 0 in manifests from versions without generations.
  int64_t generation = 0;
  std::string saved_at;  // UTC, "2026-11-21T03:14:15Z"; empty if unknown
  RunRecord run;
  std::vector<ManifestFile> files;
  std::string checksum;  // hash of the content, unique to each save; empty unless read from a file

  // Returns nullptr if the manifest does not list the file.
  const ManifestFile* find(const std::string& name) const;
};

// Returns the name of the dataset for a kind of state: "master", "exp_avg" or "exp_avg_sq".
const char* name_of(StateKind kind);

// Returns DeepSpeed's file name with the extension .h5: "bf16_zero_pp_rank_0_mp_rank_00_optim_states.h5".
std::string optimizer_file_name(const std::string& dtype, int rank);

std::string to_text(const ManifestFile& file);
ManifestFile manifest_file_from_text(const std::string& text);

// Writes and syncs the manifest of `folder`.
void write_manifest(const std::filesystem::path& folder, const Manifest& manifest, FileSystem& files = disk());
// Reads and verifies the manifest. Throws Damaged if the file is missing or damaged, and UserError if a newer version
// of mpzero wrote it.
Manifest read_manifest(const OpenFolder& folder);
Manifest read_manifest(const std::filesystem::path& folder);
// Throws the error of read_manifest() for a missing manifest, which indicates an incomplete save.
[[noreturn]] void throw_no_manifest(const std::filesystem::path& folder);
// Checks the sizes of all files except carried states, which are optional. Throws Damaged with the name of the first
// file whose size differs from the manifest.
void check_sizes(const OpenFolder& folder, const Manifest& manifest);
void check_sizes(const std::filesystem::path& folder, const Manifest& manifest);
// Checks the size of one file. Throws Damaged if the size differs from the manifest.
void check_size(const OpenFolder& folder, const ManifestFile& file);

// Checks that the files contain every element of every unit exactly once for each kind of state. Returns a description
// of the first error, or an empty string.
std::string mistake_in_shards(const Manifest& manifest, std::span<const UnitSpec> units);
// Throws Failure if mistake_in_shards() finds an error.
void check_complete(const Manifest& manifest, std::span<const UnitSpec> units);

// Computes ManifestFile::structure_checksum. `datasets` must be sorted by offset. `size` is the file size in bytes.
uint64_t structure_checksum(const File& file, std::span<const ShardDataset> datasets, int64_t size);

}  // namespace mpzero::io
