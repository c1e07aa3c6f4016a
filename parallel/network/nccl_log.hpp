#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mpzero::parallel {

// Captures what NCCL and its plugin log about their networks during its lifetime, in place of the user's NCCL_DEBUG
// settings, which are restored afterwards. If the user set NCCL_DEBUG=INFO or TRACE, the captured text is then passed
// on: to stdout, or to a file next to NCCL_DEBUG_FILE (which NCCL itself truncates) with the same name and ".start".
// One at a time, on a thread with no concurrent getenv(): the threads that monitor the run have read the environment by
// then.
class NcclLog {
 public:
  // Throws Failure if the kernel has no memory for it.
  NcclLog();
  ~NcclLog();
  NcclLog(const NcclLog&) = delete;
  NcclLog& operator=(const NcclLog&) = delete;

  // The text logged so far.
  std::string text() const;

 private:
  std::optional<std::string> before(const std::string& name) const;
  void pass_on() const;

  int file_ = -1;
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

}  // namespace mpzero::parallel
