#include "app/watchdog/evidence.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/output.hpp"
#include "base/text/printable.hpp"
#include "base/text/times.hpp"
#include "io/files/atomic_file.hpp"
#include "parallel/mpi/deadline.hpp"

namespace mpzero {
namespace {

using nlohmann::ordered_json;
using parallel::ChannelRecord;
using parallel::CollectiveRecord;
using parallel::CollectiveState;

constexpr std::chrono::milliseconds kPrintLimit(1000);

const char* name_of(Why why) {
  constexpr std::array kNames = {"error", "user_error", "stuck", "signal", "communicator_error", "device_error",
                                 "neighbour_lost"};
  return kNames[static_cast<size_t>(why)];
}

const char* name_of(CollectiveState state) {
  constexpr std::array kNames = {"queued", "started", "completed"};
  return kNames[static_cast<size_t>(state)];
}

std::vector<int> members(const parallel::RankGroup& group) {
  std::vector<int> ranks;
  for (int i = 0; i < group.count; ++i) ranks.push_back(group.first + i * group.stride);
  return ranks;
}

ordered_json to_json(const ChannelRecord& channel, const std::string& name) {
  return {{"communicator", name},
          {"group", members(channel.ranks)},
          {"queued", channel.queued},
          {"started", channel.started},
          {"completed", channel.completed}};
}

ordered_json channels_json(const std::vector<ChannelRecord>& channels) {
  ordered_json all = ordered_json::array();
  for (const ChannelRecord& channel : channels) {
    ordered_json one = to_json(channel, channel.name);
    one["last"] = ordered_json::array();
    for (const CollectiveRecord& last : channel.last) {
      one["last"].push_back({{"number", last.sequence},
                             {"collective", last.operation},
                             {"bytes", last.bytes},
                             {"state", name_of(last.state)},
                             {"seconds", last.seconds}});
    }
    all.push_back(std::move(one));
  }
  return all;
}

ordered_json neighbors_json(const Evidence& evidence) {
  ordered_json all = ordered_json::array();
  for (const Neighbor& one : evidence.neighbors) {
    ordered_json channels = ordered_json::array();
    for (size_t i = 0; i < one.channels.size(); ++i) {
      channels.push_back(to_json(one.channels[i], i < evidence.channels.size() ? evidence.channels[i].name : ""));
    }
    all.push_back({{"rank", one.rank},
                   {"pid", one.pid},
                   {"alive", one.alive},
                   {"left", one.has_left},
                   {"exit_status", one.exit_status ? ordered_json(*one.exit_status) : ordered_json()},
                   {"phase", name_of(one.phase)},
                   {"step", one.step},
                   {"seconds_since_progress", one.idle},
                   {"seconds_since_turn", one.since_turn},
                   {"last_collectives", std::move(channels)}});
  }
  return all;
}

ordered_json awaited_json(const std::vector<ChannelRecord>& channels) {
  const std::optional<Awaited> waits = awaited(channels);
  if (!waits) return nullptr;
  return {{"collective", waits->collective->operation}, {"number", waits->collective->sequence},
          {"communicator", waits->channel->name},       {"group", members(waits->channel->ranks)},
          {"bytes", waits->collective->bytes},          {"seconds", waits->collective->seconds}};
}

std::string show_bytes(int64_t bytes) {
  double value = static_cast<double>(bytes);
  const char* shown = "B";
  for (const char* unit : {"KiB", "MiB", "GiB"}) {
    if (value < 1024) break;
    value /= 1024;
    shown = unit;
  }
  return fmt::format("{:.{}f} {}", value, *shown == 'B' ? 0 : 1, shown);
}

std::string text_of(const std::filesystem::path& file) {
  constexpr int64_t kMostBytes = int64_t{1} << 20;
  try {
    return io::read_text_file(file, kMostBytes);
  } catch (const Error&) {
    return "";
  }
}

// The sentence in the evidence of the rank that wrote `first`.
std::string reason_of(const std::filesystem::path& folder, int rank) {
  try {
    return parse_json(text_of(folder / fmt::format("rank_{}.json", rank)), kLineLimits).at("reason").get<std::string>();
  } catch (const nlohmann::json::exception&) {
    return "";
  } catch (const JsonError&) {
    return "";
  }
}

// Throws if the folder cannot be written.
EvidenceWriter::Outcome write_into(const std::filesystem::path& folder, const StartRanks& start,
                                   const std::string& start_text, const std::string& text, bool claims) {
  if (!text.empty()) {
    std::filesystem::create_directories(folder);
    if (!io::path_exists(folder / "start.json")) {
      io::replace_text_file(folder / "start.json", start_text, io::disk(), io::Synced::kNo);
    }
    io::replace_text_file(folder / fmt::format("rank_{}.json", start.rank), text, io::disk(), io::Synced::kNo);
  }
  const std::filesystem::path first = folder / "first";
  if (claims) {
    try {
      io::File file = io::File::create_new(first);
      const std::string rank = fmt::format("{}\n", start.rank);
      file.write(0, std::as_bytes(std::span(rank)));
      return {.first = start.rank, .reason = {}};
    } catch (const Error& error) {
      if (error.system_error() != EEXIST) throw;
    }
  }
  const std::string rank = text_of(first);
  if (rank.empty()) return {.first = EvidenceWriter::kNobody, .reason = {}};
  const int number = std::atoi(rank.c_str());
  return {.first = number, .reason = reason_of(folder, number)};
}

}  // namespace

std::string json_text(const ordered_json& json) {
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::optional<Awaited> awaited(const std::vector<ChannelRecord>& channels) {
  std::optional<Awaited> oldest;
  for (const ChannelRecord& channel : channels) {
    for (const CollectiveRecord& one : channel.last) {
      if (one.sequence != channel.completed + 1 || one.state == CollectiveState::kCompleted) continue;
      if (!oldest || one.seconds > oldest->collective->seconds) oldest = Awaited{&channel, &one};
    }
  }
  return oldest;
}

ordered_json evidence_json(const Evidence& evidence, const StartRanks& start, const ordered_json& host_condition) {
  const RankActivity::Report& activity = evidence.activity;
  return {{"version", 1},
          {"start", start.id},
          {"rank", start.rank},
          {"host", start.hosts.at(static_cast<size_t>(start.rank))},
          {"pid", start.pids.at(static_cast<size_t>(start.rank))},
          {"time", seconds_since_1970()},
          {"why", name_of(evidence.why)},
          {"error", evidence.error},
          {"reason", describe(evidence, start)},
          {"culprits", evidence.culprits},
          {"exit_status", evidence.exit_status},
          {"phase", name_of(activity.phase)},
          {"step", activity.step},
          {"seconds_in_phase", activity.seconds_in_phase},
          {"seconds_since_progress", activity.idle},
          {"limit", activity.limit},
          {"waiting_for", awaited_json(evidence.channels)},
          {"last_collectives", channels_json(evidence.channels)},
          {"watchdog_gap_seconds", activity.gap},
          {"host_condition", host_condition},
          {"neighbours", neighbors_json(evidence)}};
}

ordered_json start_json(const StartRanks& start) {
  return {{"version", 1},          {"start", start.id},      {"job", start.job},
          {"restart", start.restart}, {"ranks", start.hosts.size()}, {"started", start.time},
          {"hosts", start.hosts},  {"local_ranks", start.local_ranks}, {"pids", start.pids}};
}

std::string describe(const Evidence& evidence, const StartRanks& start) {
  const auto name = [&](int rank) {
    return fmt::format("rank {} on {} (pid {})", rank, start.hosts.at(static_cast<size_t>(rank)),
                       start.pids.at(static_cast<size_t>(rank)));
  };
  if (evidence.why == Why::kUserError) return fmt::format("rank {}: {}", start.rank, printable(evidence.error));
  const std::string where = describe(evidence.activity.phase, evidence.activity.step);
  if (evidence.why != Why::kStuck) {
    const int rank = evidence.culprits.empty() ? start.rank : evidence.culprits.front();
    return fmt::format("{}, {}: {}", name(rank), where, printable(evidence.error));
  }
  std::string text = fmt::format("{} has made no progress for {:.0f} s {}", name(start.rank), evidence.activity.idle, where);
  if (const std::optional<Awaited> waits = awaited(evidence.channels)) {
    text += fmt::format(", waiting in {} {} of {} ({})", waits->collective->operation, waits->collective->sequence,
                        waits->channel->name, show_bytes(waits->collective->bytes));
  }
  if (!evidence.error.empty()) text += ": " + printable(evidence.error);
  return text;
}

void print_error(const std::string& text) {
  parallel::no_longer_than(kPrintLimit, [text] { write_output(Output::kStderr, text); });
}

std::filesystem::path EvidenceWriter::folder_in(const std::filesystem::path& folder) const {
  return folder / "failures" / start_.id;
}

EvidenceWriter::Outcome EvidenceWriter::write(const std::string& text, bool claims) const {
  struct Answer {
    std::mutex mutex;
    std::optional<Outcome> outcome;
  };
  for (const std::filesystem::path& folder : folders_) {
    const auto answer = std::make_shared<Answer>();
    // The helper thread may outlive this object.
    const auto work = [=, path = folder_in(folder), start = start_, start_text = json_text(start_json(start_))] {
      try {
        Outcome outcome = write_into(path, start, start_text, text, claims);
        const std::lock_guard lock(answer->mutex);
        answer->outcome = std::move(outcome);
      } catch (const std::exception&) {  // the next folder is tried
      }
    };
    parallel::no_longer_than(kDiskLimit, work);
    const std::lock_guard lock(answer->mutex);
    if (answer->outcome) return *answer->outcome;
  }
  if (!text.empty()) print_error(fmt::format("mpzero: evidence: {}\n", parse_json(text, kLineLimits).dump()));
  return {};
}

void EvidenceWriter::remove() const {
  if (folders_.empty()) return;
  parallel::no_longer_than(kDiskLimit, [folder = folder_in(folders_.front())] {
    std::error_code none;
    if (std::filesystem::exists(folder / "first", none)) return;
    std::filesystem::remove_all(folder, none);
    std::filesystem::remove(folder.parent_path(), none);  // unless another start's is there
  });
}

}  // namespace mpzero
