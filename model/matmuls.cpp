#include "model/matmuls.hpp"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <limits>

namespace mpzero::model {
namespace {

constexpr int kCandidates = 8;
constexpr int kTimedRuns = 3;

bool fits_cublas_lt(const at::Tensor& x) {
  return x.is_contiguous() && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % LtMatmul::kAlignment == 0 &&
         x.size(-1) * x.element_size() % LtMatmul::kAlignment == 0;
}

// The shortest time in milliseconds that the current stream takes for body().
template <typename Body>
float shortest_time(const Body& body) {
  body();
  float shortest = std::numeric_limits<float>::infinity();
  for (int run = 0; run < kTimedRuns; ++run) {
    at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
    begin.record();
    body();
    end.record();
    end.synchronize();
    shortest = std::min(shortest, begin.elapsed_time(end));
  }
  return shortest;
}

}  // namespace

at::Tensor& Matmuls::aten_multiply(Layout layout, at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                                   const at::Tensor& addend) {
  const at::Tensor first = layout == Layout::kATransposedB ? a.t() : a;
  const at::Tensor second = layout == Layout::kABTransposed ? b.t() : b;
  return addend.defined() ? at::addmm_out(out, addend, first, second) : at::mm_out(out, first, second);
}

at::Tensor Matmuls::forward(const at::Tensor& a, const at::Tensor& weight) {
  at::Tensor out = at::empty({a.size(0), weight.size(0)}, a.options());
  multiply(Layout::kABTransposed, out, a, weight);
  return out;
}

at::Tensor Matmuls::forward_bias(const at::Tensor& a, const at::Tensor& weight, const at::Tensor& bias) {
  at::Tensor out = at::empty({a.size(0), weight.size(0)}, a.options());
  multiply(Layout::kABTransposed, out, a, weight, bias);
  return out;
}

at::Tensor Matmuls::forward_add(const at::Tensor& a, const at::Tensor& weight, const at::Tensor& addend) {
  at::Tensor out = at::empty({a.size(0), weight.size(0)}, a.options());
  multiply(Layout::kABTransposed, out, a, weight, addend);
  return out;
}

at::Tensor Matmuls::data_gradient(const at::Tensor& dy, const at::Tensor& weight) {
  at::Tensor out = at::empty({dy.size(0), weight.size(1)}, dy.options());
  multiply(Layout::kAB, out, dy, weight);
  return out;
}

void Matmuls::data_gradient_out(at::Tensor& out, const at::Tensor& dy, const at::Tensor& weight) {
  multiply(Layout::kAB, out, dy, weight);
}

void Matmuls::weight_gradient_out(at::Tensor& out, const at::Tensor& dy, const at::Tensor& x) {
  multiply(Layout::kATransposedB, out, dy, x);
}

void Matmuls::multiply(Layout layout, at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                       const at::Tensor& addend) {
  const bool tunable = a.is_cuda() && a.scalar_type() == at::kBFloat16 && a.numel() > 0 && b.numel() > 0 &&
                       !at::globalContext().deterministicAlgorithms() && fits_cublas_lt(a) && fits_cublas_lt(b) &&
                       fits_cublas_lt(out) && (!addend.defined() || fits_cublas_lt(addend));
  if (!tunable) {
    aten_multiply(layout, out, a, b, addend);
    return;
  }
  const c10::cuda::CUDAGuard guard(a.device());
  const bool a_transposed = layout == Layout::kATransposedB;
  const MatmulShape shape{.rows = out.size(0),
                          .columns = out.size(1),
                          .inner = a.size(a_transposed ? 0 : 1),
                          .a_transposed = a_transposed,
                          .b_transposed = layout == Layout::kABTransposed,
                          .type = a.scalar_type(),
                          .bias = addend.defined() && addend.dim() == 1};
  const Tuned& choice = tuned(shape, layout, out, a, b, addend);
  if (choice.algorithm) {
    choice.matmul.run(a, b, addend, out, *choice.algorithm);
  } else {
    aten_multiply(layout, out, a, b, addend);
  }
}

const Matmuls::Tuned& Matmuls::tuned(const MatmulShape& shape, Layout layout, at::Tensor& out, const at::Tensor& a,
                                     const at::Tensor& b, const at::Tensor& addend) {
  const std::lock_guard lock(mutex_);
  const Key key{shape, addend.defined(), a.get_device()};
  if (const auto found = tuned_.find(key); found != tuned_.end()) return found->second;
  Tuned choice{LtMatmul(shape, kCandidates), std::nullopt};
  float shortest = shortest_time([&] { aten_multiply(layout, out, a, b, addend); });
  for (size_t algorithm = 0; algorithm < choice.matmul.algorithms(); ++algorithm) {
    const float time = shortest_time([&] { choice.matmul.run(a, b, addend, out, algorithm); });
    if (time < shortest) {
      shortest = time;
      choice.algorithm = algorithm;
    }
  }
  return tuned_.emplace(key, std::move(choice)).first->second;
}

}  // namespace mpzero::model
