#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/bytes/parallel_blocks.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/checkpoint/shard_files.hpp"
#include "io/files/damaged.hpp"
#include "io/files/input_file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kFloatsPerBlock = kChecksumBlockBytes / kFloatBytes;
// Below this many blocks the threads would cost more than they save.
constexpr int64_t kBlocksWorthThreads = 4;

// A data set and which of its blocks have been verified.
struct Piece {
  explicit Piece(const ShardDataset& dataset) : dataset(dataset), verified(static_cast<size_t>(dataset.blocks())) {}
  const ShardDataset& dataset;
  std::vector<std::atomic<bool>> verified;
};

// One file of the checkpoint, opened and its structure verified when something of it is first read.
class ShardFile {
 public:
  ShardFile(const OpenFolder& folder, const ManifestFile& entry)
      : folder_(folder), path_(folder.path() / entry.name), entry_(entry) {
    for (const ShardDataset& dataset : entry.datasets) pieces_.emplace_back(dataset);
  }

  const fs::path& path() const { return path_; }
  std::deque<Piece>& pieces() { return pieces_; }

  void verify_structure() { file(); }

  // All of a file without data sets, verified.
  std::vector<std::byte> contents() const {
    std::vector<std::byte> bytes(static_cast<size_t>(entry_.size));
    folder_.open(entry_.name).read(0, bytes);
    if (!entry_.datasets.empty() || checksum(bytes) != entry_.structure_checksum) throw_other_structure();
    return bytes;
  }

  // Elements [begin, begin + out.size()) of the data set; every block they touch has been verified once.
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
      const bool whole = wanted_begin == block_begin && wanted_end == block_end;
      std::vector<float> buffer(whole ? 0 : static_cast<size_t>(block_end - block_begin));
      const std::span<float> values = whole ? wanted : std::span<float>(buffer);
      from.read(offset + block_begin * kFloatBytes, std::as_writable_bytes(values));
      check(piece.dataset, block, std::as_bytes(values));
      piece.verified[static_cast<size_t>(block)].store(true, std::memory_order_release);
      if (!whole) std::copy_n(buffer.begin() + (wanted_begin - block_begin), wanted.size(), wanted.begin());
    });
  }

 private:
  const InputFile& file() {
    const std::scoped_lock lock(opening_);
    if (!file_) {
      InputFile opened(folder_.open(entry_.name));
      if (structure_checksum(opened.file(), entry_.datasets, entry_.size) != entry_.structure_checksum) {
        throw_other_structure();
      }
      file_.emplace(std::move(opened));
    }
    return *file_;
  }

  [[noreturn]] void throw_other_structure() const {
    throw_damaged(path_, "the checksum of its structure does not match");
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

}  // namespace

struct CheckpointReader::Impl {
  struct Location {
    ShardFile* file;
    Piece* piece;
  };
  struct ParameterLocation {
    size_t unit;
    int64_t offset;
    const ParameterSpec* spec;
  };

  explicit Impl(std::shared_ptr<const OpenFolder> opened)
      : open_folder(std::move(opened)), folder(open_folder->path()), manifest(read_manifest(*open_folder)) {
    check_sizes(*open_folder, manifest);
    for (const ManifestFile& entry : manifest.files) {
      ShardFile& file = files.emplace_back(*open_folder, entry);
      for (Piece& piece : file.pieces()) {
        locations[{piece.dataset.unit, piece.dataset.kind}].push_back({&file, &piece});
      }
      if (entry.name == kModelStatesName) {
        // HDF5 is given the very bytes that were verified: it never sees others.
        states = read_model_states(file.path(), file.contents());
      }
    }
    if (states.units.empty()) {
      throw_not_whole("{} holds no {}: {}", folder.string(), kModelStatesName, kChooseAnother);
    }
    if (const std::string mistake = mistake_in_shards(manifest, states.units); !mistake.empty()) {
      throw_damaged(folder / kManifestName, mistake);
    }
    for (auto& [key, list] : locations) {
      std::sort(list.begin(), list.end(),
                [](const Location& a, const Location& b) { return a.piece->dataset.begin < b.piece->dataset.begin; });
    }
    for (size_t i = 0; i < states.units.size(); ++i) {
      const UnitSpec& unit = states.units[i];
      unit_index.emplace(unit.name, i);
      int64_t offset = 0;
      for (const ParameterSpec& parameter : unit.parameters) {
        parameters.emplace(parameter.name, ParameterLocation{i, offset, &parameter});
        offset += parameter.numel();
      }
    }
  }

  void read(const std::string& unit, StateKind kind, int64_t begin, std::span<float> out) {
    const auto index = unit_index.find(unit);
    if (index == unit_index.end()) {
      throw_user_error("{} is a checkpoint of another model: it has no unit {}", folder.string(), unit);
    }
    const int64_t numel = states.units[index->second].numel();
    const int64_t end = begin + static_cast<int64_t>(out.size());
    if (begin < 0 || end > numel) {
      throw_user_error("{} is a checkpoint of another model: unit {} has {} elements, [{}, {}) were asked for",
                       folder.string(), unit, numel, begin, end);
    }
    int64_t position = begin;
    const auto pieces = locations.find({unit, kind});
    static const std::vector<Location> kNone;
    for (const Location& location : pieces == locations.end() ? kNone : pieces->second) {
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
      throw_not_whole("{} is not complete: no file holds element {} of {} of unit {}; {}", folder.string(), position,
                      name_of(kind), unit, kChooseAnother);
    }
  }

