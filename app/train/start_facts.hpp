#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "app/config/run_setup.hpp"
#include "app/memory/run_memory.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero {

// One attempt of a run: the original launch or a restart.
struct RunStart {
  double began = 0;        // Unix time in seconds
  int64_t steps_done = 0;  // steps completed before this attempt
  at::Device device;
};

// Returns the fields of the "start" event in events.jsonl (docs/formats.md). Collective.
nlohmann::ordered_json start_facts(const RunSetup& setup, const RunStart& start, const RunMemory& memory,
                                   parallel::MpiRuntime& mpi);

}  // namespace mpzero
