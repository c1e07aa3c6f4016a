#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace at {
struct RecordFunction;
}

namespace mpzero::parallel {

// In a recorded trace, labels the work that its thread does, and queues on the GPU, during its lifetime. Costs some
// nanoseconds if no trace is recorded.
class ProfileRange {
 public:
  // Shown as "what unit", or "what" alone; e.g. "forward", "layers.7".
  explicit ProfileRange(std::string_view what, std::string_view unit = {});
  ~ProfileRange();
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

 private:
  std::string name_;
  std::unique_ptr<at::RecordFunction> record_;  // null when no trace is recorded
};

}  // namespace mpzero::parallel