  std::shared_ptr<const OpenFolder> open_folder;
  fs::path folder;
  Manifest manifest;
  ModelStates states;
  std::deque<ShardFile> files;
  std::map<std::pair<std::string, StateKind>, std::vector<Location>> locations;
  std::map<std::string, size_t> unit_index;
  std::map<std::string, ParameterLocation> parameters;
};

CheckpointReader::CheckpointReader(const fs::path& folder) : CheckpointReader(std::make_shared<OpenFolder>(folder)) {}
CheckpointReader::CheckpointReader(std::shared_ptr<const OpenFolder> folder)
    : impl_(std::make_unique<Impl>(std::move(folder))) {}
CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;

const fs::path& CheckpointReader::folder() const { return impl_->folder; }
const Manifest& CheckpointReader::manifest() const { return impl_->manifest; }
const TrainingProgress& CheckpointReader::progress() const { return impl_->states.progress; }
const std::vector<UnitSpec>& CheckpointReader::units() const { return impl_->states.units; }

void CheckpointReader::read(const std::string& unit, StateKind kind, int64_t begin, std::span<float> out) const {
  impl_->read(unit, kind, begin, out);
}

void CheckpointReader::read_parameter(const std::string& parameter, StateKind kind, int64_t begin,
                                      std::span<float> out) const {
  const auto found = impl_->parameters.find(parameter);
  if (found == impl_->parameters.end()) {
    throw_user_error("{} is a checkpoint of another model: it has no parameter {}", impl_->folder.string(), parameter);
  }
  const auto& [unit, offset, spec] = found->second;
  const int64_t end = begin + static_cast<int64_t>(out.size());
  if (begin < 0 || end > spec->numel()) {
    throw_user_error("{} is a checkpoint of another model: {} has {} elements, [{}, {}) were asked for",
                     impl_->folder.string(), parameter, spec->numel(), begin, end);
  }
  impl_->read(impl_->states.units[unit].name, kind, offset + begin, out);
}

void CheckpointReader::verify() const {
  std::vector<float> buffer;
  for (ShardFile& file : impl_->files) {
    if (!file.pieces().empty()) file.verify_structure();  // the model states were when they were read
    for (Piece& piece : file.pieces()) {
      constexpr int64_t kStride = 16 * kFloatsPerBlock;
      for (int64_t begin = 0; begin < piece.dataset.count; begin += kStride) {
        buffer.resize(static_cast<size_t>(std::min(kStride, piece.dataset.count - begin)));
        file.read(piece, begin, buffer);
      }
    }
  }
}

void CheckpointSource::read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const {
  reader_->read_parameter(parameter.name, StateKind::kMaster, begin, out);
}

void check_same_model(std::span<const UnitSpec> of_checkpoint, std::span<const UnitSpec> of_run,
                      const fs::path& checkpoint) {
  const auto shape_of = [](const ParameterSpec& parameter) {
    return fmt::format("[{}]", fmt::join(parameter.shape, ", "));
  };
  const std::string remedy = "give the model that it was made with";
  std::map<std::string, const ParameterSpec*> saved;
  for (const UnitSpec& unit : of_checkpoint) {
    for (const ParameterSpec& parameter : unit.parameters) saved.emplace(parameter.name, &parameter);
  }
  for (const UnitSpec& unit : of_run) {
    for (const ParameterSpec& parameter : unit.parameters) {
      const auto found = saved.find(parameter.name);
      if (found == saved.end()) {
        throw_user_error("{} is a checkpoint of another model: it has no {}, which is {} in this run; {}",
                         checkpoint.string(), parameter.name, shape_of(parameter), remedy);
      }
      if (found->second->shape != parameter.shape) {
        throw_user_error("{} is a checkpoint of another model: its {} is {}, in this run it is {}; {}",
                         checkpoint.string(), parameter.name, shape_of(*found->second), shape_of(parameter), remedy);
      }
      saved.erase(found);
    }
  }
  if (!saved.empty()) {
    const ParameterSpec& left_over = *saved.begin()->second;
    throw_user_error("{} is a checkpoint of another model: its {} {} does not occur in this run; {}",
                     checkpoint.string(), left_over.name, shape_of(left_over), remedy);
  }
  if (!std::equal(of_checkpoint.begin(), of_checkpoint.end(), of_run.begin(), of_run.end())) {
    throw_user_error(
        "{} groups the same parameters into other units than this run does; convert it with zero_to_fp32 and "
        "give the result to --init_from",
        checkpoint.string());
  }
}

}  // namespace mpzero::io
