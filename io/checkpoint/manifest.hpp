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

// The content of `manifest.json`, which describes the files of a checkpoint. It is written last: a folder without it is
// not a checkpoint.
//
// Checksums are per block of a dataset, not per file. A rank therefore verifies exactly the blocks that it reads,
// however the shards were split, and blocks are hashed in parallel while they are in the CPU cache before a write:
// nothing is read back. The bytes between the datasets (HDF5's own structure, a few KiB) have their own checksum.
namespace mpzero::io {

inline constexpr const char* kManifestName = "manifest.json";
// Limits for the manifest and for the description of the units in the model file: some MB for a checkpoint of 10^12
// parameters.
inline constexpr JsonLimits kManifestLimits{.bytes = size_t{1} << 28};
inline constexpr const char* kModelStatesName = "mp_rank_00_model_states.h5";

// `count` floats of a unit from element `begin`, at byte `offset` of the file.
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
  uint64_t structure_checksum = 0;     // of all bytes that belong to no dataset, in order
  std::vector<ShardDataset> datasets;  // by offset
  // DeepSpeed's format: the file is an archive with its own checksums.
  bool has_own_checksums = false;
  // Only for such an archive: see TorchZipReader::directory_checksum(), which covers the full file. std::nullopt if an
  // older mpzero wrote it.
  // NOLINTNEXTLINE(readability-redundant-member-init): gcc wants one, or each designated initializer to name it
  std::optional<uint64_t> directory_checksum{};
};

struct Manifest {
  // Counts the saves into a checkpoint folder, from 1. A larger generation is later, regardless of the steps in
  // the names. 0: written before generations existed.
  int64_t generation = 0;
  std::string saved_at;  // UTC, "2026-11-21T03:14:15Z"; empty: unknown
  RunRecord run;
  std::vector<ManifestFile> files;
  std::string checksum;  // of the manifest as it was read, unique to each save; empty if it was not read

  // nullptr if it lists no such file.
  const ManifestFile* find(const std::string& name) const;
};

// "master", "exp_avg", "exp_avg_sq": the names of the datasets.
const char* name_of(StateKind kind);

// The optimizer file of a rank, with DeepSpeed's stem: "bf16_zero_pp_rank_0_mp_rank_00_optim_states.h5".
std::string optimizer_file_name(const std::string& dtype, int rank);

std::string to_text(const ManifestFile& file);
ManifestFile manifest_file_from_text(const std::string& text);

// Writes and syncs the manifest of `folder`.
void write_manifest(const std::filesystem::path& folder, const Manifest& manifest, FileSystem& files = disk());
// Reads and verifies the manifest. Throws Damaged naming the file if it is missing or damaged, UserError if a newer
// mpzero wrote it.
Manifest read_manifest(const OpenFolder& folder);
Manifest read_manifest(const std::filesystem::path& folder);
// Throws the error of read_manifest for a missing manifest: the save was not finished.
[[noreturn]] void throw_no_manifest(const std::filesystem::path& folder);
// Checks the sizes of the files that every run needs, which exclude carried states. Throws Damaged naming the first
// file whose size differs.
void check_sizes(const OpenFolder& folder, const Manifest& manifest);
void check_sizes(const std::filesystem::path& folder, const Manifest& manifest);
// The same for one file.
void check_size(const OpenFolder& folder, const ManifestFile& file);

// Describes the first error if the files do not hold every element of every unit exactly once for each kind. Empty: no
// error.
std::string mistake_in_shards(const Manifest& manifest, std::span<const UnitSpec> units);
// Throws Failure if mistake_in_shards() finds an error.
void check_complete(const Manifest& manifest, std::span<const UnitSpec> units);

// See ManifestFile::structure_checksum. `datasets` are sorted by offset, `size` is that of the file.
uint64_t structure_checksum(const File& file, std::span<const ShardDataset> datasets, int64_t size);

}  // namespace mpzero::io
