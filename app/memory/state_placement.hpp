#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "app/config/run_config.hpp"
#include "app/memory/run_memory.hpp"
#include "base/process_group.hpp"
#include "model/layer_activations.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// Where a run's parameters and optimizer states are: what fits stays on the GPU. All is collective.
class StatePlacement {
 public:
  // All arguments outlive it.
  StatePlacement(const RunConfig& config, at::Device device, parallel::ZeroEngine& engine, RunMemory& memory,
                 ProcessGroup& group)
      : config_(config), device_(device), engine_(engine), memory_(memory), group_(group) {}

  // Keeps on the GPU what the plan of its memory has room for. Returns what each layer recomputes, by layer.
  std::vector<model::Recompute> plan();
  // Whether ds_config.json leaves open which states are on the host.
  bool leaves_ratio_open() const;
  // If so, after the first step: moves states to GPU memory that no step has needed. Returns the share of the
  // parameters that is updated on the host, and a line for the log.
  std::pair<double, std::string> choose_ratio();

 private:
  // Uses this many more bytes of GPU memory to keep parameters on the GPU, so that fewer need to be copied to it.
  void use_for_parameters(int64_t bytes);

  const RunConfig& config_;
  at::Device device_;
  parallel::ZeroEngine& engine_;
  RunMemory& memory_;
  ProcessGroup& group_;
};

}  // namespace mpzero
