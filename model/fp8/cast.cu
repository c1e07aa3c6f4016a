#include "model/fp8/cuda.hpp"
#include "model/fp8/encode.cuh"
#include "model/kernels/cuda.hpp"
#include "model/kernels/device.cuh"

namespace mpzero::model::fp8::cuda {
namespace {

using model::cuda::kWarp;
using model::cuda::load;
using model::cuda::Pack;
using model::cuda::store;

constexpr int kThreads = 256;
constexpr int kMaximumBlocks = 8;  // blocks per multiprocessor
// Each block of cast_kernel and maxima_kernel processes a tile. Each thread reads kRows adjacent rows of kPack columns.
constexpr int kRows = 4;
constexpr int kTileColumns = 64, kTileRows = 128;
constexpr int kColumnGroups = kTileColumns / kPack, kRowGroups = kTileRows / kRows;
static_assert(kColumnGroups * kRowGroups == kThreads);

__device__ unsigned magnitude(Bf16 x) { return (static_cast<unsigned>(x.x) & 0x7fffu) << 16; }

__device__ unsigned warp_max(unsigned x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x = max(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}

// Sets *out to max(*out, max |x|). The result does not depend on the order of blocks. `packed`: x is 16-byte aligned.
__global__ void __launch_bounds__(kThreads) maximum_kernel(const Bf16* x, int64_t count, bool packed, unsigned* out) {
  __shared__ unsigned shares[kThreads / kWarp];
  unsigned largest = 0;
  const int64_t packs = packed ? count / kPack : 0, step = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (int64_t i = first; i < packs; i += step) {
    const auto pack = load<Bf16, kPack>(x + i * kPack);
#pragma unroll
    for (int j = 0; j < kPack; ++j) largest = max(largest, magnitude(pack.v[j]));
  }
  for (int64_t i = packs * kPack + first; i < count; i += step) largest = max(largest, magnitude(x[i]));
  largest = warp_max(largest);
  if (threadIdx.x % kWarp == 0) shares[threadIdx.x / kWarp] = largest;
  __syncthreads();
  if (threadIdx.x < kWarp) {
    largest = warp_max(threadIdx.x < kThreads / kWarp ? shares[threadIdx.x] : 0u);
    if (threadIdx.x == 0) atomicMax(out, largest);
  }
}

// Part of a tile that a thread processes: kRows rows of kPack columns, with zeros outside the matrix.
struct Patch {
  Pack<Bf16, kPack> row[kRows];
};

struct Place {
  int64_t row, column;  // position of the thread's first value
};

__device__ Place place() {
  return {static_cast<int64_t>(blockIdx.y) * kTileRows + threadIdx.x / kColumnGroups * kRows,
          static_cast<int64_t>(blockIdx.x) * kTileColumns + threadIdx.x % kColumnGroups * kPack};
}

// `packed`: true if rows are 16-byte aligned.
__device__ Patch read_patch(const Bf16* x, int64_t rows, int64_t columns, bool packed, Place at) {
  Patch patch;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const Bf16* from = x + (at.row + i) * columns + at.column;
    if (packed && at.row + i < rows && at.column + kPack <= columns) {
      patch.row[i] = load<Bf16, kPack>(from);
    } else {
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        const bool inside = at.row + i < rows && at.column + j < columns;
        patch.row[i].v[j] = inside ? from[j] : Bf16(0, Bf16::from_bits());
      }
    }
  }
  return patch;
}

// Computes the amax of rows and of columns. Either result may be null. The caller initializes both to 0.
__global__ void __launch_bounds__(kThreads)
    maxima_kernel(const Bf16* x, int64_t rows, int64_t columns, bool packed, unsigned* of_rows, unsigned* of_columns) {
  __shared__ unsigned shares[kTileColumns];
  const Place at = place();
  if (threadIdx.x < kTileColumns) shares[threadIdx.x] = 0;
  __syncthreads();
  const Patch patch = read_patch(x, rows, columns, packed, at);
  unsigned column[kPack] = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    unsigned row = 0;
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      const unsigned size = magnitude(patch.row[i].v[j]);
      row = max(row, size);
      column[j] = max(column[j], size);
    }
    // Adjacent lanes process the same row.
    for (int offset = kColumnGroups / 2; offset > 0; offset /= 2) {
      row = max(row, __shfl_xor_sync(0xffffffffu, row, offset));
    }
    if (of_rows != nullptr && threadIdx.x % kColumnGroups == 0 && at.row + i < rows)
      atomicMax(of_rows + at.row + i, row);
  }
  if (of_columns == nullptr) return;
