#include "app/liveness/failure_report.hpp"

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.hpp"
#include "base/text/printable.hpp"

namespace mpzero {
namespace {

using parallel::ChannelRecord;
using parallel::CollectiveRecord;
using parallel::CollectiveState;
using State = RankRecord::State;

// Describes where a rank is, without times: ranks at the same place get the same text.
std::string place(const RankRecord& record) {
  constexpr size_t kShown = 3;
  std::string text;
  switch (record.state) {
    case State::kLost:
      text = "has exited; its last status came ";
      break;
    case State::kEnded:
      text = "has ended, normally or not; its last status came ";
      break;
    case State::kSilent:
      text = "does not respond; its last status came ";
      break;
    case State::kLeft:
      text = "has left normally; its last status came ";
      break;
    default:
      break;
  }
  text += describe(record.status.phase, record.status.step);
  for (const ChannelRecord& channel : record.status.channels) {
    if (channel.queued == 0) continue;
    text += fmt::format("\n      {}: {} requested, {} completed", channel.name, channel.queued, channel.completed);
    std::vector<std::string> last;
    const size_t skip = channel.last.size() > kShown ? channel.last.size() - kShown : 0;
    for (size_t i = 0; i < channel.last.size(); ++i) {
      const CollectiveRecord& one = channel.last[i];
      const bool is_open = one.sequence == channel.completed + 1;
      if (i < skip && !is_open) continue;
      const char* how = one.state == CollectiveState::kCompleted ? ""
                        : one.state == CollectiveState::kStarted ? " WAITS"
                                                                 : " queued";
      last.push_back(fmt::format("{} {} {}{}", one.operation, one.sequence, show_bytes(one.bytes), how));
    }
    text += fmt::format("; last: {}", fmt::join(last, ", "));
  }
  return text;
}

std::string rank_list(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
    parts.push_back(i == j ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[j]));
    i = j + 1;
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

std::string time_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

template <class Json>
std::string file_text(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string report_text(const Verdict& verdict, const std::vector<RankRecord>& records, const std::string& checkpoint) {
  constexpr size_t kPlaces = 16;
  std::string text = fmt::format("mpzero: error: {}; {}.\n", printable(verdict.reason), printable(verdict.remedy));
  text += checkpoint.empty() ? "  No checkpoint was saved yet: the same command starts over.\n"
                             : fmt::format("  The same command resumes from {}.\n", printable(checkpoint));
  std::vector<std::pair<std::string, std::vector<int>>> places;
  for (const RankRecord& record : records) {
    std::string here = place(record);
    const auto same = std::find_if(places.begin(), places.end(), [&](const auto& one) { return one.first == here; });
    if (same == places.end()) {
      places.emplace_back(std::move(here), std::vector<int>{record.identity.rank});
    } else {
      same->second.push_back(record.identity.rank);
    }
  }
  text += "  Where the ranks were:\n";
  for (size_t i = 0; i < std::min(places.size(), kPlaces); ++i) {
    const auto& [here, ranks] = places[i];
    text += fmt::format("    rank {} ({}): {}\n", rank_list(ranks),
                        records[static_cast<size_t>(ranks.front())].identity.host, here);
  }
  if (places.size() > kPlaces) text += fmt::format("    and {} more places\n", places.size() - kPlaces);
  return text;
}

std::string report_json(const Verdict& verdict, const std::vector<RankRecord>& records, const ReportOrigin& origin) {
  std::vector<std::string> hosts;
  for (const int rank : verdict.ranks) {
    const std::string& host = records[static_cast<size_t>(rank)].identity.host;
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  int64_t step = 0;
  for (const RankRecord& record : records) step = std::max(step, record.status.step);
  const nlohmann::ordered_json json = {{"time", time_now()},
                                       {"job", origin.job.id},
                                       {"restart", origin.job.restart},
                                       {"step", step},
                                       {"reason", verdict.reason},
                                       {"ranks", verdict.ranks},
                                       {"hosts", hosts},
                                       {"run", origin.run},
                                       {"started", origin.started},
                                       {"found_by", origin.rank},
                                       {"foundation", verdict.foundation}};
  return file_text(json);
}

std::optional<KeptReport> why_it_stays(const std::string& text, const ReportOrigin& origin, const Verdict& verdict) {
  try {
    const nlohmann::json json = parse_json(text, kLineLimits);
    const auto reason = json.at("reason").get<std::string>();
    if (json.at("run") != origin.run) {
      // This process was stopped while its run was ended and started again. Another job has nothing to do with that.
      const bool is_same_job = !origin.job.id.empty() && json.at("job") == origin.job.id;
      if (!is_same_job || json.at("started").get<int64_t>() <= origin.started) return std::nullopt;
      return KeptReport{.why = "a later run has failed since: " + reason, .is_of_later_run = true};
    }
    if (json.contains("resumed")) return KeptReport{.why = "the run has been started again since: " + reason};
    const nlohmann::json& foundation = json.at("foundation");
    // The conversion of a fraction, or of a larger number, to int is not defined.
    if (!foundation.is_number_integer() || foundation > std::numeric_limits<int>::max()) return std::nullopt;
    if (counts_more(verdict, foundation.get<int>())) return std::nullopt;
    return KeptReport{.why = "the run has ended already: " + reason};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const JsonError&) {
    return std::nullopt;
  }
}

std::optional<std::string> mark_resumed(const std::string& text, const ReportOrigin& origin) {
  try {
    nlohmann::json json = parse_json(text, kLineLimits);
    const bool is_earlier = json.at("job") == origin.job.id && json.at("restart") == origin.job.restart &&
                            json.value("run", "") != origin.run && !json.contains("resumed");
    if (!is_earlier) return std::nullopt;
    json["resumed"] = time_now();
    return file_text(json);
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const JsonError&) {
    return std::nullopt;
  }
}

}  // namespace mpzero
