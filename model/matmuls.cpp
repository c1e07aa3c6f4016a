#include "model/matmuls.hpp"

#include <ATen/Context.h>
#include <ATen/cuda/Sleep.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <limits>
#include <set>
#include <span>

#include "model/kernels/cpu/matmul.hpp"
#include "model/operation/launch.hpp"
#include "model/tuning.hpp"

namespace mpzero::model {
namespace {

constexpr int kCandidates = 24;
static_assert(kCandidates <= 32, "Product::cannot_add has one bit per candidate");
// About 100 us, enough for the host to queue the first runs of a series.
constexpr int64_t kHeadStartCycles = 200'000;

bool fits_cublas_lt(const at::Tensor& x) {
  return x.is_contiguous() && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % LtMatmul::kAlignment == 0 &&
         x.size(-1) * x.element_size() % LtMatmul::kAlignment == 0;
}

uint32_t common_alignment(std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors) {
  uintptr_t bits = LtMatmul::kFullAlignment;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) bits |= reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  }
  return static_cast<uint32_t>(bits & -bits);
}

// Times runs with events on the current stream. Before each run, reads as many bytes as a matmul's workspace, because
// in a training step some operands have left the cache and others were just written. Needs no more memory than a
// matmul.
class RunTimer {
 public:
  // run(candidate) queues one run or throws c10::Error.
  explicit RunTimer(std::function<void(size_t)> run, at::Device device) : run_(std::move(run)), device_(device) {}

  std::vector<double> operator()(std::span<const size_t> candidates) {
    struct Run {
      c10::cuda::CUDAEvent begin{cudaEventDefault}, end{cudaEventDefault};
    };
    std::vector<Run> runs(candidates.size());
    for (const size_t candidate : candidates) warm_up(candidate);
    at::cuda::sleep(kHeadStartCycles);
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (failed_.contains(candidates[i])) continue;
      read_workspace();
      runs[i].begin.record();
      run_(candidates[i]);
      runs[i].end.record();
    }
    std::vector<double> seconds;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (failed_.contains(candidates[i])) {
        seconds.push_back(std::numeric_limits<double>::infinity());
        continue;
      }
      runs[i].end.synchronize();
      seconds.push_back(runs[i].begin.elapsed_time(runs[i].end) * 1e-3);
    }
    return seconds;
  }

 private:
  // Runs a candidate once without timing, because the first run loads its kernel.
  void warm_up(size_t candidate) {
    if (!warm_.insert(candidate).second) return;
    try {
      run_(candidate);
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::Error&) {
      failed_.insert(candidate);
    }
  }
  void read_workspace() const {
    const int64_t count = LtMatmul::kWorkspaceBytes / static_cast<int64_t>(sizeof(float));
    at::sum(at::empty({count}, at::TensorOptions().dtype(at::kFloat).device(device_)));
  }

  std::function<void(size_t)> run_;
  at::Device device_;
  std::set<size_t> warm_, failed_;
};

// Returns an uninitialized tensor [N, columns] in the dtype of a, or in bf16 if a is FP8.
at::Tensor result(const Operand& a, int64_t columns) {
  const at::TensorOptions options =
      a.is_fp8() ? at::TensorOptions().dtype(at::kBFloat16).device(a.device()) : a.tensor().options();
  return at::empty({a.size(0), columns}, options);
}

// cpu::matmul reads 32 elements at a time from an operand with contiguous rows. For few rows, e.g. one token at a time
// in generation, packing the other operand is not worthwhile.
bool suits_cpu(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend, const at::Tensor& out) {
  constexpr int64_t kMultiple = 32, kFewestRows = 16;
  const auto is_matrix = [](const at::Tensor& x) {
    return x.dim() == 2 && x.numel() > 0 &&
           ((x.stride(1) == 1 && x.stride(0) >= x.size(1)) || (x.stride(0) == 1 && x.stride(1) >= x.size(0)));
  };
  const at::ScalarType type = a.scalar_type();
  const bool by_rows = a.stride(1) == 1;
  return uses_cpu_kernels(a.device()) && cpu::has_matmul(type) && b.scalar_type() == type && is_matrix(a) &&
         is_matrix(b) && (out.scalar_type() == type || out.scalar_type() == at::kFloat) && out.stride(1) == 1 &&
         (!by_rows || (a.size(1) % kMultiple == 0 && a.stride(0) % 2 == 0 && a.size(0) >= kFewestRows)) &&
         !(by_rows && out.scalar_type() == type && cpu::prefers_aten(type)) &&
         (!addend.defined() || (addend.scalar_type() == out.scalar_type() && addend.stride(-1) == 1));
}

}  // namespace

