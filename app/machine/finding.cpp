#include "app/machine/finding.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/error.hpp"

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
  return {
      .check = std::move(check), .status = Status::kOk, .message = std::move(message), .remedy = {}, .of_job = false};
}

Finding warning(std::string check, std::string message, std::string remedy) {
  return {.check = std::move(check),
          .status = Status::kWarning,
          .message = std::move(message),
          .remedy = std::move(remedy),
          .of_job = false};
}

Finding failure(std::string check, std::string message, std::string remedy) {
  return {.check = std::move(check),
          .status = Status::kFailure,
          .message = std::move(message),
          .remedy = std::move(remedy),
          .of_job = false};
}

Status worst(const std::vector<Finding>& findings) {
  Status status = Status::kOk;
  for (const Finding& finding : findings) status = std::max(status, finding.status);
  return status;
}

void tell_job_from_hosts(std::vector<HostReport>& reports) {
  std::map<std::string, size_t> failing;
  for (const HostReport& report : reports) {
    for (const Finding& finding : report.findings) failing[finding.check] += finding.status == Status::kFailure ? 1 : 0;
  }
  for (HostReport& report : reports) {
    for (Finding& finding : report.findings) {
      if (finding.status != Status::kFailure) continue;
      const bool everywhere = failing[finding.check] == reports.size();
      const bool setting = finding.check == "launch" || finding.check == "network";
      const bool folder = finding.check.rfind("checkpoint_", 0) == 0;
      finding.of_job = setting || (everywhere && (reports.size() > 1 || folder));
    }
  }
}

int exit_code(const std::vector<HostReport>& reports) {
  int code = EXIT_SUCCESS;
  for (const HostReport& report : reports) {
    for (const Finding& finding : report.findings) {
      if (finding.status != Status::kFailure) continue;
      if (!finding.of_job) return kFailureExitCode;
      code = kUserErrorExitCode;
    }
  }
  return code;
}

}  // namespace mpzero::doctor
