// Matmuls based on oneDNN's micro-kernel for blocks. Unlike LibTorch's matmuls, they support fp32 results of
// bf16 operands and accumulation, and they pack operands block by block in the cache instead of in memory.
#include "model/kernels/cpu/matmul.hpp"

#include <ATen/Parallel.h>
#include <ATen/cpu/Utils.h>

#include <algorithm>

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cpu/dispatch.hpp"
#include "model/kernels/cpu/lanes.hpp"
#include "model/kernels/cpu/micro_kernel.hpp"
#include "model/kernels/cpu/pack.hpp"

namespace mpzero::model::cpu {
namespace {

// Columns per panel of B and rows per block of A. A tile of sums fits in the L1 cache.
constexpr int64_t kPanel = 64, kBlock = 64;
// Depth of a panel along the inner dimension: 128 KiB of bf16, a part of the L2 cache.
constexpr int64_t kDepth = 1024;
// Maximum rows of A and maximum number of sums per task.
constexpr int64_t kRows = 512, kSums = 1 << 18;
// In bf16, AMX's micro-kernel requires a multiple of this depth.
constexpr int64_t kDepthMultiple = 32;

// Matrix: address of the first element and stride between contiguous rows or columns.
template <typename T>
struct Matrix {
  explicit Matrix(const at::Tensor& x)
      : data(x.const_data_ptr<T>()),
        by_rows(x.stride(1) == 1 && (x.size(0) == 1 || x.stride(0) >= x.size(1))),
        stride(by_rows ? x.stride(0) : x.stride(1)) {}
  const T* at(int64_t row, int64_t column) const {
    return by_rows ? data + row * stride + column : data + column * stride + row;
  }
  const T* data;
  bool by_rows;
  int64_t stride;
};

template <typename T>
void pack(const Matrix<T>& b, int64_t k, int64_t n, int64_t depth, int64_t columns, T* panel) {
  if (b.by_rows) {
    pack_rows(b.at(k, n), b.stride, depth, columns, kPanel, panel);
  } else {
    pack_transposed(b.at(k, n), b.stride, depth, columns, kPanel, panel);
  }
}

// Destination of sums: `out` itself if it is fp32 and there is no separate addend, otherwise a buffer.
class Result {
 public:
  Result(const at::Tensor& out, const at::Tensor& addend)
      : out_(out), addend_(addend), accumulates_(addend.defined() && addend.is_same(out)) {}

  bool direct() const { return out_.scalar_type() == at::kFloat && (!addend_.defined() || accumulates_); }
  // True if the first block of a sum accumulates into `out`.
  bool adds_first() const { return direct() && accumulates_; }
  float* at(int64_t row, int64_t column) const {
    return static_cast<float*>(out_.data_ptr()) + row * out_.stride(0) + column;
  }
  int64_t stride() const { return out_.stride(0); }

  // Writes out[row + i, column + j] = sums[i, j] + addend.
  void write(const float* sums, int64_t sums_stride, int64_t row, int64_t column, int64_t rows, int64_t columns) const {
    if (out_.scalar_type() == at::kFloat) {
      write_as<float>(sums, sums_stride, row, column, rows, columns);
    } else {
      write_as<c10::BFloat16>(sums, sums_stride, row, column, rows, columns);
    }
  }

 private:
  template <typename T>
  void write_as(const float* sums, int64_t sums_stride, int64_t row, int64_t column, int64_t rows,
                int64_t columns) const;

