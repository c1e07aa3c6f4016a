# LibTorch, the CUDA runtime and NCCL from the wheels that `uv sync` installs.
#
# find_package(Torch) is not used: it requires a complete CUDA toolkit, but the wheels already contain the compiler, the
# headers and the libraries that match this torch. Defines the targets
#   LibTorch::cpu    ATen on the CPU, with all headers, including CUDA headers
#   LibTorch::cuda   LibTorch::cpu, ATen's CUDA library and the CUDA runtime
#   NCCL::nccl       header and library of the NCCL wheel, which torch also uses
#   CUDA::cublasLt   cuBLASLt; its headers are in LibTorch::cpu
# and MPZERO_CUDA_ROOT, the wheel's CUDA toolkit, which project(... CUDA) requires. Without GPU kernels,
# base/without_cuda replaces ATen's CUDA library, and NCCL::nccl and CUDA::cublasLt are empty; libtorch_cpu.so itself
# needs the CUDA runtime.

set(MPZERO_VENV "${CMAKE_SOURCE_DIR}/.venv" CACHE PATH "virtual environment created by `uv sync`")
file(GLOB _site_packages "${MPZERO_VENV}/lib/python3.*/site-packages")
list(GET _site_packages 0 _site)
set(MPZERO_TORCH_ROOT "${_site}/torch" CACHE PATH "the torch wheel: include/ and lib/")
set(MPZERO_NVIDIA_ROOT "${_site}/nvidia" CACHE PATH "the nvidia wheels: cu13/, nccl/, cudnn/")
set(MPZERO_CUDA_ROOT "${MPZERO_NVIDIA_ROOT}/cu13")
if(NOT EXISTS "${MPZERO_TORCH_ROOT}/lib/libtorch_cpu.so" OR
   NOT (EXISTS "${MPZERO_CUDA_ROOT}/bin/nvcc" OR MPZERO_GPU_ARCHITECTURES STREQUAL "none"))
  message(FATAL_ERROR "no torch or nvcc in ${MPZERO_VENV}: run `uv sync` first, or set MPZERO_VENV.")
endif()

# nvcc searches for its libraries in lib64, but the wheels install them into lib.
if(EXISTS "${MPZERO_CUDA_ROOT}/lib" AND NOT EXISTS "${MPZERO_CUDA_ROOT}/lib64")
  file(CREATE_LINK lib "${MPZERO_CUDA_ROOT}/lib64" SYMBOLIC)
endif()

function(mpzero_define_torch_targets)
  set(torch_lib "${MPZERO_TORCH_ROOT}/lib")
  add_library(LibTorch::cpu INTERFACE IMPORTED GLOBAL)
  target_include_directories(LibTorch::cpu SYSTEM INTERFACE "${MPZERO_TORCH_ROOT}/include" "${MPZERO_CUDA_ROOT}/include")
  target_link_libraries(LibTorch::cpu INTERFACE "${torch_lib}/libtorch_cpu.so" "${torch_lib}/libc10.so"
    # torch's OpenMP runtime, so that at::parallel_for and mpzero share one thread pool.
    "${torch_lib}/libgomp.so.1")
  # The torch libraries find their dependencies through rpath, so the linker does not need to resolve them.
  target_link_options(LibTorch::cpu INTERFACE "LINKER:--allow-shlib-undefined")

  add_library(LibTorch::cuda INTERFACE IMPORTED GLOBAL)
  add_library(NCCL::nccl INTERFACE IMPORTED GLOBAL)
  add_library(CUDA::cublasLt INTERFACE IMPORTED GLOBAL)
  target_link_libraries(LibTorch::cuda INTERFACE LibTorch::cpu "${MPZERO_CUDA_ROOT}/lib/libcudart.so.13")
  if(NOT MPZERO_GPU_KERNELS)
    target_link_libraries(LibTorch::cuda INTERFACE mpzero_base_without_cuda)
    return()
  endif()
  # ATen finds its CUDA library through a registry, not through symbols, so by default the linker would drop it.
  target_link_libraries(LibTorch::cuda INTERFACE
    "-Wl,--push-state,--no-as-needed" "${torch_lib}/libtorch_cuda.so" "-Wl,--pop-state"
    "${torch_lib}/libc10_cuda.so")
  target_include_directories(NCCL::nccl SYSTEM INTERFACE "${MPZERO_NVIDIA_ROOT}/nccl/include")
  target_link_libraries(NCCL::nccl INTERFACE "${MPZERO_NVIDIA_ROOT}/nccl/lib/libnccl.so.2")
  target_link_libraries(CUDA::cublasLt INTERFACE "${MPZERO_CUDA_ROOT}/lib/libcublasLt.so.13")
endfunction()
