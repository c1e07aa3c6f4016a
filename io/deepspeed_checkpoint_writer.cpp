#include "io/deepspeed_checkpoint_writer.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <sstream>

#include "base/error.hpp"
#include "io/float_formats.hpp"
#include "io/parallel_blocks.hpp"
#include "io/range_checksums.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kPieceNumel = int64_t{1} << 20;
// So few that what was read to checksum or to round them still is in a core's cache when they are written.
constexpr size_t kCachedNumel = size_t{1} << 17;

// The files that a rank writes to, opened when it first does, and the checksums of what it wrote.
class OpenFiles {
 public:
  OpenFiles(const fs::path& folder, const DeepSpeedPlan& plan, FileSystem& files)
      : folder_(folder), plan_(plan), files_(files) {}

  void write(const DeepSpeedPlan::Place& place, std::span<const std::byte> bytes) {
    File& file = open(place.file);
    const uint32_t crc = crc32_of(bytes);
    file.write(offset_of(place), bytes);
    const std::scoped_lock lock(mutex_);
    checksums_[{place.file, place.storage}].add(place.offset, place.offset + static_cast<int64_t>(bytes.size()), crc);
  }
  void start_writeback(const DeepSpeedPlan::Place& place, int64_t bytes) {
    open(place.file).start_writeback(offset_of(place), bytes);
  }

  void sync() {
    for (auto& [index, file] : open_) file.sync();
  }

  // "FILE STORAGE RANGES" lines.
  std::string checksums() const {
    std::string lines;
    for (const auto& [place, checksums] : checksums_) {
      lines += fmt::format("{} {} {}\n", place.first, place.second, checksums.to_text());
    }
    return lines;
  }

 private:
  int64_t offset_of(const DeepSpeedPlan::Place& place) const {
    return plan_.files()[place.file].layout.storage_offset(place.storage) + place.offset;
  }
  File& open(size_t index) {
    const std::scoped_lock lock(mutex_);
    if (const auto found = open_.find(index); found != open_.end()) return found->second;
    const DeepSpeedPlan::PlannedFile& planned = plan_.files()[index];
    File& file = open_.emplace(index, File::open_or_create(folder_ / planned.name, files_)).first->second;
    // Every rank makes it as long as it will be: nobody has to wait for the one that does.
    file.resize(planned.layout.file_bytes());
    return file;
  }

  const fs::path& folder_;
  const DeepSpeedPlan& plan_;
  FileSystem& files_;
  std::mutex mutex_;
  std::map<size_t, File> open_;
  std::map<std::pair<size_t, size_t>, RangeChecksums> checksums_;
};

struct Piece {
  DeepSpeedPlan::Place place;
  std::span<const float> values;
  bool rounded = false;  // written as bf16
};

void write_piece(OpenFiles& files, const Piece& piece, const WriteOptions& options) {
  DeepSpeedPlan::Place place = piece.place;
  std::vector<uint16_t> rounded(piece.rounded ? std::min(kCachedNumel, piece.values.size()) : 0);
  for (size_t at = 0; at < piece.values.size(); at += kCachedNumel) {
    const std::span<const float> values = piece.values.subspan(at, std::min(kCachedNumel, piece.values.size() - at));
    std::span<const std::byte> bytes = std::as_bytes(values);
    if (piece.rounded) {
      std::transform(values.begin(), values.end(), rounded.begin(), &to_bfloat16);
      bytes = std::as_bytes(std::span<const uint16_t>(rounded).first(values.size()));
    }
    const auto count = static_cast<int64_t>(bytes.size());
    if (options.pace != nullptr) options.pace->wait(count, options.stop);
    files.write(place, bytes);
    if (options.pace != nullptr) options.pace->written(count, /*on_disk=*/false);
    place.offset += count;
  }
  files.start_writeback(piece.place, place.offset - piece.place.offset);
}

