#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "app/config/run_setup.hpp"
#include "app/config/zero_options.hpp"
#include "app/memory/memory_plan.hpp"
#include "parallel/zero/levels.hpp"

namespace mpzero {

// What a node sends to the other nodes in one step, in bytes, where data is passed around in rings, and how often each
// gradient and parameter crosses. Source: Rajbhandari et al. 2020 for one level; Zhang et al. 2022 (MiCS) and Wang et
// al. 2023 (ZeRO++) for two.
// `parameters`: of the model; `trained`: those that are not frozen. `hosts`: over which one level is spread; with two
// levels the nodes count.
int64_t internode_bytes(const parallel::ZeroOptions& options, const parallel::ParallelLayout& layout, int hosts,
                        int64_t parameters, int64_t trained);

// The nodes of a run, and the line about them in its log; empty with one host.
struct LayoutChoice {
  parallel::ParallelLayout layout;
  std::string line;
  // Where compression between nodes is asked for and there is one node, or a number makes nodes across hosts.
  // NOLINTNEXTLINE(readability-redundant-member-init): gcc wants one, or each designated initializer to name it
  std::string warning{};
};

struct PredictedStep {
  double seconds = 0;
  double error = 0;  // relative, half of an interval; 0: not known
};

// A step of the run with this layout; std::nullopt: it cannot be predicted.
using PredictStep = std::function<std::optional<PredictedStep>(const parallel::ParallelLayout&)>;

// A run that is planned before or beside it.
struct PlannedRun {
  const RunSetup& setup;
  std::string gpu = {};  // its name
  int64_t gpu_bytes = 0;
  // Of a run on CPUs, which has no GPU: the processor's name, the threads of a rank, the memory of a host.
  std::string processor = {};
  int threads = 0;
  int64_t host_bytes = 0;
  int hosts = 1;
  int per_host = 1;
  // Between hosts, as the run has proven it: "efa" or "socket". Empty: not yet, --network counts.
  std::string network = {};
};
// The nodes that ds_config.json gives. Where it says "auto": of nodes of one host and one level, those with the shorter
// predicted step, if both fit, which means that a rank's memory of each kind is at most `limit`. Where the predictions
// differ by no more than their error, or there are none, those with fewer bytes between hosts; one level where they are
// as many. One level if neither fits. Nodes of several hosts are only the file's number. One level where hosts have
// different numbers of ranks, or ranks that are not consecutive. Where the file says nothing the same, but one level
// where NVLink connects the hosts. Throws UserError if the ranks do not fill the nodes.
LayoutChoice choose_layout(const RunSetup& setup, at::Device device, const RankPlacement& ranks,
                           const MemoryNeed& limit, const PredictStep& predict = {});

}  // namespace mpzero
