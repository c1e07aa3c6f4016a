#include "app/generate/model_weights.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <span>

#include "io/bytes/parallel_blocks.hpp"

namespace mpzero {
namespace {

constexpr int64_t kPieceFloats = 1 << 20;

struct Piece {
  const ParameterSpec* parameter;
  int64_t offset;  // offset of the parameter in the unit
  int64_t begin, count;
};

std::vector<Piece> pieces_of(const UnitSpec& unit) {
  std::vector<Piece> pieces;
  int64_t offset = 0;
  for (const ParameterSpec& parameter : unit.parameters) {
    for (int64_t begin = 0; begin < parameter.numel(); begin += kPieceFloats) {
      pieces.push_back({&parameter, offset, begin, std::min(kPieceFloats, parameter.numel() - begin)});
    }
    offset += parameter.numel();
  }
  return pieces;
}

}  // namespace

ModelWeights read_weights(const model::ModelConfig& config, const ParameterSource& source, at::Device device,
                          at::ScalarType type, const std::function<void(int64_t)>& on_read) {
  ModelWeights weights;
  int64_t done = 0;
  for (const UnitSpec& unit : model::model_units(config)) {
    at::Tensor flat = at::empty({unit.numel()}, type);
    const std::vector<Piece> pieces = pieces_of(unit);
    io::parallel_for(static_cast<int64_t>(pieces.size()), io::io_threads(), [&](int64_t i) {
      const Piece& piece = pieces[static_cast<size_t>(i)];
      at::Tensor place = flat.narrow(0, piece.offset + piece.begin, piece.count);
      const auto count = static_cast<size_t>(piece.count);
      if (type == at::kFloat) {
        source.read(*piece.parameter, piece.begin, {place.mutable_data_ptr<float>(), count});
        return;
      }
      std::vector<float> values(count);
      source.read(*piece.parameter, piece.begin, values);
      place.copy_(at::from_blob(values.data(), {piece.count}, at::kFloat));
    });
    flat = flat.to(device);
    std::vector<at::Tensor>& views = weights.emplace_back();
    int64_t offset = 0;
    for (const ParameterSpec& parameter : unit.parameters) {
      views.push_back(flat.narrow(0, offset, parameter.numel()).view(parameter.shape));
      offset += parameter.numel();
    }
    done += unit.numel();
    on_read(done);
  }
  return weights;
}

}  // namespace mpzero
