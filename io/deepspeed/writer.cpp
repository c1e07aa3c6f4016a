#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/parameter_spec.hpp"
#include "io/bytes/checksum.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/bytes/parallel_blocks.hpp"
#include "io/deepspeed/checkpoint.hpp"
#include "io/deepspeed/plan.hpp"
#include "io/deepspeed/shared_pages.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kPieceNumel = int64_t{1} << 20;
// Small enough that the values stay in the CPU cache while they are rounded, hashed and written.
constexpr size_t kCachedNumel = size_t{1} << 17;

int64_t offset_of(const DeepSpeedPlan& plan, const DeepSpeedPlan::Place& place) {
  return plan.files()[place.file].layout.storage_offset(place.storage) + place.offset;
}

// Each line of a rank's result describes one file: checksums of writes, or the location of bytes on shared pages.
constexpr std::string_view kChecksums = "checksums";  // FILE STORAGE RANGES
constexpr std::string_view kRemainder = "remainder";  // FILE NAME BEGIN SIZE CHECKSUM

// The files that a rank writes, opened on first use, and the checksums of the writes.
class OpenFiles {
 public:
  // `own_pages` is indexed by file.
  OpenFiles(const fs::path& folder, const DeepSpeedPlan& plan, std::vector<OwnPages> own_pages, FileSystem& files)
      : folder_(folder), plan_(plan), own_pages_(std::move(own_pages)), files_(files) {}

  void write(const DeepSpeedPlan::Place& place, std::span<const std::byte> bytes) {
    const uint32_t crc = crc32_of(bytes);
    const int64_t at = offset_of(plan_, place);
    const auto count = static_cast<int64_t>(bytes.size());
    own_pages_[place.file].split(at, at + count, [&](int64_t begin, int64_t end, OwnPages::Page page) {
      const auto part = bytes.subspan(static_cast<size_t>(begin - at), static_cast<size_t>(end - begin));
      if (page == OwnPages::Page::kOwn) {
        open(place.file).write(begin, part);
      } else {
        remainders_.add(place.file, begin, part);
      }
    });
    const std::scoped_lock lock(mutex_);
    checksums_[{place.file, place.storage}].add(place.offset, place.offset + count, crc);
  }
  void start_writeback(const DeepSpeedPlan::Place& place, int64_t bytes) {
    const int64_t at = offset_of(plan_, place);
    own_pages_[place.file].split(at, at + bytes, [&](int64_t begin, int64_t end, OwnPages::Page page) {
      if (page == OwnPages::Page::kOwn) open(place.file).start_writeback(begin, end - begin);
    });
  }

  // Syncs all files and returns the lines for DeepSpeedWriter::finish().
  std::string finish(const std::string& name_of_remainders) {
    for (auto& [index, file] : open_) file.sync();
    std::string lines;
    for (const auto& [place, checksums] : checksums_) {
      lines += fmt::format("{} {} {} {}\n", kChecksums, place.first, place.second, checksums.to_text());
    }
    for (const PageRemainders::Section& section : remainders_.write(folder_, name_of_remainders, files_)) {
      lines += fmt::format("{} {} {} {} {} {}\n", kRemainder, section.file, section.name, section.begin, section.size,
                           to_hex(section.checksum));
    }
    return lines;
  }

 private:
  File& open(size_t index) {
    const std::scoped_lock lock(mutex_);
    if (const auto found = open_.find(index); found != open_.end()) return found->second;
    const DeepSpeedPlan::PlannedFile& planned = plan_.files()[index];
    File& file = open_.emplace(index, File::open_or_create(folder_ / planned.name, files_)).first->second;
    // Every rank sets the final size to avoid synchronization.
    file.resize(planned.layout.file_bytes());
    return file;
  }

  const fs::path& folder_;
  const DeepSpeedPlan& plan_;
  std::vector<OwnPages> own_pages_;
  FileSystem& files_;
  std::mutex mutex_;
  std::map<size_t, File> open_;
  std::map<std::pair<size_t, size_t>, RangeChecksums> checksums_;
  PageRemainders remainders_;
};

// A range of parameter elements and its destination.
struct Piece {
  DeepSpeedPlan::Place place;
  size_t first = 0;  // index in the shard's values
  size_t count = 0;
  bool rounded = false;  // written as bf16