// Elements [begin, end) of the parameter, of which `values` are the first ones on.
void add_pieces(const DeepSpeedPlan& plan, const ParameterSpec& parameter, StateKind kind, int64_t begin, int64_t end,
                std::span<const float> values, std::vector<Piece>& pieces) {
  for (int64_t at = begin; at < end; at += kPieceNumel) {
    const int64_t stop = std::min(at + kPieceNumel, end);
    const auto part = [&](int64_t first, int64_t count) {
      return values.subspan(static_cast<size_t>(first - begin), static_cast<size_t>(count));
    };
    plan.layout().visit(parameter.name, at, stop, [&](const DeepSpeedLayout::Slice& slice) {
      pieces.push_back({plan.place(slice, kind), part(slice.begin, slice.count)});
    });
    if (kind == StateKind::kMaster && plan.has_module()) {
      pieces.push_back({plan.module_place(parameter.name, at), part(at, stop - at), plan.module_element_bytes() == 2});
    }
  }
}

void write_rest(const fs::path& folder, const DeepSpeedPlan::PlannedFile& planned,
                const std::vector<RangeChecksums>& written, FileSystem& files) {
  // Stage 3 has model files without a value in them: nobody has made them yet.
  File file = File::open_or_create(folder / planned.name, files);
  file.resize(planned.layout.file_bytes());
  std::vector<uint32_t> checksums;
  for (size_t s = 0; s < planned.layout.num_storages(); ++s) {
    int64_t missing = 0;
    checksums.push_back(written[s].combined(planned.layout.storage_bytes(s), [&](int64_t begin, int64_t end) {
      missing += end - begin;
      // Padding is never written, so the file reads as zeros there. More than there is of it is found below.
      const int64_t bytes = std::min(end - begin, planned.padding_bytes[s]);
      return crc32_of(std::vector<std::byte>(static_cast<size_t>(bytes)));
    }));
    if (missing != planned.padding_bytes[s]) {
      throw_failure(
          "the ranks' shards do not add up to storage {} of {}: {} bytes were not written once, of which {} "
          "are padding",
          s, planned.name, missing, planned.padding_bytes[s]);
    }
  }
  planned.layout.write_rest(file, checksums);
  file.sync();
}

}  // namespace

std::string write_deepspeed_shards(const fs::path& folder, const DeepSpeedPlan& plan, std::span<const UnitShard> shards,
                                   const ShardValues& values, const WriteOptions& options) {
  OpenFiles files(folder, plan, *options.files);
  for (size_t i = 0; i < shards.size(); ++i) {
    const UnitShard& shard = shards[i];
    if (shard.count == 0) continue;
    for (const StateKind kind : {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq}) {
      const std::span<const float> of_shard = values.fetch(i, kind);
      if (static_cast<int64_t>(of_shard.size()) != shard.count) {
        throw_failure("unit {} came with {} values where its shard has {}", shard.unit->name, of_shard.size(),
                      shard.count);
      }
      std::vector<Piece> pieces;
      int64_t offset = 0;
      for (const ParameterSpec& parameter : shard.unit->parameters) {
        const int64_t first = std::max(shard.begin, offset);
        const int64_t last = std::min(shard.begin + shard.count, offset + parameter.numel());
        if (first < last) {
          add_pieces(plan, parameter, kind, first - offset, last - offset,
                     of_shard.subspan(static_cast<size_t>(first - shard.begin)), pieces);
        }
        offset += parameter.numel();
      }
      parallel_for(static_cast<int64_t>(pieces.size()), io_threads(), [&](int64_t p) {
        if (options.stop.stop_requested()) throw_failure("writing {} was given up", folder.string());
        write_piece(files, pieces[static_cast<size_t>(p)], options);
      });
    }
  }
  files.sync();
  return files.checksums();
}

void finish_deepspeed_files(const fs::path& folder, const DeepSpeedPlan& plan, std::span<const std::string> written,
                            FileSystem& files) {
  std::vector<std::vector<RangeChecksums>> checksums;
  for (const DeepSpeedPlan::PlannedFile& planned : plan.files()) checksums.emplace_back(planned.layout.num_storages());
  for (const std::string& lines : written) {
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) {
      std::istringstream fields(line);
      size_t file = 0;
      size_t storage = 0;
      fields >> file >> storage >> std::ws;
      std::string ranges;
      std::getline(fields, ranges);
      checksums.at(file).at(storage).add_text(ranges);
    }
  }
  for (size_t i = 0; i < checksums.size(); ++i) write_rest(folder, plan.files()[i], checksums[i], files);
}

}  // namespace mpzero::io
