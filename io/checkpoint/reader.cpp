#include "io/checkpoint/reader.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/parameter_spec.hpp"
#include "io/bytes/checksum.hpp"
#include "io/bytes/parallel_blocks.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/checkpoint/shard_files.hpp"
#include "io/files/damaged.hpp"
#include "io/files/input_file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kFloatsPerBlock = kChecksumBlockBytes / kFloatBytes;
// With fewer blocks, starting threads takes longer than verifying the blocks on one thread.
constexpr int64_t kBlocksWorthThreads = 4;

// A dataset and the state of its blocks.
struct Piece {
  explicit Piece(const ShardDataset& dataset) : dataset(dataset), verified(static_cast<size_t>(dataset.blocks())) {}
  const ShardDataset& dataset;
  std::vector<std::atomic<bool>> verified;
};

// A file of the checkpoint. The first read opens the file and verifies its structure.
class ShardFile {
 public:
  ShardFile(const OpenFolder& folder, const ManifestFile& entry)
      : folder_(folder), path_(folder.path() / entry.name), entry_(entry) {
    for (const ShardDataset& dataset : entry.datasets) pieces_.emplace_back(dataset);
  }

  const fs::path& path() const { return path_; }
  int64_t size() const { return entry_.size; }
  std::deque<Piece>& pieces() { return pieces_; }

  void verify_structure() { file(); }

  // Returns the verified contents of a file without datasets.
  std::vector<std::byte> contents() const {
    check_size(folder_, entry_);
    std::vector<std::byte> bytes(static_cast<size_t>(entry_.size));
    folder_.open(entry_.name).read(0, bytes);
    if (!entry_.datasets.empty() || checksum(bytes) != entry_.structure_checksum) throw_other_structure();
    return bytes;
  }

  // Reads elements [begin, begin + out.size()) of the dataset. Verifies each accessed block once.
  void read(Piece& piece, int64_t begin, std::span<float> out) {
    const InputFile& from = file();
    const int64_t end = begin + static_cast<int64_t>(out.size());
    const int64_t first = begin / kFloatsPerBlock;
    const int64_t blocks = (end + kFloatsPerBlock - 1) / kFloatsPerBlock - first;
    parallel_for(blocks, blocks < kBlocksWorthThreads ? 1 : io_threads(), [&](int64_t i) {
      const int64_t block = first + i;
      const int64_t block_begin = block * kFloatsPerBlock;
      const int64_t block_end = std::min(block_begin + kFloatsPerBlock, piece.dataset.count);
      const int64_t wanted_begin = std::max(begin, block_begin);
      const int64_t wanted_end = std::min(end, block_end);
      const std::span<float> wanted =
          out.subspan(static_cast<size_t>(wanted_begin - begin), static_cast<size_t>(wanted_end - wanted_begin));
      const int64_t offset = piece.dataset.offset;
      if (piece.verified[static_cast<size_t>(block)].load(std::memory_order_acquire)) {
        from.read(offset + wanted_begin * kFloatBytes, std::as_writable_bytes(wanted));
        return;
      }
      const bool full_block = wanted_begin == block_begin && wanted_end == block_end;
      std::vector<float> buffer(full_block ? 0 : static_cast<size_t>(block_end - block_begin));
      const std::span<float> values = full_block ? wanted : std::span<float>(buffer);
      from.read(offset + block_begin * kFloatBytes, std::as_writable_bytes(values));
      check(piece.dataset, block, std::as_bytes(values));
      piece.verified[static_cast<size_t>(block)].store(true, std::memory_order_release);
      if (!full_block) std::copy_n(buffer.begin() + (wanted_begin - block_begin), wanted.size(), wanted.begin());
    });
  }

