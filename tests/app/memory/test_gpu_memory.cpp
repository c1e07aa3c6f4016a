#include <c10/core/AllocatorConfig.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <new>

#include "app/memory/gpu_memory.hpp"
#include "base/error.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

TEST_CASE("expandable segments are enabled unless the user has configured the allocator") {
  const auto expandable = [] { return c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments(); };
  unsetenv("PYTORCH_CUDA_ALLOC_CONF");
  unsetenv("PYTORCH_ALLOC_CONF");
  REQUIRE_FALSE(expandable());
  for (const char* variable : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    setenv(variable, "max_split_size_mb:128", 1);
    configure_gpu_allocator();
    CHECK_FALSE(expandable());
    unsetenv(variable);
  }
  configure_gpu_allocator();
  CHECK(expandable());
}

TEST_CASE("out-of-memory errors of a GPU are distinguished from other errors") {
  const auto torch_error = [](const char* words) {
    return c10::Error(c10::SourceLocation{"function", "file", 1}, words);
  };
  CHECK(is_out_of_gpu_memory(c10::OutOfMemoryError(c10::SourceLocation{"function", "file", 1}, "Tried to allocate")));
  CHECK(is_out_of_gpu_memory(torch_error("CUDA error: out of memory")));
  CHECK(is_out_of_gpu_memory(torch_error("cublasCreate: CUBLAS_STATUS_ALLOC_FAILED")));
  CHECK(is_out_of_gpu_memory(Failure("ncclCommInitRank failed on rank 1: unhandled cuda error (out of memory)")));
  CHECK(is_out_of_gpu_memory(Failure("rank 1: CUDA out of memory. Tried to allocate 2.00 GiB")));
  CHECK_FALSE(is_out_of_gpu_memory(torch_error("CUDA error: an illegal memory access was encountered")));
  CHECK_FALSE(is_out_of_gpu_memory(torch_error("DefaultCPUAllocator: can't allocate memory")));
  CHECK_FALSE(is_out_of_gpu_memory(Failure("cudaHostRegister of 4.00 GiB failed: out of memory; use more ranks")));
  CHECK_FALSE(is_out_of_gpu_memory(std::bad_alloc()));
}

}  // namespace
}  // namespace mpzero
