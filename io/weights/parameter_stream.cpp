#include "io/weights/parameter_stream.hpp"

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "io/bytes/parallel_blocks.hpp"

namespace mpzero::io {
namespace {

constexpr int64_t kPieceFloats = 1 << 20;
constexpr unsigned kMaxThreads = 16;

struct Piece {
  const Destination* destination;
  int64_t begin;
  int64_t count;
};

}  // namespace

void stream_parameters(std::span<const Destination> destinations, const ParameterSource& source, WeightType type,
                       const OnWritten& on_written) {
  std::vector<Piece> pieces;
  int64_t total = 0;
  for (const Destination& destination : destinations) {
    const int64_t numel = destination.parameter->numel();
    for (int64_t begin = 0; begin < numel; begin += kPieceFloats) {
      pieces.push_back({&destination, begin, std::min(kPieceFloats, numel - begin)});
    }
    total += numel * bytes_of(type);
  }
  std::mutex progress_mutex;
  int64_t done = 0;
  const int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, kMaxThreads));
  parallel_for(static_cast<int64_t>(pieces.size()), threads, [&](int64_t i) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    thread_local std::vector<float> values;
    thread_local std::vector<uint16_t> rounded;
    values.resize(static_cast<size_t>(piece.count));
    source.read(*piece.destination->parameter, piece.begin, values);
    std::span<const std::byte> bytes = std::as_bytes(std::span<const float>(values));
    if (type == WeightType::kBFloat16) {
      rounded.resize(values.size());
      to_bfloat16(values, rounded);
      bytes = std::as_bytes(std::span<const uint16_t>(rounded));
    }
    const int64_t position = piece.begin * bytes_of(type);
    const auto size = static_cast<int64_t>(bytes.size());
    File& file = *piece.destination->file;
    file.write(piece.destination->offset + position, bytes);
    file.start_writeback(piece.destination->offset + position, size);
    const uint32_t crc = piece.destination->checksums != nullptr ? crc32_of(bytes) : 0;
    const std::scoped_lock lock(progress_mutex);
    if (piece.destination->checksums != nullptr) piece.destination->checksums->add(position, position + size, crc);
    done += size;
    if (on_written) on_written(done, total);
  });
}

std::vector<std::span<const ParameterSpec>> split_into_shards(std::span<const ParameterSpec> parameters,
                                                              int64_t max_shard_bytes, WeightType type) {
  std::vector<std::span<const ParameterSpec>> shards;
  size_t begin = 0;
  int64_t size = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int64_t bytes = parameters[i].numel() * bytes_of(type);
    if (i > begin && size + bytes > max_shard_bytes) {
      shards.push_back(parameters.subspan(begin, i - begin));
      begin = i;
      size = 0;
    }
    size += bytes;
  }
  shards.push_back(parameters.subspan(begin));
  return shards;
}

}  // namespace mpzero::io
