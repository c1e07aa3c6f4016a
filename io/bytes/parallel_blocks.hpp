#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace mpzero::io {

// Calls work(0) to work(count - 1) once each on up to `threads` threads and waits for all calls. Scheduling is dynamic.
// After the first exception, no further calls start and the exception is rethrown.
template <typename Work>
void parallel_for(int64_t count, int threads, const Work& work) {
  std::atomic<int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto take_and_work = [&] {
    try {
      for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) work(i);
    } catch (...) {
      next.store(count);
      const std::scoped_lock lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    const int64_t wanted = std::min<int64_t>(threads, count) - 1;
    for (int64_t i = 0; i < wanted; ++i) helpers.emplace_back(take_and_work);
    take_and_work();
  }
  if (failure) std::rethrow_exception(failure);
}

// Returns the number of I/O threads per rank. A single thread that also computes checksums cannot saturate a disk, but
// a few threads per rank can.
inline int io_threads() { return static_cast<int>(std::clamp(std::thread::hardware_concurrency() / 4, 2U, 4U)); }

}  // namespace mpzero::io