#pragma unroll
  for (int j = 0; j < kPack; ++j) {
    for (int offset = kColumnGroups; offset < kWarp; offset *= 2) {
      column[j] = max(column[j], __shfl_xor_sync(0xffffffffu, column[j], offset));
    }
    if (threadIdx.x % kWarp < kColumnGroups) atomicMax(shares + threadIdx.x % kColumnGroups * kPack + j, column[j]);
  }
  __syncthreads();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTileColumns;
  if (threadIdx.x < kTileColumns && first + threadIdx.x < columns) {
    atomicMax(of_columns + first + threadIdx.x, shares[threadIdx.x]);
  }
}

// Output form: FP8 data [M, K], the maxima that determine its scales (1 or M), and the inverse scales.
struct Form {
  uint8_t* codes = nullptr;
  const unsigned* maxima = nullptr;
  float* scale_inverse = nullptr;
};

// Reads x once and writes the forms with non-null `codes`. The transposed form is staged in shared memory, with four
// values of a column per word.
template <Format kFormat, bool kRowwise>
__global__ void __launch_bounds__(kThreads)
    cast_kernel(const Bf16* x, int64_t rows, int64_t columns, bool packed, Form by_rows, Form by_columns) {
  constexpr int kWords = kRowGroups + 1;  // odd, so that a tile's columns start in different banks
  __shared__ unsigned tile[kTileColumns * kWords];
  const Place at = place();
  const Patch patch = read_patch(x, rows, columns, packed, at);
  float scale[kPack];
  Codes codes[kRows];
  const auto factor = [](const Form& form, int64_t i) {
    return __uint_as_float(scale_for(kFormat, form.maxima[i]).bits);
  };
  const auto write_inverse = [](const Form& form, int64_t i) {
    form.scale_inverse[i] = __uint_as_float(scale_for(kFormat, form.maxima[i]).inverse_bits);
  };
  if constexpr (!kRowwise) {
    const Form& any = by_rows.codes != nullptr ? by_rows : by_columns;
    const float all = factor(any, 0);
#pragma unroll
    for (float& s : scale) s = all;
#pragma unroll
    for (int i = 0; i < kRows; ++i) codes[i] = encode_row<kFormat>(patch.row[i], scale);
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
      if (by_rows.codes != nullptr) write_inverse(by_rows, 0);
      if (by_columns.codes != nullptr) write_inverse(by_columns, 0);
    }
  }
  if (by_rows.codes != nullptr) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int64_t row = at.row + i;
      if (row >= rows) break;
      if constexpr (kRowwise) {
        const float all = factor(by_rows, row);
#pragma unroll
        for (float& s : scale) s = all;
        codes[i] = encode_row<kFormat>(patch.row[i], scale);
        if (at.column == 0) write_inverse(by_rows, row);
      }
      uint8_t* to = by_rows.codes + row * columns + at.column;
      if (columns % kPack == 0 && at.column + kPack <= columns) {
        *reinterpret_cast<uint2*>(to) = make_uint2(codes[i].word[0], codes[i].word[1]);
      } else {
        for (int j = 0; j < kPack && at.column + j < columns; ++j) {
          to[j] = static_cast<uint8_t>(codes[i].word[j / 4] >> (8 * (j % 4)));
        }
      }
    }
  }
  if (by_columns.codes == nullptr) return;
  if constexpr (kRowwise) {
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      const bool inside = at.column + j < columns;
      scale[j] = inside ? factor(by_columns, at.column + j) : 1.0f;
      if (inside && at.row == 0) write_inverse(by_columns, at.column + j);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) codes[i] = encode_row<kFormat>(patch.row[i], scale);
  }
  // Transposes 4 x 4 values at a time in registers.
  static_assert(kRows == 4);
#pragma unroll
  for (int w = 0; w < kPack / 4; ++w) {
    const unsigned low01 = __byte_perm(codes[0].word[w], codes[1].word[w], 0x5140);
    const unsigned low23 = __byte_perm(codes[2].word[w], codes[3].word[w], 0x5140);
    const unsigned high01 = __byte_perm(codes[0].word[w], codes[1].word[w], 0x7362);
    const unsigned high23 = __byte_perm(codes[2].word[w], codes[3].word[w], 0x7362);
    const unsigned column[4] = {__byte_perm(low01, low23, 0x5410), __byte_perm(low01, low23, 0x7632),
                                __byte_perm(high01, high23, 0x5410), __byte_perm(high01, high23, 0x7632)};
    const int first = static_cast<int>(threadIdx.x) % kColumnGroups * kPack + 4 * w;
#pragma unroll
    for (int j = 0; j < 4; ++j) tile[(first + j) * kWords + threadIdx.x / kColumnGroups] = column[j];
  }
  __syncthreads();
  // Each thread writes 16 adjacent values of a column at a time.
  constexpr int kChunk = 16, kChunks = kTileRows / kChunk;
  for (int i = static_cast<int>(threadIdx.x); i < kTileColumns * kChunks; i += kThreads) {
    const int64_t column = static_cast<int64_t>(blockIdx.x) * kTileColumns + i / kChunks;
    const int64_t row = static_cast<int64_t>(blockIdx.y) * kTileRows + i % kChunks * kChunk;
    if (column >= columns || row >= rows) continue;
    const unsigned* from = tile + i / kChunks * kWords + i % kChunks * (kChunk / 4);
    uint8_t* to = by_columns.codes + column * rows + row;
    if (rows % kChunk == 0) {
      *reinterpret_cast<uint4*>(to) = make_uint4(from[0], from[1], from[2], from[3]);
    } else {
      for (int k = 0; k < kChunk && row + k < rows; ++k) to[k] = static_cast<uint8_t>(from[k / 4] >> (8 * (k % 4)));
    }
  }
}

