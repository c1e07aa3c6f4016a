#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace mpzero::io {

// Calls work(0) .. work(count - 1), each once, on up to `threads` threads, and returns when all calls are done. A free
// thread fetches the next index. After the first exception no further calls start, and the exception is rethrown.
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

// Number of threads for a rank's file I/O. A few threads saturate a disk; one thread that also hashes does not. Several
// ranks share a host.
inline int io_threads() { return static_cast<int>(std::clamp(std::thread::hardware_concurrency() / 4, 2U, 4U)); }

}  // namespace mpzero::io
