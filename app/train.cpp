#include "app/train.hpp"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>

#include "app/device.hpp"
#include "app/liveness.hpp"
#include "app/network.hpp"
#include "app/run_memory.hpp"
#include "app/run_setup.hpp"
#include "app/stop_request.hpp"
#include "app/trainer.hpp"
#include "base/error.hpp"

namespace mpzero {

namespace {

// Of the GPU, or of the host, for which torch has no class of its own: a user's mistake, as main() explains.
bool is_out_of_memory(const c10::Error& error) {
  return is_out_of_gpu_memory(error) ||
         std::string_view(error.what()).find("can't allocate memory") != std::string_view::npos;
}

TrainingEnd run_trainer(parallel::MpiRuntime& mpi, Network& network, RunSetup setup, at::Device device,
                        RunControl& control) {
  RunMemory memory(setup, device, mpi);
  try {
    Trainer trainer(mpi, network, std::move(setup), device, memory, control);
    return trainer.run();
  } catch (const Error& error) {
    if (device.is_cpu() || !is_out_of_gpu_memory(error)) throw;
    throw UserError(memory.explain_out_of_memory(error), error.scope());
  } catch (const std::exception& error) {
    if (device.is_cpu() || !is_out_of_gpu_memory(error)) throw;
    throw UserError(memory.explain_out_of_memory(error));
  }
}

}  // namespace

int train(const std::vector<std::string>& arguments, parallel::MpiRuntime& mpi) {
  RunSetup setup;
  run_on_all_ranks(mpi, [&] { setup = set_up_run(arguments, mpi.world_size()); });
  configure_gpu_allocator();
  const at::Device device = choose_device(setup.config.device, mpi);
  share_cores(mpi);
  at::globalContext().setDeterministicAlgorithms(setup.config.deterministic, /*warn_only=*/false);
  // Nothing here reads memory that it has not written, so that filling all of it would only cost time.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  if (mpi.rank() == 0) {
    for (const std::string& warning : setup.warnings) fmt::print(stderr, "mpzero: warning: {}\n", warning);
    const RunConfig& config = setup.config;
    fmt::print("Training {} on {}: {} steps of {} sequences x {} tokens, ZeRO-{}, {}\n", config.model_type,
               describe_devices(device, mpi), config.max_steps, config.train_batch_size, config.seq_length,
               config.zero.stage, config.dtype);
    std::fflush(stdout);
  }
  Network network(setup.config.network, device, mpi);
  const StopRequest stop;
  Liveness liveness(
      mpi, stop,
      {.checkpoint_dir = setup.config.checkpoint_dir, .stuck_after = setup.config.stuck_after, .device = device});
  if (mpi.rank() == 0 && !liveness.warning().empty()) {
    fmt::print(stderr, "mpzero: warning: {}\n", liveness.warning());
  }
  RunControl control{.stop = stop, .liveness = liveness};
  // What one rank alone met is told by the one report; a user's mistake needs none.
  try {
    const TrainingEnd end = run_trainer(mpi, network, std::move(setup), device, control);
    return end == TrainingEnd::kStopped ? kStoppedExitCode : EXIT_SUCCESS;
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
