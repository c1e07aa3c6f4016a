#pragma once

#include <cstdint>

namespace mpzero::io {

// When a process of this machine, in the PID namespace of the caller, began: in clock ticks since the boot (proc(5),
// field 22 of stat). With it a pid is not taken for another process that got it later. 0: not known.
int64_t process_start(int64_t pid);

enum class Life : uint8_t { kAlive, kDead, kUnknown };

// Of the process that had this pid and began at `start`; 0: not known.
Life life_of_process(int64_t pid, int64_t start);

}  // namespace mpzero::io