// If the result is wider than the operands, ATen's CUDA matmul writes the wider dtype directly.
void Matmuls::aten_multiply(const Operands& operands) {
  const auto& [layout, out, a, b, addend, a_scale, b_scale] = operands;
  if (operands.is_fp8()) {
    const at::Tensor a_values = fp8::values({a, a_scale}), b_values = fp8::values({b, b_scale}), none;
    if (!uses_cpu_kernels(out.device())) return aten_multiply({layout, out, a_values, b_values, addend, none, none});
    // As on GPUs, the sum is accumulated in fp32 and rounded once.
    const auto widen = [](const at::Tensor& x) { return x.defined() ? x.to(at::kFloat) : x; };
    at::Tensor sum = at::empty(out.sizes(), out.options().dtype(at::kFloat));
    aten_multiply({layout, sum, widen(a_values), widen(b_values), widen(addend), none, none});
    out.copy_(sum);
    return;
  }
  const at::Tensor first = layout == Layout::kATransposedB ? a.t() : a;
  const at::Tensor second = layout == Layout::kABTransposed ? b.t() : b;
  if (suits_cpu(first, second, addend, out)) {
    if (is_simulated(out.device())) {
      const bool rounds = out.scalar_type() != at::kFloat || (addend.defined() && !addend.is_same(out));
      borrow(out,
             cpu::matmul_bytes(out.size(0), out.size(1), first.size(1), first.stride(1) != 1, a.scalar_type(), rounds));
    } else {
      cpu::matmul(first, second, addend, out);
    }
    return;
  }
  const bool same_type = out.scalar_type() == a.scalar_type();
  if (is_simulated(out.device()) && uses_cpu_kernels(out.device()) && cpu::prefers_aten(a.scalar_type())) {
    borrow(out, cpu::aten_matmul_bytes(first.size(1)));
  }
  const bool widens = uses_gpu_kernels(out.device()) && out.scalar_type() == at::kFloat &&
                      (a.scalar_type() == at::kBFloat16 || a.scalar_type() == at::kHalf);
  if (same_type && addend.defined()) {
    at::addmm_out(out, addend, first, second);
  } else if (same_type) {
    at::mm_out(out, first, second);
  } else if (widens && addend.defined()) {
    at::addmm_out(out, addend, first, second, at::kFloat);
  } else if (widens) {
    at::mm_out(out, first, second, at::kFloat);
  } else if (operands.accumulates()) {
    // ATen's mixed-dtype addition makes this copy implicitly, but the simulated device would not count the copy.
    out.add_(at::mm(first, second).to(out.scalar_type()));
  } else {
    out.copy_(addend.defined() ? at::addmm(addend, first, second) : at::mm(first, second));
  }
}

at::Tensor Matmuls::forward(const Operand& a, const Operand& weight, const at::Tensor& addend) {
  at::Tensor out = result(a, weight.size(0));
  multiply(Layout::kABTransposed, out, a, weight, addend);
  return out;
}

void Matmuls::add_forward(at::Tensor& out, const Operand& a, const Operand& weight) {
  multiply(Layout::kABTransposed, out, a, weight, out);
}

at::Tensor Matmuls::data_gradient(const Operand& dy, const Operand& weight) {
  at::Tensor out = result(dy, weight.size(1));
  multiply(Layout::kAB, out, dy, weight);
  return out;
}

void Matmuls::data_gradient_out(at::Tensor& out, const Operand& dy, const Operand& weight) {
  multiply(Layout::kAB, out, dy, weight);
}

void Matmuls::add_data_gradient(at::Tensor& out, const Operand& dy, const Operand& weight) {
  multiply(Layout::kAB, out, dy, weight, out);
}

void Matmuls::weight_gradient_out(at::Tensor& out, const Operand& dy, const Operand& x, bool accumulate) {
  multiply(Layout::kATransposedB, out, dy, x, accumulate ? out : at::Tensor());
}

void Matmuls::aten_weight_gradient_out(at::Tensor& out, const at::Tensor& dy, const at::Tensor& x, bool accumulate) {
  aten_multiply({Layout::kATransposedB, out, dy, x, accumulate ? out : at::Tensor(), {}, {}});
}

void Matmuls::multiply(Layout layout, at::Tensor& out, const Operand& a, const Operand& b, const at::Tensor& addend) {
  TORCH_CHECK(a.is_fp8() == b.is_fp8(), "matmul: either both operands or neither must be FP8");
  if (!a.is_fp8()) return multiply_tensors(layout, out, a.tensor(), b.tensor(), addend);
  const fp8::Matrix& first = layout == Layout::kATransposedB ? a.columns() : a.rows();
  const fp8::Matrix& second = layout == Layout::kABTransposed ? b.rows() : b.columns();
  TORCH_CHECK(first.defined() && second.defined(), "matmul: an FP8 operand lacks the layout that this matmul requires");
  multiply_fp8(layout, out, first, second, addend);
}

