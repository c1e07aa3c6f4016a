#include "tests/faults/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace mpzero::faults {
namespace {

using Counts = std::array<size_t, kOutcomes>;

struct Row {
  std::string target, kind;
  Counts counts{};
};

std::vector<Row> rows_of(const std::vector<Fault>& faults, const std::vector<Verdict>& verdicts) {
  std::vector<Row> rows;
  for (size_t i = 0; i < faults.size(); ++i) {
    const std::string target = faults[i].target->name();
    if (rows.empty() || rows.back().target != target || rows.back().kind != faults[i].kind) {
      rows.push_back({target, faults[i].kind, {}});
    }
    ++rows.back().counts[static_cast<size_t>(verdicts[i].outcome)];
  }
  return rows;
}

size_t sum_of(const Counts& counts) {
  size_t sum = 0;
  for (const size_t count : counts) sum += count;
  return sum;
}

std::string line_of(const std::string& target, const std::string& kind, const Counts& counts) {
  std::string line = fmt::format("| {} | {} | {} |", target, kind, sum_of(counts));
  for (size_t i = 0; i < kOutcomes; ++i) line += fmt::format(" {} |", counts[i]);
  return line + "\n";
}

}  // namespace

std::string table_of(const std::vector<Fault>& faults, const std::vector<Verdict>& verdicts) {
  std::string text = "| files | fault | tried |", rule = "|---|---|---|";
  for (size_t i = 0; i < kOutcomes; ++i) {
    text += fmt::format(" {} |", kOutcomeNames[i]);
    rule += "---|";
  }
  text += "\n" + rule + "\n";
  Counts all{};
  for (const Row& row : rows_of(faults, verdicts)) {
    text += line_of(row.target, row.kind, row.counts);
    for (size_t i = 0; i < kOutcomes; ++i) all[i] += row.counts[i];
  }
  return text + line_of("all", "", all);
}

std::string list_of_bad(const std::vector<Fault>& faults, const std::vector<Verdict>& verdicts, size_t most) {
  std::string text;
  std::map<std::pair<std::string, std::string>, size_t> shown;
  for (size_t i = 0; i < faults.size(); ++i) {
    if (!is_bad(verdicts[i].outcome)) continue;
    if (++shown[{faults[i].target->name(), faults[i].kind}] > most) continue;
    text += fmt::format("{} {}\n    {}\n", kOutcomeNames[static_cast<size_t>(verdicts[i].outcome)], faults[i].name(),
                        verdicts[i].note);
  }
  return text;
}

std::string json_of(const std::vector<Fault>& faults, const std::vector<Verdict>& verdicts, uint64_t seed) {
  nlohmann::json report = {{"seed", seed}, {"faults", faults.size()}, {"rows", nlohmann::json::array()}};
  for (const Row& row : rows_of(faults, verdicts)) {
    nlohmann::json entry = {{"files", row.target}, {"fault", row.kind}, {"tried", sum_of(row.counts)}};
    for (size_t i = 0; i < kOutcomes; ++i) entry[std::string(kOutcomeNames[i])] = row.counts[i];
    report["rows"].push_back(entry);
  }
  report["bad"] = nlohmann::json::array();
  for (size_t i = 0; i < faults.size(); ++i) {
    if (!is_bad(verdicts[i].outcome)) continue;
    report["bad"].push_back({{"fault", faults[i].name()},
                             {"outcome", kOutcomeNames[static_cast<size_t>(verdicts[i].outcome)]},
                             {"note", verdicts[i].note}});
  }
  return report.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

size_t count_bad(const std::vector<Verdict>& verdicts) {
  return static_cast<size_t>(
      std::count_if(verdicts.begin(), verdicts.end(), [](const Verdict& verdict) { return is_bad(verdict.outcome); }));
}

}  // namespace mpzero::faults
