#include "io/parameter_stream.hpp"

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "io/parallel_blocks.hpp"

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

void stream_parameters(std::span<const Destination> destinations, const ParameterSource& source,
                       const OnWritten& on_written) {
  std::vector<Piece> pieces;
  int64_t total = 0;
  for (const Destination& destination : destinations) {
    const int64_t numel = destination.parameter->numel();
    for (int64_t begin = 0; begin < numel; begin += kPieceFloats) {
      pieces.push_back({&destination, begin, std::min(kPieceFloats, numel - begin)});
    }
    total += numel * static_cast<int64_t>(sizeof(float));
  }
  std::mutex progress_mutex;
  int64_t done = 0;
  const int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, kMaxThreads));
  parallel_for(static_cast<int64_t>(pieces.size()), threads, [&](int64_t i) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    thread_local std::vector<float> values;
    values.resize(static_cast<size_t>(piece.count));
    source.read(*piece.destination->parameter, piece.begin, values);
    const auto bytes = std::as_bytes(std::span<const float>(values));
    const int64_t offset = piece.destination->offset + piece.begin * static_cast<int64_t>(sizeof(float));
    piece.destination->file->write(offset, bytes);
    piece.destination->file->start_writeback(offset, static_cast<int64_t>(bytes.size()));
    const std::scoped_lock lock(progress_mutex);
    done += static_cast<int64_t>(bytes.size());
    if (on_written) on_written(done, total);
  });
}

}  // namespace mpzero::io