bool is_packed(const at::Tensor& x) {
  return x.size(-1) % kPack == 0 && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

dim3 tiles(const at::Tensor& x) {
  return {static_cast<unsigned>((x.size(1) + kTileColumns - 1) / kTileColumns),
          static_cast<unsigned>((x.size(0) + kTileRows - 1) / kTileRows)};
}

unsigned* bits_of(const at::Tensor& maxima) { return reinterpret_cast<unsigned*>(maxima.mutable_data_ptr<float>()); }

at::Tensor zeros(at::IntArrayRef sizes, const at::Tensor& x) { return x.new_zeros(sizes, at::kFloat); }

struct MadeForm {
  Matrix matrix;
  Form form;
};

// Allocates FP8 data [rows, inner] and scales in the shape of `maxima`.
MadeForm make_form(const at::Tensor& x, int64_t rows, int64_t inner, Format format, at::Tensor& maxima) {
  MadeForm made;
  made.matrix = {x.new_empty({rows, inner}, scalar_type(format)), x.new_empty(maxima.sizes(), at::kFloat)};
  made.form = {static_cast<uint8_t*>(made.matrix.codes.mutable_data_ptr()), bits_of(maxima),
               made.matrix.scale_inverse.mutable_data_ptr<float>()};
  return made;
}

}  // namespace

void raise_maximum(const at::Tensor& x, const at::Tensor& largest) {
  const c10::cuda::CUDAGuard guard(x.device());
  const bool packed = reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
  const int64_t count = x.numel();
  if (count == 0) return;
  const int64_t wanted = (count + kThreads * kPack - 1) / (kThreads * kPack);
  const int64_t useful = int64_t{kMaximumBlocks} * model::cuda::multiprocessor_count();
  maximum_kernel<<<static_cast<unsigned>(std::min(wanted, useful)), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.const_data_ptr<Bf16>(), count, packed, bits_of(largest));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

at::Tensor maximum(const at::Tensor& x) {
  TORCH_CHECK(x.is_contiguous() && x.scalar_type() == at::kBFloat16, "fp8::maximum expects a contiguous bf16 tensor");
  at::Tensor made = zeros({}, x);
  raise_maximum(x, made);
  return made;
}

CastMatrix cast(const at::Tensor& x, Format format, Scaling scaling, Forms forms, const at::Tensor& maximum_of_x) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t rows = x.size(0), columns = x.size(1);
  const auto stream = c10::cuda::getCurrentCUDAStream();
  const auto* data = x.const_data_ptr<Bf16>();
  const bool packed = is_packed(x), rowwise = scaling == Scaling::kRowwise;
  TORCH_CHECK(tiles(x).y < 65536, "fp8::cast supports up to ", int64_t{65535} * kTileRows, " rows");
  at::Tensor row_maxima, column_maxima;
  if (rowwise) {
    if (has_rows(forms)) row_maxima = zeros({rows}, x);
    if (has_columns(forms)) column_maxima = zeros({columns}, x);
    maxima_kernel<<<tiles(x), kThreads, 0, stream>>>(data, rows, columns, packed,
                                                     has_rows(forms) ? bits_of(row_maxima) : nullptr,
                                                     has_columns(forms) ? bits_of(column_maxima) : nullptr);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  } else {
    row_maxima = maximum_of_x.defined() ? maximum_of_x : maximum(x);
    column_maxima = row_maxima;
  }
  MadeForm by_rows, by_columns;
  if (has_rows(forms)) by_rows = make_form(x, rows, columns, format, row_maxima);
  if (has_columns(forms)) by_columns = make_form(x, columns, rows, format, column_maxima);
  const auto run = [&](auto kernel) {
    kernel<<<tiles(x), kThreads, 0, stream>>>(data, rows, columns, packed, by_rows.form, by_columns.form);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  };
  if (format == Format::kE4m3) {
    rowwise ? run(cast_kernel<Format::kE4m3, true>) : run(cast_kernel<Format::kE4m3, false>);
  } else {
    rowwise ? run(cast_kernel<Format::kE5m2, true>) : run(cast_kernel<Format::kE5m2, false>);
  }
  return {by_rows.matrix, by_columns.matrix, has_rows(forms) ? row_maxima : column_maxima};
}

}  // namespace mpzero::model::fp8::cuda
