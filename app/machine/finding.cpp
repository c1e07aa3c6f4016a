#include "app/machine/finding.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
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

static Finding finding(Check check, Status status, std::string message, std::string remedy) {
  return {.check = check.text(), .status = status, .message = std::move(message), .remedy = std::move(remedy)};
}

Finding ok(Check check, std::string message) { return finding(check, Status::kOk, std::move(message), {}); }

Finding warning(Check check, std::string message, std::string remedy) {
  return finding(check, Status::kWarning, std::move(message), remedy.empty() ? check.remedy() : std::move(remedy));
}

Finding failure(Check check, std::string message, std::string remedy) {
  return finding(check, Status::kFailure, std::move(message), remedy.empty() ? check.remedy() : std::move(remedy));
}

Fault fault_of(std::string_view check) {
  const auto* found =
      std::find_if(kChecks.begin(), kChecks.end(), [&](const CheckInfo& one) { return one.name == check; });
  return found == kChecks.end() ? Fault::kHost : found->fault;
}

Status worst(const std::vector<Finding>& findings) {
  Status status = Status::kOk;
  for (const Finding& finding : findings) status = std::max(status, finding.status);
  return status;
}

void tell_job_from_hosts(std::vector<HostReport>& reports) {
  std::map<std::string, size_t> failing;
  for (const HostReport& report : reports) {
    std::set<std::string> here;  // the driver check may have several findings
    for (const Finding& finding : report.findings) {
      if (finding.status == Status::kFailure) here.insert(finding.check);
    }
    for (const std::string& check : here) ++failing[check];
  }
  for (HostReport& report : reports) {
    for (Finding& finding : report.findings) {
      if (finding.status != Status::kFailure) continue;
      const bool everywhere = failing[finding.check] == reports.size();
      switch (fault_of(finding.check)) {
        case Fault::kHost:
          finding.of_job = false;
          break;
        case Fault::kShared:
          finding.of_job = everywhere && reports.size() > 1;
          break;
        case Fault::kFolder:
          finding.of_job = everywhere;
          break;
        case Fault::kJob:
          finding.of_job = true;
          break;
      }
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
