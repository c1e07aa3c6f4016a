#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace at {
struct RecordFunction;
}

namespace mpzero::parallel {

// Label in a trace for all work that the current thread runs or queues on the GPU during the object's lifetime. A range
// costs a few nanoseconds if no trace is recorded.
class ProfileRange {
 public:
  // The label in the trace is `what`, followed by `unit` if it is not empty, e.g. "forward layers.7".
  explicit ProfileRange(std::string_view what, std::string_view unit = {});
  ~ProfileRange();
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

 private:
  std::string name_;
  std::unique_ptr<at::RecordFunction> record_;  // null if no trace is recorded
};

}  // namespace mpzero::parallel
