#pragma once

#include <string>

namespace mpzero {

// What NCCL's RAS service of this machine (on by default since NCCL 2.24, at NCCL_RAS_ADDR or localhost:28028) says of
// the job's communicators, indented for a report and at most 60 lines; empty where nothing answers within some seconds.
// Its counts are those of collectives that were asked for.
std::string nccl_ras_status();

}  // namespace mpzero
