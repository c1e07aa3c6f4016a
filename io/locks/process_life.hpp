#pragma once

#include <cstdint>

namespace mpzero::io {

// Start time of a process on this machine, in the PID namespace of the caller: clock ticks since boot (proc(5), field
// 22 of stat). It distinguishes processes that reuse a pid. 0: unknown.
int64_t process_start(int64_t pid);

enum class Life : uint8_t { kAlive, kDead, kUnknown };

// State of the process that had this pid and began at `start` (0: unknown).
Life life_of_process(int64_t pid, int64_t start);

}  // namespace mpzero::io
