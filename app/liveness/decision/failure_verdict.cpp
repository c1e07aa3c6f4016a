#include "app/liveness/decision/failure_verdict.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "app/liveness/decision/held_collective.hpp"
#include "parallel/network/network.hpp"

namespace mpzero {
namespace {

using parallel::ChannelRecord;
using State = RankRecord::State;

std::string names_of(const std::vector<RankRecord>& records, const std::vector<int>& ranks) {
  constexpr size_t kNamed = 8;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(ranks.size(), kNamed); ++i) {
    const RankIdentity& identity = records[static_cast<size_t>(ranks[i])].identity;
    names.push_back(fmt::format("rank {} on {} (pid {})", identity.rank, identity.host, identity.pid));
  }
  if (ranks.size() > kNamed) names.push_back(fmt::format("{} more ranks", ranks.size() - kNamed));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<int> ranks_in(const std::vector<RankRecord>& records, State state) {
  std::vector<int> ranks;
  for (const RankRecord& record : records) {
    if (record.state == state) ranks.push_back(record.identity.rank);
  }
  return ranks;
}

// The ranks that were lost with the first, or those that were lost later.
std::vector<int> lost_ranks(const std::vector<RankRecord>& records, bool first) {
  std::vector<int> ranks;
  for (const RankRecord& record : records) {
    if (record.state == State::kLost && record.is_lost_first() == first) ranks.push_back(record.identity.rank);
  }
  return ranks;
}

std::string awaited_by_others(const std::vector<RankRecord>& records, const std::vector<int>& lost) {
  const std::optional<HeldCollective> held = find_awaited(records, lost);
  return held ? ", while others wait for it in " + describe(*held) : "";
}

// Where these ranks must be: the position of the rank that has come the farthest.
std::string where_all(const std::vector<RankRecord>& records, const std::vector<int>& lost) {
  const RankRecord* farthest = &records[static_cast<size_t>(lost.front())];
  for (const RankRecord& record : records) {
    if (record.has_left()) continue;
    const auto place = [](const RankRecord& one) { return std::pair(one.status.step, one.status.phase); };
    if (place(record) > place(*farthest)) farthest = &record;
  }
  return describe(farthest->status.phase, farthest->status.step);
}

std::string where(const std::vector<RankRecord>& records, int rank) {
  const RankStatus& status = records[static_cast<size_t>(rank)].status;
  return describe(status.phase, status.step);
}

// A network that blocks all traffic stops all ranks at the same place. If it blocks only some of them, the others get
// further.
Verdict not_connected(const std::vector<RankRecord>& records, const std::set<int>& all, double idle) {
  const std::optional<HeldCollective> lag = find_lag(records, all, &ChannelRecord::queued);
  const std::vector<int> late = lag ? lag->late : std::vector<int>(all.begin(), all.end());
  std::string complaint;
  for (const int rank : late) {
    if (complaint.empty()) complaint = records[static_cast<size_t>(rank)].status.complaint;
  }
  if (!complaint.empty()) complaint = ": " + complaint;
  const std::string subject = lag ? fmt::format("{} {} not been connected, while the others have, for",
                                                names_of(records, late), late.size() == 1 ? "has" : "have")
                                  : std::string("the nodes have not been connected for");
  return {.ranks = lag ? late : std::vector<int>(),
          .reason = fmt::format("{} {:.0f} s{}", subject, idle, complaint),
          .remedy = parallel::kUnconnectedRemedy};
}

Verdict stuck(const std::vector<RankRecord>& records) {
  double idle = 0;
  std::set<int> all;
  for (const RankRecord& record : records) {
    if (record.has_left()) continue;
    idle = std::max(idle, record.status.idle);
    all.insert(record.identity.rank);
  }
  // No rank is left to compare: blame none.
  if (all.empty()) return {.ranks = {}, .reason = "the run makes no progress", .remedy = "start it again"};
  const bool connects = std::any_of(all.begin(), all.end(), [&](int rank) {
    return records[static_cast<size_t>(rank)].status.phase == RunPhase::kNetwork;
  });
  if (connects) return not_connected(records, all, idle);
  const char* host_remedy =
      "inspect the process with `py-spy dump --native` or gdb, and check its machine's disks and memory";
  const char* gpu_remedy = "check dmesg for Xid messages, and nvidia-smi, on that machine";
  for (const ChannelProgress measure : {&ChannelRecord::queued, &ChannelRecord::started}) {
    const std::optional<HeldCollective> lag = find_lag(records, all, measure);
    if (!lag) continue;
    const bool on_gpu = measure == &ChannelRecord::started;
    return {.ranks = lag->late,
            .reason = fmt::format("{0} {1} not reached {3}{2}, {4}, while others have waited in it for {5:.0f} s",
                                  names_of(records, lag->late), lag->late.size() == 1 ? "has" : "have",
                                  on_gpu ? " on the GPU" : "", describe(*lag), where(records, lag->late.front()),
                                  lag->waited),
            .remedy = on_gpu ? gpu_remedy : host_remedy};
  }
  if (const std::optional<HeldCollective> lag = find_lag(records, all, &ChannelRecord::completed)) {
    return {.ranks = lag->late,
            .reason = fmt::format(
                "{} reached {} with the others, {}, but did not complete it: the network or the GPU makes no progress",
                names_of(records, lag->late), describe(*lag), where(records, lag->late.front())),
            .remedy = "check the network's counters, and dmesg for Xid messages, on that machine"};
  }
  // Of two or more ranks none is known to be to blame.
  if (const std::optional<HeldCollective> held = find_unfinished(records, all); held && held->late.size() > 1) {
    return {.ranks = {},
            .reason = fmt::format("{} have reached {}, {}, and none of them has completed it for {:.0f} s",
                                  names_of(records, held->late), describe(*held), where(records, held->late.front()),
                                  held->waited),
            .remedy = "check the network between these ranks, and dmesg for Xid messages on their machines"};
  }
  const int first = *all.begin();
  std::string waits_in;
  if (const std::optional<HeldCollective> held = find_awaited(records, /*gone=*/{first})) {
    waits_in = ", all ranks in " + describe(*held);
  }
  if (all.size() == 1) {
    return {.ranks = {first},
            .reason = fmt::format("{} has made no progress for {:.0f} s {}", names_of(records, {first}), idle,
                                  where(records, first)),
            .remedy = host_remedy};
  }
  return {.ranks = {},
          .reason = fmt::format("no rank has made progress for {:.0f} s {}{}", idle, where(records, first), waits_in),
          .remedy =
              "if this may take so long, set a longer --stuck_after; otherwise check the network between the machines, "
              "and the disks"};
}

// The ranks that any of these failed ranks knows to be the cause of its error.
std::vector<int> known_culprits(const std::vector<RankRecord>& records, const std::vector<int>& failed) {
  std::set<int> known;
  for (const int rank : failed) {
    const std::vector<int>& culprits = records[static_cast<size_t>(rank)].culprits;
    known.insert(culprits.begin(), culprits.end());
  }
  return {known.begin(), known.end()};
}

// The first rank that knows the cause of its error; if none does, the one whose error came first.
const RankRecord& reporter(const std::vector<RankRecord>& records, const std::vector<int>& failed) {
  for (const int rank : failed) {
    if (!records[static_cast<size_t>(rank)].culprits.empty()) return records[static_cast<size_t>(rank)];
  }
  const int first = *std::min_element(failed.begin(), failed.end(), [&](int one, int other) {
    return records[static_cast<size_t>(one)].error_order < records[static_cast<size_t>(other)].error_order;
  });
  return records[static_cast<size_t>(first)];
}

Verdict of_lost(const std::vector<RankRecord>& records, const std::vector<int>& lost) {
  return {.ranks = lost,
          .reason = fmt::format("{} ended without reporting an error {}{}", names_of(records, lost),
                                where_all(records, lost), awaited_by_others(records, lost)),
          .remedy =
              "look for the cause in that rank's last lines of output and, on its machine, in dmesg (out of memory, "
              "Xid messages)"};
}

// Without its full stop.
std::string error_of(const RankRecord& record) {
  std::string error = record.error;
  while (!error.empty() && (error.back() == '.' || error.back() == '\n')) error.pop_back();
  return error;
}

Verdict of_failed(const std::vector<RankRecord>& records, const std::vector<int>& failed) {
  const std::vector<int> culprits = known_culprits(records, failed);
  const RankRecord& first = reporter(records, failed);
  const std::string error = error_of(first);
  if (!culprits.empty()) {
    return {.ranks = culprits,
            .reason = fmt::format("rank{} {}: {} ({})", culprits.size() == 1 ? "" : "s", fmt::join(culprits, ", "),
                                  error, where(records, first.identity.rank)),
            .remedy = "check that machine if it happens there again"};
  }
  // Its peers fail because it failed.
  return {.ranks = {first.identity.rank},
          .reason = fmt::format("rank {}: {} ({}, on {})", first.identity.rank, error,
                                where(records, first.identity.rank), first.identity.host),
          .remedy = "check that machine if it happens there again"};
}

std::string ended_since(const std::vector<RankRecord>& records, const std::vector<int>& lost) {
  if (lost.empty()) return "";
  return fmt::format("; {} {} ended since", names_of(records, lost), lost.size() == 1 ? "has" : "have");
}

// What else has happened, which silence explains.
std::string meanwhile(const std::vector<RankRecord>& records) {
  std::string text = ended_since(records, ranks_in(records, State::kLost));
  if (const std::vector<int> failed = ranks_in(records, State::kFailed); !failed.empty()) {
    const RankRecord& first = reporter(records, failed);
    text += fmt::format("; rank {} has met an error: {}", first.identity.rank, error_of(first));
  }
  return text;
}

// "node0, node1 and 3 more"
std::string some_names(const std::vector<std::string>& names) {
  constexpr size_t kNamed = 4;
  const std::vector<std::string> first(names.begin(),
                                       names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kNamed)));
  return fmt::format("{}{}", fmt::join(first, ", "),
                     names.size() > kNamed ? fmt::format(" and {} more", names.size() - kNamed) : "");
}

