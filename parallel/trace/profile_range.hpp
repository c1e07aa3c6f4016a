#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace at {
struct RecordFunction;
}

namespace mpzero::parallel {

// Names what its thread does, and queues on the GPU, for as long as it lives, in a trace that is being taken. Costs
// some nanoseconds when there is none.
class ProfileRange {
 public:
  // Shown as "what unit", or "what" alone; e.g. "forward", "layers.7".
  explicit ProfileRange(std::string_view what, std::string_view unit = {});
  ~ProfileRange();
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

 private:
  std::string name_;
  std::unique_ptr<at::RecordFunction> record_;  // null when no trace is taken
};

}  // namespace mpzero::parallel