 private:
  const InputFile& file() {
    const std::scoped_lock lock(opening_);
    if (!file_) {
      check_size(folder_, entry_);
      InputFile opened(folder_.open(entry_.name));
      if (structure_checksum(opened.file(), entry_.datasets, entry_.size) != entry_.structure_checksum) {
        throw_other_structure();
      }
      file_.emplace(std::move(opened));
    }
    return *file_;
  }

  [[noreturn]] void throw_other_structure() const {
    throw_damaged(path_, "the checksum of the file structure does not match");
  }

  void check(const ShardDataset& dataset, int64_t block, std::span<const std::byte> bytes) const {
    if (checksum(bytes) == dataset.checksums[static_cast<size_t>(block)]) return;
    const int64_t begin = dataset.offset + block * kChecksumBlockBytes;
    throw_damaged(path_, fmt::format("the checksum of bytes {} to {} ({} of unit {}) does not match", begin,
                                     begin + static_cast<int64_t>(bytes.size()), name_of(dataset.kind), dataset.unit));
  }

  const OpenFolder& folder_;
  fs::path path_;
  const ManifestFile& entry_;
  std::deque<Piece> pieces_;
  std::mutex opening_;
  std::optional<InputFile> file_;
};

class Hdf5Checkpoint final : public StoredCheckpoint {
 public:
  explicit Hdf5Checkpoint(std::shared_ptr<const OpenFolder> opened)
      : open_folder_(std::move(opened)), folder_(open_folder_->path()), manifest_(read_manifest(*open_folder_)) {
    check_sizes(*open_folder_, manifest_);
    for (const ManifestFile& entry : manifest_.files) {
      ShardFile& file = files_.emplace_back(*open_folder_, entry);
      for (Piece& piece : file.pieces()) {
        locations_[{piece.dataset.unit, piece.dataset.kind}].push_back({&file, &piece});
      }
      if (entry.name == kModelStatesName) {
        // HDF5 parses the same bytes that were verified.
        states_ = read_model_states(file.path(), file.contents());
      }
    }
    if (states_.units.empty()) {
      throw_incomplete("{} contains no {}: {}", folder_.string(), kModelStatesName, kChooseAnother);
    }
    if (const std::string mistake = mistake_in_shards(manifest_, states_.units); !mistake.empty()) {
      throw_damaged(folder_ / kManifestName, mistake);
    }
    for (auto& [key, list] : locations_) {
      std::sort(list.begin(), list.end(),
                [](const Location& a, const Location& b) { return a.piece->dataset.begin < b.piece->dataset.begin; });
    }
    for (size_t i = 0; i < states_.units.size(); ++i) {
      const UnitSpec& unit = states_.units[i];
      visit_parameters(unit, 0, unit.numel(), [&](const ParameterRange& range) {
        parameter_locations_.emplace(range.parameter.name, ParameterLocation{i, range.offset});
      });
      parameters_.insert(parameters_.end(), unit.parameters.begin(), unit.parameters.end());
    }
  }

  const fs::path& folder() const override { return folder_; }
  const RunRecord& run() const override { return manifest_.run; }
  const TrainingProgress& progress() const override { return states_.progress; }
  std::span<const ParameterSpec> parameters() const override { return parameters_; }

  void read_unit(const UnitSpec& unit, StateKind kind, int64_t begin, std::span<float> out) const override {
    if (std::ranges::find(states_.units, unit) == states_.units.end()) {
      StoredCheckpoint::read_unit(unit, kind, begin, out);
    } else {
      read_range(unit, kind, begin, out);
    }
  }

  int64_t carrying_ranks() const override {
    return std::ranges::count_if(files_, [](const ShardFile& file) { return is_carried_file(file.path().filename()); });
  }

  std::optional<StoredCarried> carried(int rank, std::span<const CarriedValues> wanted) const override {
    const std::string name = carried_file_name(progress().dtype, rank);
    const auto file = std::ranges::find_if(files_, [&](const ShardFile& f) { return f.path().filename() == name; });
    if (file == files_.end()) return std::nullopt;
    if (const int64_t most = largest_carried_file(states_.units, carrying_ranks()); file->size() > most) {
      throw_damaged(file->path(),
                    fmt::format("the file has {} bytes, but this model needs at most {}", file->size(), most));
    }
    return read_carried_file(file->path(), file->contents(), wanted);
  }

