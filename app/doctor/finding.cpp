#include "app/doctor/finding.hpp"

#include <algorithm>
#include <utility>

namespace mpzero::doctor {

const char* name(Status status) {
  switch (status) {
    case Status::kOk:
      return "ok";
    case Status::kWarning:
      return "warning";
    case Status::kFailure:
      return "failure";
  }
  return "failure";
}

Finding ok(std::string check, std::string message) {
  return {.check = std::move(check), .status = Status::kOk, .message = std::move(message), .remedy = {}};
}

Finding warning(std::string check, std::string message, std::string remedy) {
  return {.check = std::move(check),
          .status = Status::kWarning,
          .message = std::move(message),
          .remedy = std::move(remedy)};
}

Finding failure(std::string check, std::string message, std::string remedy) {
  return {.check = std::move(check),
          .status = Status::kFailure,
          .message = std::move(message),
          .remedy = std::move(remedy)};
}

Status worst(const std::vector<Finding>& findings) {
  Status status = Status::kOk;
  for (const Finding& finding : findings) status = std::max(status, finding.status);
  return status;
}

}  // namespace mpzero::doctor