// Who saw the same as the judging rank, and who did not. Empty: nobody else was asked.
std::string seen_by(const Silence& silence) {
  std::string text;
  if (!silence.cut.empty()) text += fmt::format("; {} cannot reach it either", some_names(silence.cut));
  if (!silence.reached.empty()) text += fmt::format("; {} can", some_names(silence.reached));
  return text;
}

Verdict of_silent(const std::vector<RankRecord>& records, const std::vector<int>& silent, const std::string& seen) {
  double quiet = 0;
  for (const int rank : silent) quiet = std::max(quiet, records[static_cast<size_t>(rank)].quiet);
  return {.ranks = silent,
          .reason = fmt::format("{} {} not answered for {:.0f} s {}{}{}", names_of(records, silent),
                                silent.size() == 1 ? "has" : "have", quiet, where_all(records, silent),
                                awaited_by_others(records, silent), seen + meanwhile(records)),
          .remedy = "the process is stopped, or its machine is down, out of memory or cut off: check that machine"};
}

// This side is cut off, or it is not known who is.
Verdict of_cut(const std::vector<RankRecord>& records, const Silence& silence) {
  const double quiet = records[static_cast<size_t>(silence.silent.front())].quiet;
  const std::string at = where_all(records, silence.silent);
  std::vector<std::string> there = silence.there;
  for (const int rank : silence.silent) {
    const std::string& host = records[static_cast<size_t>(rank)].identity.host;
    if (silence.there.empty() && std::find(there.begin(), there.end(), host) == there.end()) there.push_back(host);
  }
  if (silence.state == Silence::State::kCutOff) {
    return {.ranks = silence.ranks,
            .reason = fmt::format("{} had no answer from {} for {:.0f} s {}, so that it is cut off, or was stopped",
                                  some_names(silence.here), some_names(there), quiet, at),
            .remedy = "check the network of that machine"};
  }
  return {.ranks = {},
          .reason = fmt::format(
              "the network between {} and {} is interrupted, or one side is down: no answer for {:.0f} s {}{}",
              some_names(silence.here), some_names(there), quiet, at, seen_by(silence) + meanwhile(records)),
          .remedy = "check the network between these machines"};
}