  int64_t bytes() const { return static_cast<int64_t>(count * (rounded ? sizeof(uint16_t) : sizeof(float))); }
};

void write_piece(OpenFiles& files, const Piece& piece, std::span<const float> of_shard, const WriteOptions& options) {
  DeepSpeedPlan::Place place = piece.place;
  std::vector<uint16_t> rounded(piece.rounded ? std::min(kCachedNumel, piece.count) : 0);
  for (size_t at = 0; at < piece.count; at += kCachedNumel) {
    const std::span<const float> values = of_shard.subspan(piece.first + at, std::min(kCachedNumel, piece.count - at));
    std::span<const std::byte> bytes = std::as_bytes(values);
    if (piece.rounded) {
      to_bfloat16(values, rounded);
      bytes = std::as_bytes(std::span<const uint16_t>(rounded).first(values.size()));
    }
    const auto count = static_cast<int64_t>(bytes.size());
    if (options.pace != nullptr) options.pace->wait(count, options.stop);
    files.write(place, bytes);
    if (options.pace != nullptr) options.pace->written(count, /*on_disk=*/false);
    place.offset += count;
  }
  files.start_writeback(piece.place, piece.bytes());
}

// Adds elements [begin, end) of the parameter. `first` is the index of the first element in the shard's values.
void add_pieces(const DeepSpeedPlan& plan, const ParameterSpec& parameter, StateKind kind, int64_t begin, int64_t end,
                int64_t first, std::vector<Piece>& pieces) {
  const auto add = [&](const DeepSpeedPlan::Place& place, int64_t at, int64_t count, bool rounded) {
    pieces.push_back({place, static_cast<size_t>(first + at - begin), static_cast<size_t>(count), rounded});
  };
  for (int64_t at = begin; at < end; at += kPieceNumel) {
    const int64_t stop = std::min(at + kPieceNumel, end);
    plan.layout().visit(parameter.name, at, stop, [&](const DeepSpeedLayout::Slice& slice) {
      add(plan.place(slice, kind), slice.begin, slice.count, /*rounded=*/false);
    });
    if (kind == StateKind::kMaster && plan.has_module()) {
      add(plan.module_place(parameter.name, at), at, stop - at, plan.module_element_bytes() == 2);
    }
  }
}

std::vector<Piece> pieces_of(const DeepSpeedPlan& plan, const UnitShard& shard, StateKind kind) {
  std::vector<Piece> pieces;
  visit_parameters(*shard.unit, shard.begin, shard.begin + shard.count, [&](const ParameterRange& range) {
    add_pieces(plan, range.parameter, kind, range.begin, range.begin + range.count, range.offset, pieces);
  });
  return pieces;
}

std::vector<OwnPages> own_pages_of(const DeepSpeedPlan& plan, std::span<const UnitShard> shards) {
  std::vector<OwnPages> own(plan.files().size());
  for (const UnitShard& shard : shards) {
    for (const StateKind kind : kStateKinds) {
      for (const Piece& piece : pieces_of(plan, shard, kind)) {
        const int64_t begin = offset_of(plan, piece.place);
        own[piece.place.file].add(begin, begin + piece.bytes());
      }
    }
  }
  return own;
}

// Results of all ranks for one file.
struct Answers {
  std::vector<RangeChecksums> checksums;  // per storage
  std::vector<PageRemainders::Section> remainders;
};

std::vector<Answers> parse(const DeepSpeedPlan& plan, std::span<const std::string> written) {
  std::vector<Answers> answers;
  for (const DeepSpeedPlan::PlannedFile& planned : plan.files()) {
    answers.push_back({std::vector<RangeChecksums>(planned.layout.num_storages()), {}});
  }
  for (const std::string& lines : written) {
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) {
      std::istringstream fields(line);
      std::string what;
      size_t file = 0;
      fields >> what >> file;
      if (what == kRemainder) {
        PageRemainders::Section section{.file = file, .name = {}};
        std::string checksum;
        fields >> section.name >> section.begin >> section.size >> checksum;
        section.checksum = from_hex(checksum);
        answers.at(file).remainders.push_back(std::move(section));
        continue;
      }
      size_t storage = 0;
      fields >> storage >> std::ws;
      std::string ranges;
      std::getline(fields, ranges);
      answers.at(file).checksums.at(storage).add_text(ranges);
    }
  }
  return answers;
}

