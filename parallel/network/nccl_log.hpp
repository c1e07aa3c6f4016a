#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mpzero::parallel {

// What NCCL and its plugin say of their networks while this lives, instead of what the user's NCCL_DEBUG asks for; the
// user's settings hold again afterwards. Who asked for NCCL_DEBUG=INFO or TRACE gets the words then: on stdout, or
// beside the NCCL_DEBUG_FILE, which NCCL itself begins anew, in a file of the same name and ".start". One at a time, on
// a thread that no other thread's getenv() races with: what watches over the run has read the environment by then.
class NcclLog {
 public:
  // Throws Failure where the kernel gives no memory for it.
  NcclLog();
  ~NcclLog();
  NcclLog(const NcclLog&) = delete;
  NcclLog& operator=(const NcclLog&) = delete;

  // All that was said so far.
  std::string text() const;

 private:
  std::optional<std::string> before(const std::string& name) const;
  void pass_on() const;

  int file_ = -1;
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

}  // namespace mpzero::parallel
