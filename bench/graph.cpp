#include "bench/graph.hpp"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <vector>

namespace mpzero::bench {
namespace {

double count_kernels(cudaGraph_t graph) {
  size_t count = 0;
  C10_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  C10_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  return static_cast<double>(std::count_if(nodes.begin(), nodes.end(), [](cudaGraphNode_t node) {
    cudaGraphNodeType type{};
    C10_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
    return type == cudaGraphNodeTypeKernel;
  }));
}

}  // namespace

GraphTiming measure_graph(int sets, int repeats, const Body& body) {
  c10::cuda::device_synchronize();
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());  // the default stream cannot be captured
  std::vector<std::vector<at::Tensor>> kept(static_cast<size_t>(sets));
  const auto round = [&] {
    for (int set = 0; set < sets; ++set) kept[static_cast<size_t>(set)] = body(set);
  };
  round();  // one-time work, such as tuning, is not captured
  for (auto& tensors : kept) tensors.clear();
  c10::cuda::device_synchronize();
  at::cuda::CUDAGraph graph(/*keep_graph=*/true);
  graph.capture_begin();
  round();
  graph.capture_end();
  graph.instantiate();
  const Timing replay = time_of(1, repeats, [&](int) {
    graph.replay();
    return std::vector<at::Tensor>{};
  });
  return {replay.seconds / sets, count_kernels(graph.raw_cuda_graph()) / sets};
}

}  // namespace mpzero::bench