int num_answering(const std::vector<RankRecord>& records) {
  return static_cast<int>(std::count_if(records.begin(), records.end(), [](const RankRecord& one) {
    return one.reports && (one.state == State::kAnswers || one.state == State::kFailed);
  }));
}

// `later`: ranks that were lost after what the verdict is about.
Verdict founded(const std::vector<RankRecord>& records, Verdict verdict, const std::vector<int>& later = {}) {
  verdict.reason += ended_since(records, later);
  verdict.foundation = num_answering(records);
  return verdict;
}

}  // namespace

Verdict find_culprits(const std::vector<RankRecord>& records, const std::optional<Silence>& silence) {
  if (silence && silence->state == Silence::State::kFounded) {
    return founded(records, of_silent(records, silence->ranks, seen_by(*silence)));
  }
  if (silence) return of_cut(records, *silence);
  const std::vector<int> later = lost_ranks(records, /*first=*/false);
  if (const std::vector<int> lost = lost_ranks(records, /*first=*/true); !lost.empty()) {
    return founded(records, of_lost(records, lost), later);
  }
  if (const std::vector<int> silent = ranks_in(records, State::kSilent); !silent.empty()) {
    return founded(records, of_silent(records, silent, ""));
  }
  if (const std::vector<int> failed = ranks_in(records, State::kFailed); !failed.empty()) {
    return founded(records, of_failed(records, failed), later);
  }
  // The rank that had met an error has left.
  if (!later.empty()) return unclear_cause(records, /*unheard=*/{});
  return founded(records, stuck(records));
}

