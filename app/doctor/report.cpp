#include "app/doctor/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/text/printable.hpp"
#include "base/words.hpp"

namespace mpzero::doctor {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson to_value(const HostReport& report) {
  OrderedJson findings = OrderedJson::array();
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

std::string painted(Status status, bool color) {
  std::string text = fmt::format("{:<7}", name(status));
  if (!color) return text;
  const int code = status == Status::kOk ? 32 : status == Status::kWarning ? 33 : 31;
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

constexpr size_t kMostNamed = 8;

// Returns text such as "node0, node1 and 62 more".
std::string names_of(const std::vector<std::string>& hosts) {
  const size_t named = std::min(hosts.size(), kMostNamed);
  std::string text = fmt::format("{}", fmt::join(hosts.begin(), hosts.begin() + static_cast<ptrdiff_t>(named), ", "));
  return named == hosts.size() ? text : fmt::format("{} and {} more", text, hosts.size() - named);
}

// Hosts with the same warnings and failures.
struct HostGroup {
  std::vector<std::string> hosts;
  Status status = Status::kOk;
  std::vector<Finding> findings;  // findings of the first host, by decreasing severity
};

bool same_troubles(const std::vector<Finding>& a, const std::vector<Finding>& b) {
  const auto troubles = [](const std::vector<Finding>& findings) {
    std::vector<Finding> found;
    std::copy_if(findings.begin(), findings.end(), std::back_inserter(found),
                 [](const Finding& finding) { return finding.status != Status::kOk; });
    return found;
  };
  const std::vector<Finding> of_a = troubles(a), of_b = troubles(b);
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), [](const Finding& x, const Finding& y) {
    return x.check == y.check && x.status == y.status && x.message == y.message && x.remedy == y.remedy;
  });
}

std::vector<HostGroup> groups_of(const std::vector<HostReport>& reports) {
  std::vector<HostGroup> groups;
  for (const HostReport& report : reports) {
    std::vector<Finding> findings = report.findings;
    std::stable_sort(findings.begin(), findings.end(),
                     [](const Finding& a, const Finding& b) { return a.status > b.status; });
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const HostGroup& group) { return same_troubles(group.findings, findings); });
    if (same != groups.end()) {
      same->hosts.push_back(report.host);
    } else {
      groups.push_back({.hosts = {report.host}, .status = worst(findings), .findings = std::move(findings)});
    }
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const HostGroup& a, const HostGroup& b) { return a.status > b.status; });
  return groups;
}

std::string to_entry(const HostGroup& group, size_t width, TableStyle style) {
  const auto fine = static_cast<size_t>(std::count_if(group.findings.begin(), group.findings.end(),
                                                      [](const Finding& f) { return f.status == Status::kOk; }));
  std::string entry = fmt::format("{}: {}", printable(names_of(group.hosts)), name(group.status));
  if (style.brief && fine > 0) {
    entry +=
        fmt::format(" ({}{})", counted(static_cast<int64_t>(fine), "check"), group.status == Status::kOk ? "" : " ok");
  } else if (fine > 0 && group.hosts.size() > 1) {
    entry += fmt::format(", findings of {}", printable(group.hosts.front()));
  }
  entry += "\n";
  for (const Finding& finding : group.findings) {
    if (style.brief && finding.status == Status::kOk) continue;
    entry += fmt::format("  {}  {:<{}}  {}\n", painted(finding.status, style.color), finding.check, width,
                         printable(finding.message));
    if (!finding.remedy.empty())
      entry += fmt::format("  {:7}  {:<{}}  -> {}\n", "", "", width, printable(finding.remedy));
  }
  return entry;
}

// If several hosts were checked and all failed, returns a sentence that states whether other hosts would help.
std::string closing_sentence(const std::vector<HostReport>& reports) {
  const auto fails = [](const HostReport& report) { return worst(report.findings) == Status::kFailure; };
  if (reports.size() < 2 || !std::all_of(reports.begin(), reports.end(), fails)) return "";
  std::vector<std::string> shared;
  for (const Finding& finding : reports.front().findings) {
    if (finding.status == Status::kFailure && finding.of_job) shared.push_back(finding.check);
  }
  if (shared.empty()) {
    return fmt::format("All {} hosts fail for host-specific reasons: repair the hosts or request other hosts.\n",
                       reports.size());
  }
  return fmt::format(
      "All {} hosts fail these checks: {}. Fix the job's settings or the shared resource; other hosts would also "
      "fail.\n",
      reports.size(), fmt::join(shared, ", "));
}

}  // namespace

JobStart job_start(const parallel::Environment& environment) {
  return {.id = environment("SLURM_JOB_ID").value_or(""),
          .restart = std::atoi(environment("SLURM_RESTART_COUNT").value_or("").c_str())};
}

std::string to_json(const JobStart& start, const std::vector<HostReport>& reports) {
  OrderedJson hosts = OrderedJson::array();
  for (const HostReport& report : reports) hosts.push_back(to_value(report));
  const OrderedJson all = {{"job", start.id}, {"restart", start.restart}, {"hosts", std::move(hosts)}};
  // Strings from libraries and devices may contain invalid UTF-8.
  return all.dump(2, ' ', /*ensure_ascii=*/false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string to_table(const std::vector<HostReport>& reports, TableStyle style) {
  size_t width = 0;
  for (const HostReport& report : reports) {
    for (const Finding& finding : report.findings) width = std::max(width, finding.check.size());
  }
  std::string table;
  for (const HostGroup& group : groups_of(reports)) table += to_entry(group, width, style);
  int failures = 0, warnings = 0;
  for (const HostReport& report : reports) {
    for (const Finding& finding : report.findings) {
      failures += finding.status == Status::kFailure ? 1 : 0;
      warnings += finding.status == Status::kWarning ? 1 : 0;
    }
  }
  return table +
         fmt::format("{}: {}, {}\n", counted(static_cast<int64_t>(reports.size()), "host"),
                     counted(failures, "failure"), counted(warnings, "warning")) +
         closing_sentence(reports);
}

}  // namespace mpzero::doctor
