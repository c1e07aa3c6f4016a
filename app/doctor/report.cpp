#include "app/doctor/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace mpzero::doctor {
namespace {

using Json = nlohmann::ordered_json;

Json to_value(const HostReport& report) {
  Json findings = Json::array();
  for (const Finding& finding : report.findings) {
    findings.push_back({{"check", finding.check},
                        {"status", name(finding.status)},
                        {"message", finding.message},
                        {"remedy", finding.remedy},
                        {"blame", finding.status != Status::kFailure ? ""
                                  : finding.of_job                   ? "job"
                                                                     : "host"}});
  }
  return {{"host", report.host}, {"status", name(worst(report.findings))}, {"findings", std::move(findings)}};
}

Status status_of(const std::string& text) {
  for (const Status status : {Status::kOk, Status::kWarning, Status::kFailure}) {
    if (text == name(status)) return status;
  }
  throw_failure("a report of the doctor has the unknown status '{}'", text);
}

std::string painted(Status status, bool color) {
  std::string text = fmt::format("{:<7}", name(status));
  if (!color) return text;
  const int code = status == Status::kOk ? 32 : status == Status::kWarning ? 33 : 31;
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

}  // namespace

std::string to_json(const std::vector<HostReport>& reports) {
  Json hosts = Json::array();
  for (const HostReport& report : reports) hosts.push_back(to_value(report));
  // The strings of a library or a device need not be UTF-8.
  return Json({{"hosts", std::move(hosts)}}).dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) +
         "\n";
}

void to_json(nlohmann::json& json, const HostReport& report) { json = to_value(report); }

void from_json(const nlohmann::json& json, HostReport& report) {
  json.at("host").get_to(report.host);
  for (const nlohmann::json& finding : json.at("findings")) {
    report.findings.push_back({.check = finding.at("check"),
                               .status = status_of(finding.at("status")),
                               .message = finding.at("message"),
                               .remedy = finding.at("remedy"),
                               .of_job = finding.at("blame") == "job"});
  }
}

std::string to_table(const std::vector<HostReport>& reports, bool color) {
  size_t width = 0;
  for (const HostReport& report : reports) {
    for (const Finding& finding : report.findings) width = std::max(width, finding.check.size());
  }
  std::string table;
  int failures = 0, warnings = 0;
  for (const HostReport& report : reports) {
    table += fmt::format("{}: {}\n", report.host, name(worst(report.findings)));
    std::vector<Finding> findings = report.findings;
    std::stable_sort(findings.begin(), findings.end(),
                     [](const Finding& a, const Finding& b) { return a.status > b.status; });
    for (const Finding& finding : findings) {
      failures += finding.status == Status::kFailure ? 1 : 0;
      warnings += finding.status == Status::kWarning ? 1 : 0;
      table += fmt::format("  {}  {:<{}}  {}\n", painted(finding.status, color), finding.check, width, finding.message);
      if (!finding.remedy.empty()) table += fmt::format("  {:7}  {:<{}}  -> {}\n", "", "", width, finding.remedy);
    }
  }
  return table + fmt::format("{} host{}: {} failure{}, {} warning{}\n", reports.size(), reports.size() == 1 ? "" : "s",
                             failures, failures == 1 ? "" : "s", warnings, warnings == 1 ? "" : "s");
}

}  // namespace mpzero::doctor
