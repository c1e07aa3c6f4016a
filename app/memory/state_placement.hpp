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

// Keeps as many parameters and optimizer states in GPU memory as fit. All calls are collective.
class StatePlacement {
 public:
  // All arguments must outlive the object.
  StatePlacement(const RunConfig& config, at::Device device, parallel::ZeroEngine& engine, RunMemory& memory,
                 ProcessGroup& group)
      : config_(config), device_(device), engine_(engine), memory_(memory), group_(group) {}

  // Plans memory, and moves as many parameters to the GPU as fit. Returns the recompute level of each layer.
  std::vector<model::Recompute> plan();
  // Returns true if the fraction of states on the host is chosen automatically.
  bool leaves_ratio_open() const;
  // Moves states from the host to GPU memory that the first step did not use. Returns the fraction of the parameters
  // that the host updates, and a log line. Must be called after the first step if leaves_ratio_open() is true.
  std::pair<double, std::string> choose_ratio();

 private:
  // Uses `bytes` more GPU memory for parameters, which reduces copies to the GPU.
  void use_for_parameters(int64_t bytes);

  const RunConfig& config_;
  at::Device device_;
  parallel::ZeroEngine& engine_;
  RunMemory& memory_;
  ProcessGroup& group_;
};

}  // namespace mpzero
