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

// What `manifest.json` says of a checkpoint's files. It is written last: a folder without it is not a checkpoint.
//
// Each data set is checksummed in blocks, not each file as a whole. A rank then verifies exactly the blocks it reads,
// however the shards were cut, all blocks can be hashed in parallel while they are in the processor's cache on their
// way to the disk, and nothing is read back. What lies between the data sets (HDF5's own structure, a few KiB) has a
// checksum of its own.
namespace mpzero::io {

inline constexpr const char* kManifestName = "manifest.json";
// Of the manifest and of the description of the units in the model's file: some MB for a checkpoint of 10^12
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
  std::vector<uint64_t> checksums;  // of each kChecksumBlockBytes, the last block may be shorter

  int64_t bytes() const { return count * static_cast<int64_t>(sizeof(float)); }
  int64_t blocks() const { return (bytes() + kChecksumBlockBytes - 1) / kChecksumBlockBytes; }
};

struct ManifestFile {
  std::string name;
  int64_t size = 0;
  uint64_t structure_checksum = 0;     // of all bytes that belong to no data set, in order
  std::vector<ShardDataset> datasets;  // by offset
  // Of DeepSpeed's format: the file is an archive with checksums of its own.
  bool has_own_checksums = false;
  // Of such an archive: see TorchZipReader::directory_checksum(), which all of the file hangs on. Nothing where an
  // mpzero wrote it that knew of none.
  // NOLINTNEXTLINE(readability-redundant-member-init): gcc wants one, or each designated initializer to name it
  std::optional<uint64_t> directory_checksum{};
};

struct Manifest {
  // Counts the saves into a folder of checkpoints, from 1: the larger the later, whatever steps the names speak of. 0:
  // written before there was such a count.
  int64_t generation = 0;
  std::string saved_at;  // UTC, "2026-11-21T03:14:15Z"; empty: not known
  RunRecord run;
  std::vector<ManifestFile> files;
  std::string checksum;  // of all of this as it was read, which two saves never share; empty where it was not read

  // Nothing where it lists no such file.
  const ManifestFile* find(const std::string& name) const;
};

// "master", "exp_avg", "exp_avg_sq": the names of the data sets.
const char* name_of(StateKind kind);

// The optimizer file of a rank, with DeepSpeed's stem: "bf16_zero_pp_rank_0_mp_rank_00_optim_states.h5".
std::string optimizer_file_name(const std::string& dtype, int rank);

std::string to_text(const ManifestFile& file);
ManifestFile manifest_file_from_text(const std::string& text);

// Writes and syncs the manifest of `folder`.
void write_manifest(const std::filesystem::path& folder, const Manifest& manifest, FileSystem& files = disk());
// Reads it back and checks it against itself. Throws Damaged naming the file where it is missing or not what was
// written, UserError where a newer mpzero wrote it.
Manifest read_manifest(const OpenFolder& folder);
Manifest read_manifest(const std::filesystem::path& folder);
// Throws what read_manifest does where there is none: the save was not finished.
[[noreturn]] void throw_no_manifest(const std::filesystem::path& folder);
// Checks the sizes of the files. Throws Damaged naming the first that has another.
void check_sizes(const OpenFolder& folder, const Manifest& manifest);
void check_sizes(const std::filesystem::path& folder, const Manifest& manifest);

// What is wrong where the files do not hold every element of every unit exactly once for each kind; empty: nothing.
std::string mistake_in_shards(const Manifest& manifest, std::span<const UnitSpec> units);
// Throws Failure where there is one.
void check_complete(const Manifest& manifest, std::span<const UnitSpec> units);

// See ManifestFile::structure_checksum. `datasets` by offset, `size` the file's.
uint64_t structure_checksum(const File& file, std::span<const ShardDataset> datasets, int64_t size);

}  // namespace mpzero::io
