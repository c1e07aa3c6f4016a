#pragma once

#include <functional>
#include <string>

namespace mpzero {

// Asks NCCL's RAS service of this machine (on by default since NCCL 2.24) about the communicators of the whole job.
// Returns its lines, at most 60, indented for a report. Its counts are those of requested collectives. Empty if nothing
// answers; if the answer stalls, what has arrived within four seconds. `address`: in the form of NCCL_RAS_ADDR, with a
// numeric host or "localhost"; empty: NCCL's default. `meanwhile` is called several times a second.
std::string nccl_ras_status(const std::string& address, const std::function<void()>& meanwhile = [] {});

}  // namespace mpzero