Operation Matmuls::operation_of(Layout layout, const at::Tensor& out, const at::Tensor& a, const at::Tensor& addend) {
  const bool a_transposed = layout == Layout::kATransposedB, bias = addend.defined() && addend.dim() == 1;
  return on_matmul({.rows = out.size(0),
                    .columns = out.size(1),
                    .inner = a.size(a_transposed ? 0 : 1),
                    .a_transposed = a_transposed,
                    .b_transposed = layout == Layout::kABTransposed,
                    .type = a.scalar_type(),
                    .bias = bias,
                    .out_type = out.scalar_type()},
                   addend.defined() && !bias);
}

void Matmuls::multiply_tensors(Layout layout, at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                               const at::Tensor& addend) {
  const OperationScope scope(kMatmul, [&] { return operation_of(layout, out, a, addend); });
  const at::Tensor none;
  const Operands operands{layout, out, a, b, addend, none, none};
  const at::ScalarType type = out.scalar_type();
  const bool suits = uses_gpu_kernels(a.device()) && a.scalar_type() == at::kBFloat16 &&
                     b.scalar_type() == at::kBFloat16 && (type == at::kBFloat16 || type == at::kFloat) &&
                     a.numel() > 0 && b.numel() > 0 && fits_cublas_lt(a) && fits_cublas_lt(b) && fits_cublas_lt(out) &&
                     (!addend.defined() || (addend.scalar_type() == type && fits_cublas_lt(addend)));
  if (!suits) {
    aten_multiply(operands);
    return;
  }
  run_tuned(operands, {});
}

void Matmuls::multiply_fp8(Layout layout, at::Tensor& out, const fp8::Matrix& a, const fp8::Matrix& b,
                           const at::Tensor& addend) {
  using enum fp8::FastAccumulation;
  // cuBLASLt applies one scaling mode to both matrices.
  TORCH_CHECK(a.is_rowwise() == b.is_rowwise(),
              "matmul: the FP8 operands must both have one scale per row, or both have a single scale");
  const bool fast = fast_accumulation_ == kAll || (fast_accumulation_ == kForward && layout == Layout::kABTransposed);
  const Fp8Shape scaled{.b_type = b.codes.scalar_type(), .rowwise = a.is_rowwise(), .fast_accumulation = fast};
  const OperationScope scope(kMatmul, [&] {
    Operation operation = operation_of(Layout::kABTransposed, out, a.codes, addend);
    operation.matmul->fp8 = scaled;
    return operation;
  });
  const Operands operands{Layout::kABTransposed, out, a.codes, b.codes, addend, a.scale_inverse, b.scale_inverse};
  const at::ScalarType type = out.scalar_type();
  // FP8 kernels also require aligned sizes of the result.
  const bool suits = uses_gpu_kernels(a.codes.device()) && (type == at::kBFloat16 || type == at::kFloat) &&
                     fits_cublas_lt(a.codes) && fits_cublas_lt(b.codes) && fits_cublas_lt(out) &&
                     out.size(0) % LtMatmul::kAlignment == 0 && out.size(1) % LtMatmul::kAlignment == 0 &&
                     (!addend.defined() || (addend.scalar_type() == type && fits_cublas_lt(addend)));
  if (!suits) {
    aten_multiply(operands);
    return;
  }
  run_tuned(operands, {.fp8 = scaled});
}

void Matmuls::run_tuned(const Operands& operands, MatmulShape shape) {
  const auto& [layout, out, a, b, addend, a_scale, b_scale] = operands;
  if (is_simulated(out.device())) return borrow(out, LtMatmul::kWorkspaceBytes);
  const c10::cuda::CUDAGuard device_guard(a.device());
  const bool a_transposed = layout == Layout::kATransposedB;
  const bool deterministic = at::globalContext().deterministicAlgorithms();
  shape.rows = out.size(0);
  shape.columns = out.size(1);
  shape.inner = a.size(a_transposed ? 0 : 1);
  shape.a_transposed = a_transposed;
  shape.b_transposed = layout == Layout::kABTransposed;
  shape.type = a.scalar_type();
  shape.bias = addend.defined() && !operands.adds();
  shape.out_type = out.scalar_type();
  shape.alignment = common_alignment({out, a, b, addend});
  const Key key{shape, deterministic, a.get_device()};
  std::unique_lock lock(mutex_);
  auto found = products_.find(key);
  if (found == products_.end()) {
    const auto candidates = deterministic ? LtMatmul::Candidates::kRepeatable : LtMatmul::Candidates::kAll;
    Product product{.matmul = LtMatmul(shape, deterministic && !shape.fp8 ? 1 : kCandidates, candidates), .tuned = {}};
    if (shape.fp8 && product.matmul.algorithms() == 0) {
      TORCH_WARN("cuBLASLt has no FP8 algorithm for [", shape.rows, ", ", shape.inner, "] x [", shape.inner, ", ",
                 shape.columns,
                 "] with these scales; falling back to dequantized bf16, which is slower than plain bf16. "
                 "Exclude this matmul with filter_fqns");
    }
    found = products_.emplace(key, std::move(product)).first;
  }
  const Choice choice = choose(found->second, key, operands);
  lock.unlock();
  if (!choice.algorithm) {
    aten_multiply(operands);
  } else if (deterministic && shape.fp8) {
    run_first(found->second, operands);
  } else {
    run(found->second, operands, *choice.algorithm);
  }
}

