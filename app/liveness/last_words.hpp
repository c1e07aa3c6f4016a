#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <vector>

#include "app/liveness/rank_record.hpp"

// What a process still does that is about to end. None of it waits for long, even for a disk that does not answer.
namespace mpzero {

// Runs `work` on a thread of its own and goes on after `limit` even if that still stands.
void no_longer_than(std::chrono::milliseconds limit, std::function<void()> work);

// Writes who held the run up to stderr and to `checkpoint_dir`/failure.json. `records`: by rank, not empty.
void tell_failure(const std::vector<RankRecord>& records, const std::filesystem::path& checkpoint_dir,
                  at::Device device);

// Writes to stderr that the run stops without a save because it was asked to, by its exit code, and what is left of it.
void tell_stop(int exit_code, const std::filesystem::path& checkpoint_dir);

}  // namespace mpzero
