#pragma once

// Compares the CPU kernels, called through the operations that use them, with the same ATen operations in fp64, which
// tests/model/kernels/test_kernels.cpp compares with autograd. In bf16, inputs and results are bf16.
#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>

#include <functional>
#include <vector>

#include "tests/catch.hpp"
#include "tests/model/compare.hpp"

namespace mpzero::model {

inline constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16};

inline at::Tensor numbers(at::IntArrayRef shape, at::ScalarType type) { return at::randn(shape).to(type); }
inline at::Tensor wide(const at::Tensor& x) { return x.to(at::kDouble); }

// Returns a few rounding errors of the type, relative to the largest value.
inline double tolerance(at::ScalarType type) { return type == at::kFloat ? 3e-6 : 1.2e-2; }

// Checks that results with one and with three threads are bitwise equal, and returns the results.
inline std::vector<at::Tensor> same_on_any_threads(const std::function<std::vector<at::Tensor>()>& run) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  std::vector<at::Tensor> results = run();
  at::set_num_threads(3);
  const std::vector<at::Tensor> again = run();
  at::set_num_threads(threads);
  for (size_t i = 0; i < results.size(); ++i) CHECK(bitwise_equal(results[i], again[i]));
  return results;
}

}  // namespace mpzero::model
