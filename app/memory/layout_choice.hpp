#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "app/config/run_setup.hpp"
#include "app/config/zero_options.hpp"
#include "app/memory/memory_plan.hpp"
#include "base/process_group.hpp"
#include "parallel/zero/levels.hpp"

namespace mpzero {

// Returns the bytes that a shard group sends to other shard groups in one step, assuming ring algorithms. With one
// level of ZeRO, each of `hosts` hosts counts as a group. `parameters`: number of model parameters. `trained`: number
// of trainable parameters. See Rajbhandari et al. (2020) for one level, and Zhang et al. (MiCS, 2022) and Wang et al.
// (ZeRO++, 2023) for two levels.
int64_t internode_bytes(const parallel::ZeroOptions& options, const parallel::ParallelLayout& layout, int hosts,
                        int64_t parameters, int64_t trained);

// Layout of a run, and a log line about the layout (empty for a single host).
struct LayoutChoice {
  parallel::ParallelLayout layout;
  std::string line;
  // Warning about compression between shard groups if there is only one group, or about shard groups that span hosts;
  // may be empty.
  // NOLINTNEXTLINE(readability-redundant-member-init): avoids gcc's -Wmissing-field-initializers
  std::string warning{};
};

struct PredictedStep {
  double seconds = 0;
  double error = 0;  // relative error, e.g. 0.1 for +/- 10%; 0: unknown
};

// Predicts a step of the run with a layout. Returns std::nullopt if no prediction is possible.
using PredictStep = std::function<std::optional<PredictedStep>(const parallel::ParallelLayout&)>;

// Returns the layout configured in ds_config.json. For "auto", selects one shard group per host or one level of ZeRO:
// - one level if hosts have different numbers of ranks, or ranks that are not consecutive
// - the layout that fits in `limit` per rank, or one level if neither layout fits
// - if both fit, the layout with the shorter predicted step
// - without predictions, or if the predictions differ by no more than their error, the layout that sends fewer bytes
//   between hosts, or one level if both send the same number of bytes
// The default is the same as "auto", except that it selects one level if NVLink connects the hosts. Shard groups span
// hosts only if ds_config.json sets the number of ranks per group. Throws UserError if the ranks cannot be divided into
// shard groups.
LayoutChoice choose_layout(const RunSetup& setup, at::Device device, const RankPlacement& ranks,
                           const MemoryNeed& limit, const PredictStep& predict = {});

// Returns rank 0's choice of the layout on all ranks, because memory and predictions may differ between ranks.
// Collective. Throws UserError on all ranks if choose_layout() throws on any rank. `predict` is called only on rank 0.
LayoutChoice choose_layout_of_rank_0(ProcessGroup& group, const RunSetup& setup, at::Device device,
                                     const RankPlacement& ranks, const MemoryNeed& limit, const PredictStep& predict);

}  // namespace mpzero
