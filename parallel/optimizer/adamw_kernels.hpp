#pragma once

#include <cstdint>
#include <functional>

#include "parallel/optimizer/adamw.hpp"

namespace mpzero::parallel {

// DeepSpeed divides gradients by (norm + kClippingEpsilon) / clip if this factor exceeds 1.
constexpr double kClippingEpsilon = 1e-6;

// Pointers to the data of AdamWTensors, `count` elements each, for the kernels.
struct AdamWSpans {
  const void* gradient;  // float or bf16
  bool gradient_is_bf16;
  float* master;
  void* exp_avg;  // float or bf16
  void* exp_avg_sq;
  bool moments_are_bf16;
  void* parameter;  // float or bf16
  bool parameter_is_bf16;
  int64_t count;
  int64_t first;  // see AdamWTensors
  // Host only: destination of the new states if the old states must be kept. Either all three pointers are set, or all
  // are null and the states are updated in place.
  float* next_master = nullptr;
  void* next_exp_avg = nullptr;
  void* next_exp_avg_sq = nullptr;
  // Host only: true if `parameter` is a buffer that is read and reused soon and should therefore stay in the cache.
  bool parameter_stays_cached = false;
};

// Returns spans that remain valid for as long as the tensors exist.
AdamWSpans spans_of(const AdamWTensors& tensors);

// Functions that the simulated device calls in place of the kernels.
struct SimulatedKernels {
  std::function<void(const AdamWTensors&)> adamw;
  std::function<void(const at::Tensor&)> sum_of_squares;
  std::function<void(int64_t)> others;  // argument: bytes that a kernel reads and writes
};
SimulatedKernels& simulated_kernels();
// If `tensor` is on the simulated device, queues a simulated kernel that reads and writes `bytes`, and returns true.
bool is_simulated_kernel(const at::Tensor& tensor, size_t bytes);

// Number of elements that one thread updates at a time on the host. The blocks of all threads begin at multiples of
// this number, so that each element is processed by the same instructions, regardless of the number of threads.
inline constexpr int64_t kHostBlock = int64_t{1} << 14;

// Instruction set of AdamW on the host: AVX-512, AVX2 with FMA, or baseline x86-64. All instruction sets produce the
// same bits, so that replicas on different hosts stay equal.
enum class HostKernel { kPortable, kAvx2, kAvx512 };
bool cpu_runs(HostKernel kernel);
HostKernel fastest_host_kernel();     // fastest kernel on this CPU
const char* name(HostKernel kernel);  // "AVX2"

// Updates all elements of `spans`, using all threads of the process.
void adamw_host(const AdamWSpans& spans, const AdamWUpdate& update);
// Updates the elements [begin, end) on the calling thread. The CPU must support `kernel`.
void adamw_host_range(const AdamWSpans& spans, const AdamWUpdate& update, int64_t begin, int64_t end,
                      HostKernel kernel = fastest_host_kernel());
// parameter[begin, end) (bf16 or float) <- master[begin, end), rounded as in adamw_host().
void round_host_range(const float* master, void* parameter, bool parameter_is_bf16, int64_t begin, int64_t end);
// The following functions queue GPU kernels on the current stream.
void adamw_cuda(const AdamWSpans& spans, const AdamWUpdate& update);
void partial_sums_of_squares_cuda(const at::Tensor& tensor, const at::Tensor& partial);
int64_t num_square_partials_cuda();
void clipping_scale_cuda(const at::Tensor& scale, const at::Tensor& totals, double clip);

}  // namespace mpzero::parallel
