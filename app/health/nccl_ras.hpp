#pragma once

#include <functional>
#include <string>

namespace mpzero {

// What NCCL's RAS service of this machine (on by default since NCCL 2.24) says of the communicators of the whole job:
// its lines, at most 60, indented for a report. Its counts are those of collectives that were asked for. Empty where
// nothing answers; what has come within four seconds where it stops. `address`: as NCCL_RAS_ADDR has it, with a number
// or "localhost" for the host; empty: NCCL's default. `meanwhile` is called several times a second.
std::string nccl_ras_status(const std::string& address, const std::function<void()>& meanwhile = [] {});

}  // namespace mpzero