  const at::Tensor &out_, &addend_;
  bool accumulates_;
};

template <typename T>
MPZERO_INLINE void add_and_store(const float* sums, const T* addend, int64_t count, T* out) {
  for_each_lanes(
      count, [&](int64_t i, auto load, auto store) __attribute__((always_inline)) {
        Floats sum = load(sums + i);
        if (addend != nullptr) sum += load(addend + i);
        store(out + i, sum);
      });
}
MPZERO_FOR_EACH_CPU void write_row(const float* sums, const float* addend, int64_t count, float* out) {
  add_and_store(sums, addend, count, out);
}
MPZERO_FOR_EACH_CPU void write_row(const float* sums, const c10::BFloat16* addend, int64_t count, c10::BFloat16* out) {
  add_and_store(sums, addend, count, out);
}

template <typename T>
void Result::write_as(const float* sums, int64_t sums_stride, int64_t row, int64_t column, int64_t rows,
                      int64_t columns) const {
  T* const out = static_cast<T*>(out_.data_ptr());
  const T* const addend = addend_.defined() ? static_cast<const T*>(addend_.const_data_ptr()) : nullptr;
  const int64_t addend_stride = addend_.defined() && addend_.dim() == 2 ? addend_.stride(0) : 0;
  for (int64_t i = 0; i < rows; ++i) {
    write_row(sums + i * sums_stride, addend == nullptr ? nullptr : addend + (row + i) * addend_stride + column,
              columns, out + (row + i) * out_.stride(0) + column);
  }
}

// Division of a matmul's rows and panels into tasks, and the buffer sizes of a task.
struct Division {
  // With few panels and many threads, rows are also divided, and several threads pack the same panel. If A is read in
  // several pieces, adjacent panels share the reads.
  Division(int64_t m, int64_t n, int64_t k)
      : panels(ceil_div(n, kPanel)), depth(std::min(k, kDepth)), rows(std::min(m, kRows)) {
    const int64_t workers = threads();
    while (rows > 2 * kBlock && ceil_div(m, rows) * panels < 2 * workers) rows = round_up(rows / 2, kBlock);
    row_groups = ceil_div(m, rows);
    const int64_t even = ceil_div(panels, std::max<int64_t>(1, ceil_div(workers, row_groups)));
    width = k <= kDepth ? 1 : std::clamp<int64_t>(std::min(even, kSums / (rows * kPanel)), 1, panels);
    groups = ceil_div(panels, width);
  }
  int64_t tasks() const { return groups * row_groups; }
  // Elements of a packed panel, and fp32 sums, per thread.
  int64_t panel() const { return round_up(depth, 2) * kPanel; }
  int64_t sums() const { return rows * width * kPanel; }

  int64_t panels, depth, rows, row_groups = 0, width = 0, groups = 0;
};

// Requires contiguous rows of A. Each task packs panels of B and multiplies all of its rows of A by each panel.
template <typename T>
void multiply_by_panels(const Matrix<T>& a, const Matrix<T>& b, int64_t m, int64_t n, int64_t k, const Result& result) {
  const Division d(m, n, k);
  at::parallel_for(0, d.tasks(), 1, [&](int64_t begin, int64_t end) {
    const MicroKernel<T> kernel;
    const at::Tensor panel = elements<T>(d.panel());
    const bool direct = result.direct();
    const at::Tensor buffer = elements<float>(direct ? 0 : d.sums());
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / d.groups * d.rows, row_end = std::min(m, row + d.rows);
      const int64_t column = task % d.groups * d.width * kPanel, column_end = std::min(n, column + d.width * kPanel);
      const int64_t stride = direct ? result.stride() : d.width * kPanel;
      float* const sums = direct ? result.at(row, column) : buffer.mutable_data_ptr<float>();
      for (int64_t first = 0; first < k; first += kDepth) {
        const int64_t depth = std::min(k - first, kDepth);
        for (int64_t c = column; c < column_end; c += kPanel) {
          const int64_t columns = std::min(column_end - c, kPanel);
          pack(b, first, c, depth, columns, panel.mutable_data_ptr<T>());
          for (int64_t r = row; r < row_end; r += kBlock) {
            kernel.multiply(std::min(row_end - r, kBlock), columns, depth, a.at(r, first), a.stride,
                            panel.const_data_ptr<T>(), kPanel, first > 0 || result.adds_first(),
                            sums + (r - row) * stride + (c - column), stride);
          }
        }
      }
      if (!direct) result.write(sums, stride, row, column, row_end - row, column_end - column);
    }
  });
}

// B, split along the inner dimension: [chunks, panels, depth, kPanel]. All pieces except the last have `depth`
// elements. All pieces are padded to the micro-kernel's multiple.
struct Pieces {
  Pieces(int64_t n, int64_t k)
      : n(n), k(k), panels(ceil_div(n, kPanel)), chunks(ceil_div(k, kDepth)), depth(padded(0)) {}
  int64_t present(int64_t chunk) const { return std::min(k - chunk * kDepth, kDepth); }
  int64_t padded(int64_t chunk) const { return round_up(present(chunk), kDepthMultiple); }
  int64_t elements() const { return chunks * panels * depth * kPanel; }
  int64_t at(int64_t chunk, int64_t panel) const { return (chunk * panels + panel) * depth * kPanel; }
  int64_t n, k, panels, chunks, depth;
};

// Requires contiguous columns of A (weight gradients). Packs B first, then each task transposes a block of A.
template <typename T>
void multiply_by_blocks(const Matrix<T>& a, const Matrix<T>& b, int64_t m, int64_t n, int64_t k, const Result& result) {
  const Pieces p(n, k);
  const at::Tensor packed = elements<T>(p.elements());
  at::parallel_for(0, p.chunks * p.panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t chunk = i / p.panels, column = i % p.panels * kPanel;
      T* const panel = packed.mutable_data_ptr<T>() + p.at(chunk, i % p.panels);
      pack(b, chunk * kDepth, column, p.present(chunk), std::min(n - column, kPanel), panel);
      zero_rest(p.present(chunk), kPanel, p.padded(chunk), panel);
    }
  });
  at::parallel_for(0, ceil_div(m, kBlock), 1, [&](int64_t begin, int64_t end) {
    const MicroKernel<T> kernel;
    const bool direct = result.direct();
    const at::Tensor block = elements<T>(kBlock * p.depth);
    const at::Tensor buffer = elements<float>(direct ? 0 : kBlock * n);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task * kBlock, rows = std::min(m - row, kBlock);
      const int64_t stride = direct ? result.stride() : n;
      float* const sums = direct ? result.at(row, 0) : buffer.mutable_data_ptr<float>();
      for (int64_t chunk = 0; chunk < p.chunks; ++chunk) {
        const int64_t depth = p.padded(chunk);
        transpose(a.at(row, chunk * kDepth), a.stride, p.present(chunk), rows, depth, block.mutable_data_ptr<T>());
        for (int64_t panel = 0; panel < p.panels; ++panel) {
          const int64_t column = panel * kPanel;
          kernel.multiply(rows, std::min(n - column, kPanel), depth, block.const_data_ptr<T>(), depth,
                          packed.const_data_ptr<T>() + p.at(chunk, panel), kPanel, chunk > 0 || result.adds_first(),
                          sums + column, stride);
        }
      }
      if (!direct) result.write(sums, stride, row, 0, rows, n);
    }
  });
}