void Matmuls::run_first(const Product& product, const Operands& operands) {
  for (size_t algorithm = 0; algorithm < product.matmul.algorithms(); ++algorithm) {
    const uint32_t bit = 1U << algorithm;
    if ((*product.cannot_run & bit) != 0) continue;
    try {
      return run(product, operands, algorithm);
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::Error&) {
      *product.cannot_run |= bit;
    }
  }
  aten_multiply(operands);
}

void Matmuls::run(const Product& product, const Operands& operands, size_t algorithm) {
  const auto& [layout, out, a, b, addend, a_scale, b_scale] = operands;
  const LtMatmul& matmul = product.matmul;
  if (!operands.is_fp8()) return matmul.run(a, b, addend, out, algorithm);
  const LtScales scales{a_scale.const_data_ptr<float>(), b_scale.const_data_ptr<float>()};
  if (!operands.adds()) return matmul.run(a, b, addend, out, algorithm, scales);
  const uint32_t bit = 1U << algorithm;
  if ((*product.cannot_add & bit) == 0) {
    try {
      return matmul.run(a, b, addend, out, algorithm, scales);
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::Error&) {
      *product.cannot_add |= bit;
    }
  }
  at::Tensor without = at::empty(out.sizes(), out.options());
  matmul.run(a, b, at::Tensor(), without, algorithm, scales);
  at::add_out(out, without, addend);
}

Matmuls::Choice Matmuls::choose(Product& product, const Key& key, const Operands& operands) {
  const bool capturing = c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
  auto& tuned = product.tuned[operands.adds()];
  if (key.deterministic || (capturing && !tuned)) return product.first();
  if (operands.accumulates()) {
    product.accumulates = true;
    if (tuned) return *tuned;
    return product.tuned[false].value_or(product.first());
  }
  if (!tuned) tuned = tune(product, key.shape, operands);
  if (product.accumulates && !product.tuned[true] && !capturing) {
    const Operands accumulating{operands.layout, operands.out,     operands.a,      operands.b,
                                operands.out,    operands.a_scale, operands.b_scale};
    product.tuned[true] = tune(product, key.shape, accumulating);
  }
  return *tuned;
}

Matmuls::Choice Matmuls::tune(const Product& product, const MatmulShape& shape, const Operands& operands) {
  const LtMatmul& matmul = product.matmul;
  c10::cuda::device_synchronize();
  const auto start = std::chrono::steady_clock::now();
  const size_t aten = matmul.algorithms();
  RunTimer timer(
      [&](size_t candidate) {
        if (candidate != aten) return run(product, operands, candidate);
        // Dequantization needs memory, so ATen is tried only if cuBLASLt returns no algorithm.
        TORCH_CHECK(!operands.is_fp8() || aten == 0, "not tried");
        aten_multiply(operands);
      },
      operands.a.device());
  const TuningResult result = find_fastest(aten, std::ref(timer));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  tuned_.push_back({.shape = shape,
                    .adds = operands.adds(),
                    .algorithm = result.fastest == aten ? "ATen" : matmul.describe(result.fastest),
                    .seconds = result.seconds[result.fastest],
                    .aten_seconds = result.seconds[aten],
                    .first_seconds = aten > 0 ? result.seconds.front() : std::numeric_limits<double>::infinity(),
                    .tried = result.tried,
                    .tuning_seconds = took.count()});
  return {result.fastest == aten ? std::nullopt : std::optional<size_t>(result.fastest)};
}

std::vector<TunedMatmul> Matmuls::tuned() const {
  const std::lock_guard lock(mutex_);
  return tuned_;
}

double Matmuls::tuning_seconds() const {
  double sum = 0;
  for (const TunedMatmul& matmul : tuned()) sum += matmul.tuning_seconds;
  return sum;
}

}  // namespace mpzero::model
