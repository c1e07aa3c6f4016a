#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "app/config/run_setup.hpp"
#include "app/config/zero_options.hpp"
#include "app/memory/memory_plan.hpp"
#include "parallel/zero/levels.hpp"

namespace mpzero {

// What a node sends to the other nodes in one step, in bytes, where data is passed around in rings, and how often each
// gradient and parameter crosses. Source: Rajbhandari et al. 2020 for one level; Zhang et al. 2022 (MiCS) and Wang et
// al. 2023 (ZeRO++) for two.
// `parameters`: of the model. `hosts`: over which one level is spread; with two levels the nodes count.
int64_t internode_bytes(const parallel::ZeroOptions& options, const parallel::ParallelLayout& layout, int hosts,
                        int64_t parameters);

// The nodes of a run, and the line about them in its log; empty with one host.
struct LayoutChoice {
  parallel::ParallelLayout layout;
  std::string line;
  // NOLINTNEXTLINE(readability-redundant-member-init): gcc wants one, or each designated initializer to name it
  std::string warning{};  // where compression between nodes is asked for and there is one node
};

// The nodes that ds_config.json gives. Where it says "auto", those with the fewest bytes between hosts that fit: a node
// a host, if a rank's memory of each kind is at most `limit`, or else one level. Where it says nothing the same, but
// one level on hosts of several GPUs. Throws UserError if the ranks do not fill the nodes.
LayoutChoice choose_layout(const RunSetup& setup, at::Device device, const RankPlacement& ranks,
                           const MemoryNeed& limit);

}  // namespace mpzero
