#include "parallel/trace/profile_range.hpp"

#include <ATen/record_function.h>

namespace mpzero::parallel {

ProfileRange::ProfileRange(std::string_view what, std::string_view unit) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
  if (!callbacks) return;
  name_ = what;
  if (!unit.empty()) name_.append(" ").append(unit);
  record_ = std::make_unique<at::RecordFunction>(std::move(*callbacks));
  record_->before(std::string_view(name_));
}

ProfileRange::~ProfileRange() = default;

}  // namespace mpzero::parallel