  // Reads verify blocks.
  void verify_what_was_read(ProcessGroup& group) const override {
    check_same_files(folder_, {{kManifestName, manifest_.checksum}}, group);
  }

  void verify() const override {
    std::vector<float> buffer;
    for (ShardFile& file : files_) {
      // The constructor has verified the model states.
      if (file.path().filename() != kModelStatesName) file.verify_structure();
      for (Piece& piece : file.pieces()) {
        constexpr int64_t kStride = 16 * kFloatsPerBlock;
        for (int64_t begin = 0; begin < piece.dataset.count; begin += kStride) {
          buffer.resize(static_cast<size_t>(std::min(kStride, piece.dataset.count - begin)));
          file.read(piece, begin, buffer);
        }
      }
    }
  }

 private:
  struct Location {
    ShardFile* file;
    Piece* piece;
  };
  struct ParameterLocation {
    size_t unit;
    int64_t offset;  // offset in the unit
  };

  void read_values(const ParameterSpec& parameter, StateKind kind, int64_t begin, std::span<float> out) const override {
    const auto& [unit, offset] = parameter_locations_.at(parameter.name);
    read_range(states_.units[unit], kind, offset + begin, out);
  }

  // Reads elements [begin, begin + out.size()) of the unit, which must exist in the checkpoint.
  void read_range(const UnitSpec& unit, StateKind kind, int64_t begin, std::span<float> out) const {
    const int64_t end = begin + static_cast<int64_t>(out.size());
    if (begin < 0 || end > unit.numel()) {
      throw_user_error(
          "{} is a checkpoint of a different model: unit {} has {} elements, but this model needs elements {} to {}",
          folder_.string(), unit.name, unit.numel(), begin, end);
    }
    if (kind != StateKind::kMaster && !unit.trainable()) {
      throw_user_error(
          "{}: unit {} was frozen and has no optimizer states; freeze the same parameters, or start a new run from the "
          "weights with --init_from {}",
          folder_.string(), unit.name, folder_.string());
    }
    int64_t position = begin;
    const auto pieces = locations_.find({unit.name, kind});
    static const std::vector<Location> kNone;
    for (const Location& location : pieces == locations_.end() ? kNone : pieces->second) {
      const ShardDataset& dataset = location.piece->dataset;
      const int64_t dataset_end = dataset.begin + dataset.count;
      if (position >= end || dataset.begin > position) break;
      if (dataset_end <= position) continue;
      const int64_t stop = std::min(end, dataset_end);
      location.file->read(*location.piece, position - dataset.begin,
                          out.subspan(static_cast<size_t>(position - begin), static_cast<size_t>(stop - position)));
      position = stop;
    }
    if (position < end) {
      throw_incomplete("{} is incomplete: no file contains element {} of {} in unit {}; {}", folder_.string(), position,
                       name_of(kind), unit.name, kChooseAnother);
    }
  }

  std::shared_ptr<const OpenFolder> open_folder_;
  fs::path folder_;
  Manifest manifest_;
  ModelStates states_;
  mutable std::deque<ShardFile> files_;  // reads open files and mark verified blocks
  std::map<std::pair<std::string, StateKind>, std::vector<Location>> locations_;
  std::vector<ParameterSpec> parameters_;
  std::map<std::string, ParameterLocation> parameter_locations_;
};

}  // namespace

std::unique_ptr<StoredCheckpoint> open_hdf5_checkpoint(std::shared_ptr<const OpenFolder> folder) {
  return std::make_unique<Hdf5Checkpoint>(std::move(folder));
}

}  // namespace mpzero::io
