#include "app/liveness/rank_meeting.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "base/error.hpp"

namespace mpzero {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kMeetingLimit(3000);

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

// A monitor keeps a connection to every rank, and any rank can become one.
void allow_connections(int world_size) {
  constexpr rlim_t kOthers = 512;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  const rlim_t wanted = static_cast<rlim_t>(world_size) + kOthers;
  if (files.rlim_cur >= wanted) return;
  files.rlim_cur = std::min(wanted, files.rlim_max);
  setrlimit(RLIMIT_NOFILE, &files);
}

// `port`: where this rank listens; 0: nowhere.
RankRoster introduce(ProcessGroup& group, int port) {
  json introduction = this_process(group.rank(), port);
  if (group.rank() == 0) introduction["token"] = random_token();
  const std::vector<std::string> introductions =
      group.all_gather(introduction.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace));
  RankRoster roster{.own = group.rank(), .ranks = {}, .token = {}};
  for (const std::string& text : introductions) roster.ranks.push_back(json::parse(text).get<RankIdentity>());
  roster.token = json::parse(introductions.front()).at("token").get<std::string>();
  return roster;
}

}  // namespace

RankMeeting meet(ProcessGroup& group) {
  allow_connections(group.world_size());
  RankMeeting meeting;
  std::string problem;
  try {
    meeting.listener.emplace();
  } catch (const Error& error) {
    problem = error.what();
  }
  meeting.roster = introduce(group, meeting.listener ? meeting.listener->port() : 0);
  if (group.rank() != 0 && problem.empty()) {
    meeting.monitor = connect_to_rank(meeting.roster, 0, kMeetingLimit);
    if (!meeting.monitor) {
      const RankIdentity& to = meeting.roster.identity(0);
      problem = fmt::format("rank {} on {} does not reach rank 0 on {} over TCP (port {})", group.rank(),
                            meeting.roster.identity(group.rank()).host, to.host, to.port);
    }
  }
  for (const std::string& text : group.all_gather(problem)) {
    if (text.empty()) continue;
    meeting.warning = fmt::format(
        "the ranks do not watch each other, so that a rank that hangs is not noticed: {}; let the nodes of a job "
        "connect to each other on every port.",
        text);
    meeting.monitor.reset();
    meeting.listener.reset();
    break;
  }
  return meeting;
}

}  // namespace mpzero