// Returns the checksum of the ZIP central directory.
uint64_t write_rest(const fs::path& folder, const DeepSpeedPlan::PlannedFile& planned, const Answers& answers,
                    FileSystem& files) {
  // Model files of stage 3 contain no values and do not exist yet.
  File file = File::open_or_create(folder / planned.name, files);
  file.resize(planned.layout.file_bytes());
  std::vector<uint32_t> checksums;
  for (size_t s = 0; s < planned.layout.num_storages(); ++s) {
    int64_t missing = 0;
    checksums.push_back(answers.checksums[s].combined(planned.layout.storage_bytes(s), [&](int64_t begin, int64_t end) {
      missing += end - begin;
      // Padding is never written and reads as zeros. Excess unwritten bytes are reported below.
      const int64_t bytes = std::min(end - begin, planned.padding_bytes[s]);
      return crc32_of(std::vector<std::byte>(static_cast<size_t>(bytes)));
    }));
    if (missing != planned.padding_bytes[s]) {
      throw_failure(
          "the ranks' shards do not add up to storage {} of {}: {} bytes were not written exactly once, of which {} "
          "are padding",
          s, planned.name, missing, planned.padding_bytes[s]);
    }
  }
  for (const PageRemainders::Section& section : answers.remainders) {
    PageRemainders::put_in_place(folder, section, file);
  }
  const uint64_t directory_checksum = planned.layout.write_rest(file, checksums);
  file.sync();
  return directory_checksum;
}

class DeepSpeedWriter final : public CheckpointWriter {
 public:
  DeepSpeedWriter(const TrainingProgress& progress, std::span<const UnitShard> shards,
                  const DeepSpeedSettings& settings)
      : plan_(progress, units_of(shards), settings), shards_(shards) {}

  std::string write_shards(const fs::path& folder, int rank, const ShardValues& values,
                           const WriteOptions& options) const override {
    OpenFiles files(folder, plan_, own_pages_of(plan_, shards_), *options.files);
    for (size_t i = 0; i < shards_.size(); ++i) {
      const UnitShard& shard = shards_[i];
      if (shard.count == 0) continue;
      for (const StateKind kind : kStateKinds) {
        const std::span<const float> of_shard = values.fetch(i, kind);
        if (static_cast<int64_t>(of_shard.size()) != shard.count) {
          throw_failure("unit {}: fetch returned {} values, but the shard has {} elements", shard.unit->name,
                        of_shard.size(), shard.count);
        }
        const std::vector<Piece> pieces = pieces_of(plan_, shard, kind);
        parallel_for(static_cast<int64_t>(pieces.size()), io_threads(), [&](int64_t p) {
          if (options.stop.stop_requested()) throw_failure("writing {} was aborted", folder.string());
          write_piece(files, pieces[static_cast<size_t>(p)], of_shard, options);
        });
      }
    }
    return files.finish(fmt::format("remainders-of-rank-{}", rank));
  }

  std::vector<ManifestFile> finish(const fs::path& folder, std::span<const std::string> written,
                                   FileSystem& files) const override {
    const std::vector<Answers> answers = parse(plan_, written);
    std::vector<ManifestFile> entries;
    std::set<std::string> remainders;
    for (size_t i = 0; i < answers.size(); ++i) {
      const DeepSpeedPlan::PlannedFile& planned = plan_.files()[i];
      entries.push_back({.name = planned.name,
                         .size = planned.layout.file_bytes(),
                         .structure_checksum = 0,
                         .datasets = {},
                         .has_own_checksums = true,
                         .directory_checksum = write_rest(folder, planned, answers[i], files)});
      for (const PageRemainders::Section& section : answers[i].remainders) remainders.insert(section.name);
    }
    for (const std::string& name : remainders) {
      if (const int error = files.remove_file(folder / name); error != 0) {
        throw_system_error("remove", folder / name, error);
      }
    }
    return entries;
  }

 private:
  DeepSpeedPlan plan_;
  std::span<const UnitShard> shards_;
};

}  // namespace

std::unique_ptr<CheckpointWriter> make_deepspeed_writer(const TrainingProgress& progress,
                                                        std::span<const UnitShard> shards,
                                                        const DeepSpeedSettings& settings) {
  return std::make_unique<DeepSpeedWriter>(progress, shards, settings);
}

}  // namespace mpzero::io