template <typename T>
void multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend, const at::Tensor& out) {
  const Matrix<T> first(a), second(b);
  const Result result(out, addend);
  const auto run = first.by_rows ? &multiply_by_panels<T> : &multiply_by_blocks<T>;
  run(first, second, a.size(0), b.size(1), a.size(1), result);
}

// Returns true if oneDNN's micro-kernel can run. ONEDNN_MAX_CPU_ISA may disable instructions that the CPU supports.
template <typename T>
bool has_micro_kernel() {
  constexpr int64_t kRows = 16, kColumns = 16;
  const at::Tensor a = elements<T>(kRows * kDepthMultiple).zero_(),
                   panel = elements<T>(kDepthMultiple * kPanel).zero_();
  const at::Tensor sums = elements<float>(kRows * kColumns);
  try {
    MicroKernel<T>().multiply(kRows, kColumns, kDepthMultiple, a.const_data_ptr<T>(), kDepthMultiple,
                              panel.const_data_ptr<T>(), kPanel, /*adds=*/false, sums.mutable_data_ptr<float>(),
                              kColumns);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

}  // namespace

bool has_matmul(at::ScalarType type) {
  static const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  static const bool fp32 = avx512 && has_micro_kernel<float>();
  static const bool bf16 = avx512 && __builtin_cpu_supports("avx512bf16") && has_micro_kernel<c10::BFloat16>();
  return type == at::kFloat ? fp32 : type == at::kBFloat16 && bf16;
}

bool prefers_aten(at::ScalarType type) {
  static const bool tiles = at::cpu::init_amx();
  return type == at::kBFloat16 && tiles;
}

int64_t matmul_bytes(int64_t m, int64_t n, int64_t k, bool a_transposed, at::ScalarType type, bool rounds) {
  const auto element = static_cast<int64_t>(c10::elementSize(type)), wide = static_cast<int64_t>(sizeof(float));
  const auto threads_for = [](int64_t tasks) { return std::min<int64_t>(threads(), tasks); };
  if (a_transposed) {
    const Pieces p(n, k);
    const int64_t of_thread = kBlock * p.depth * element + (rounds ? kBlock * n * wide : 0);
    return p.elements() * element + threads_for(ceil_div(m, kBlock)) * of_thread;
  }
  const Division d(m, n, k);
  return threads_for(d.tasks()) * (d.panel() * element + (rounds ? d.sums() * wide : 0));
}

int64_t aten_matmul_bytes(int64_t k) {
  // A panel of the second operand, a tile of sums, and AMX's palette.
  constexpr int64_t kColumns = 64, kLargest = 3072, kTile = 5 << 10;
  const auto element = static_cast<int64_t>(c10::elementSize(at::kBFloat16));
  return threads() * (std::min(k, kLargest) * kColumns * element + kTile);
}

void matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend, const at::Tensor& out) {
  for_type(a, [&](auto type) { multiply<decltype(type)>(a, b, addend, out); });
}

}  // namespace mpzero::model::cpu
