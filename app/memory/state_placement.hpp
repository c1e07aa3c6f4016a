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

// Places a run's parameters and optimizer states: those that fit stay on the GPU. All calls are collective.
class StatePlacement {
 public:
  // All arguments outlive it.
  StatePlacement(const RunConfig& config, at::Device device, parallel::ZeroEngine& engine, RunMemory& memory,
                 ProcessGroup& group)
      : config_(config), device_(device), engine_(engine), memory_(memory), group_(group) {}

  // Plans memory, and keeps parameters on the GPU as far as they fit. Returns what each layer recomputes, by layer.
  std::vector<model::Recompute> plan();
  // Whether ds_config.json leaves open which states are on the host.
  bool leaves_ratio_open() const;
  // If so, call after the first step: moves states to GPU memory that no step has used. Returns the fraction of the
  // parameters that the host updates, and a log line.
  std::pair<double, std::string> choose_ratio();

 private:
  // Uses this many more bytes of GPU memory for parameters, so that fewer are copied to the GPU.
  void use_for_parameters(int64_t bytes);

  const RunConfig& config_;
  at::Device device_;
  parallel::ZeroEngine& engine_;
  RunMemory& memory_;
  ProcessGroup& group_;
};

}  // namespace mpzero
