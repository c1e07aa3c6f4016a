
#include "model/fp8/codes.hpp"
#include "model/fp8/cuda.hpp"
#include "model/fp8/encode.cuh"
#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::fp8::cuda {
namespace {

using model::cuda::load;

constexpr int kThreads = 256;
constexpr int kMostBlocks = 16;  // blocks per multiprocessor for kernels with grid-stride loops

// `packed`: true if x is 16-byte aligned and codes are 8-byte aligned.
template <Format kFormat>
__global__ void __launch_bounds__(kThreads)
    encode_kernel(const Bf16* x, const unsigned* maximum, int64_t count, bool packed, uint8_t* codes) {
  const float factor = __uint_as_float(scale_for(kFormat, *maximum).bits);
  float scale[kPack];
#pragma unroll
  for (float& s : scale) s = factor;
  const int64_t packs = packed ? count / kPack : 0, step = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (int64_t i = first; i < packs; i += step) {
    const Codes made = encode_row<kFormat>(load<Bf16, kPack>(x + i * kPack), scale);
    *reinterpret_cast<uint2*>(codes + i * kPack) = make_uint2(made.word[0], made.word[1]);
  }
  for (int64_t i = packs * kPack + first; i < count; i += step) {
    codes[i] = static_cast<uint8_t>(encode_pair<kFormat>(static_cast<float>(x[i]) * factor, 0.0f));
  }
}

// Uses one thread per matrix.
__global__ void scales_kernel(const unsigned* maxima, int parts, int matrices, Format format, unsigned* scales) {
  const int matrix = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (matrix >= matrices) return;
  unsigned largest = 0;
  for (int part = 0; part < parts; ++part) largest = max(largest, maxima[part * matrices + matrix]);
  scales[matrix] = largest;
  scales[matrices + matrix] = scale_for(format, largest).inverse_bits;
}

// Each block transposes a tile of kTile x kTile bytes. Each thread reads 4 x 4 adjacent bytes, transposes them in
// registers and writes four words, each with four bytes of a column.
constexpr int kTile = 128, kWords = kTile / 4;
constexpr int kRowGroups = kThreads / kWords;  // groups of four rows that a block reads at once

// Returns the bytes [row, row + 4) x [column, column + 4), one row per word, with zeros outside the matrix. `packed`:
// rows are 4-byte aligned.
__device__ uint4 read_square(const uint8_t* from, int64_t rows, int64_t columns, int64_t row, int64_t column,
                             bool packed) {
  unsigned word[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (row + i >= rows) break;
    const uint8_t* place = from + (row + i) * columns + column;
    if (packed && column + 4 <= columns) {
      word[i] = *reinterpret_cast<const unsigned*>(place);
    } else {
      for (int j = 0; j < 4 && column + j < columns; ++j) word[i] |= static_cast<unsigned>(place[j]) << (8 * j);
    }
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

__global__ void __launch_bounds__(kThreads)
    transpose_kernel(const uint8_t* from, int64_t rows, int64_t columns, bool packed, uint8_t* to) {
  // The word for four rows of column 4 * c + j is at [j * kWords + c][row / 4]. The odd row length avoids bank
  // conflicts in a warp's reads and writes.
  __shared__ unsigned tile[kTile][kWords + 1];
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile, first_column = int64_t{blockIdx.x} * kTile;
  const int lane = static_cast<int>(threadIdx.x) % kWords, group = static_cast<int>(threadIdx.x) / kWords;
#pragma unroll
  for (int word = group; word < kWords; word += kRowGroups) {
    const uint4 row = read_square(from, rows, columns, first_row + 4 * word, first_column + 4 * lane, packed);
    const unsigned low01 = __byte_perm(row.x, row.y, 0x5140), low23 = __byte_perm(row.z, row.w, 0x5140);
    const unsigned high01 = __byte_perm(row.x, row.y, 0x7362), high23 = __byte_perm(row.z, row.w, 0x7362);
    tile[lane][word] = __byte_perm(low01, low23, 0x5410);
    tile[kWords + lane][word] = __byte_perm(low01, low23, 0x7632);
    tile[2 * kWords + lane][word] = __byte_perm(high01, high23, 0x5410);
    tile[3 * kWords + lane][word] = __byte_perm(high01, high23, 0x7632);
  }
  __syncthreads();
  const int64_t row = first_row + 4 * lane;
  for (int column = group; column < kTile && first_column + column < columns; column += kRowGroups) {
    const unsigned codes = tile[column % 4 * kWords + column / 4][lane];
    uint8_t* place = to + (first_column + column) * rows + row;
    if (rows % 4 == 0) {
      if (row < rows) *reinterpret_cast<unsigned*>(place) = codes;
    } else {
      for (int i = 0; i < 4 && row + i < rows; ++i) place[i] = static_cast<uint8_t>(codes >> (8 * i));
    }
  }
}

bool at_multiple(const at::Tensor& x, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % bytes == 0;
}

const unsigned* bits_of(const at::Tensor& x) { return reinterpret_cast<const unsigned*>(x.const_data_ptr<float>()); }

}  // namespace

void scales_out(const at::Tensor& maxima, Format format, const at::Tensor& scales) {
  const c10::cuda::CUDAGuard guard(maxima.device());
  const auto parts = static_cast<int>(maxima.size(0)), matrices = static_cast<int>(maxima.size(1));
  if (matrices == 0) return;
  const int blocks = (matrices + kThreads - 1) / kThreads;
  scales_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      bits_of(maxima), parts, matrices, format, reinterpret_cast<unsigned*>(scales.mutable_data_ptr<float>()));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void encode_out(const at::Tensor& x, const at::Tensor& maximum, Format format, const at::Tensor& codes) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t count = x.numel();
  if (count == 0) return;
  const bool packed = at_multiple(x, 16) && at_multiple(codes, 8);
  const int64_t per_block = kThreads * (packed ? kPack : 1), wanted = (count + per_block - 1) / per_block;
  const auto blocks =
      static_cast<unsigned>(std::min(wanted, int64_t{kMostBlocks} * model::cuda::multiprocessor_count()));
  const auto run = [&](auto kernel) {
    kernel<<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.const_data_ptr<Bf16>(), bits_of(maximum), count, packed, static_cast<uint8_t*>(codes.mutable_data_ptr()));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  };
  format == Format::kE4m3 ? run(encode_kernel<Format::kE4m3>) : run(encode_kernel<Format::kE5m2>);
}

at::Tensor transposed(const at::Tensor& codes) {
  const c10::cuda::CUDAGuard guard(codes.device());
  const int64_t rows = codes.size(0), columns = codes.size(1);
  at::Tensor made = codes.new_empty({columns, rows});
  if (codes.numel() == 0) return made;
  const dim3 tiles(static_cast<unsigned>((columns + kTile - 1) / kTile),
                   static_cast<unsigned>((rows + kTile - 1) / kTile));
  TORCH_CHECK(tiles.y < 65536, "fp8::transposed supports up to ", int64_t{65535} * kTile, " rows");
  const bool packed = columns % 4 == 0 && at_multiple(codes, 4);
  transpose_kernel<<<tiles, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      static_cast<const uint8_t*>(codes.const_data_ptr()), rows, columns, packed,
      static_cast<uint8_t*>(made.mutable_data_ptr()));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return made;
}

}  // namespace mpzero::model::fp8::cuda
