#include "app/train/watched_run.hpp"

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string_view>

#include "app/machine/device.hpp"
#include "app/memory/gpu_memory.hpp"
#include "base/rank_failure.hpp"
#include "parallel/comm/nccl_communicator.hpp"
#include "parallel/network/network_start.hpp"

namespace mpzero {
namespace {

constexpr const char* kOutOfHostMemory =
    "out of host memory; lower train_micro_batch_size_per_gpu, use --recompute full, a higher ZeRO stage, more ranks, "
    "or a smaller model";

// Used only during setup; train() reports out-of-memory errors during training.
constexpr const char* kGpuTaken =
    "GPU memory is already in use; stop the processes that `nvidia-smi` lists, or choose other GPUs with "
    "CUDA_VISIBLE_DEVICES";

RunError user_error(const std::string& message) {
  return {.message = message, .exit_code = kUserErrorExitCode, .why = Why::kUserError, .culprits = {}};
}

}  // namespace

RunError current_error() {
  try {
    throw;
  } catch (const parallel::NetworkFailure& error) {
    return {.message = error.what(), .scope = error.scope(), .culprits = error.culprits()};
  } catch (const DeviceFailure& error) {
    return {.message = error.what(), .scope = error.scope(), .why = Why::kDeviceError, .culprits = error.culprits()};
  } catch (const RankFailure& error) {
    return {.message = error.what(), .scope = error.scope(), .why = Why::kSharedError, .culprits = error.culprits()};
  } catch (const parallel::CommunicatorFailure& error) {
    return {.message = error.what(), .scope = error.scope(), .why = Why::kCommunicatorError, .culprits = {}};
  } catch (const Error& error) {
    return {.message = error.what(),
            .scope = error.scope(),
            .exit_code = error.exit_code(),
            .why = error.exit_code() == kUserErrorExitCode ? Why::kUserError : Why::kError,
            .culprits = {}};
  } catch (const std::bad_alloc&) {
    return user_error(kOutOfHostMemory);
  } catch (const c10::Error& error) {
    if (is_out_of_gpu_memory(error)) return user_error(kGpuTaken);
    // PyTorch's CPU allocator throws no specific error class.
    if (std::string_view(error.what()).find("can't allocate memory") != std::string_view::npos) {
      return user_error(kOutOfHostMemory);
    }
    return {.message = error.what_without_backtrace(), .culprits = {}};
  } catch (const std::exception& error) {
    return {.message = error.what(), .culprits = {}};
  }
}

int run_watched(Watchdog& watchdog, const std::function<int()>& work) {
  try {
    return work();
  } catch (...) {
    const RunError error = current_error();
    if (error.scope == ErrorScope::kAllRanks && (error.culprits.empty() || error.why == Why::kSharedError)) {
      watchdog.report_shared(error.message, error.exit_code, error.culprits);
      throw ReportedError(error.exit_code);
    }
    watchdog.fail(error.why, error.message, error.exit_code, error.culprits);
  }
}

}  // namespace mpzero
