#include "app/train/watched_run.hpp"

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string_view>

#include "app/memory/gpu_memory.hpp"
#include "base/error.hpp"
#include "parallel/network/network_start.hpp"

namespace mpzero {
namespace {

// GPU memory, or host memory, for which torch has no error class: a user error that main() explains.
bool is_out_of_memory(const c10::Error& error) {
  return is_out_of_gpu_memory(error) ||
         std::string_view(error.what()).find("can't allocate memory") != std::string_view::npos;
}

}  // namespace

int run_watched(Liveness& liveness, const std::function<int()>& work) {
  try {
    return work();
  } catch (const parallel::NetworkFailure& error) {
    liveness.failed(error.what(), error.culprits());
    throw;
  } catch (const Error& error) {
    if (error.scope() == ErrorScope::kThisRank && error.exit_code() == kFailureExitCode) liveness.failed(error.what());
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const c10::Error& error) {
    if (!is_out_of_memory(error)) liveness.failed(error.what_without_backtrace());
    throw;
  } catch (const std::exception& error) {
    liveness.failed(error.what());
    throw;
  }
}

}  // namespace mpzero