Verdict named_culprits(const std::vector<RankRecord>& records) {
  return founded(records, of_failed(records, ranks_in(records, State::kFailed)));
}

Verdict most_ranks_gone(const std::vector<RankRecord>& records) {
  std::vector<int> gone = ranks_in(records, State::kLost);
  const std::vector<int> ended = ranks_in(records, State::kEnded);
  gone.insert(gone.end(), ended.begin(), ended.end());
  return {.ranks = {},
          .reason = fmt::format("{} of the {} ranks have ended {}, and it is not known which of them caused it",
                                gone.size(), records.size(), where_all(records, gone)),
          .remedy = "look for the cause in the output before this"};
}

Verdict unclear_cause(const std::vector<RankRecord>& records, const std::vector<int>& unheard) {
  const std::vector<int> lost = lost_ranks(records, /*first=*/true);
  const std::vector<int> failed = ranks_in(records, State::kFailed);
  std::string what = "the run makes no progress";
  if (!lost.empty()) {
    what = fmt::format("{} ended without reporting an error {}", names_of(records, lost), where_all(records, lost));
  } else if (!failed.empty()) {
    const RankRecord& first = reporter(records, failed);
    what = fmt::format("rank {} has met an error: {}", first.identity.rank, error_of(first));
  }
  what += ended_since(records, lost_ranks(records, /*first=*/false));
  if (!unheard.empty()) {
    what += fmt::format(", but {} {} not answered since, and may be the cause", names_of(records, unheard),
                        unheard.size() == 1 ? "has" : "have");
  }
  return {
      .ranks = {}, .reason = what, .remedy = "look for the cause in the output before this, and check these machines"};
}

}  // namespace mpzero
