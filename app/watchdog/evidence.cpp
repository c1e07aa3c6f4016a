#include "app/watchdog/evidence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
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

constexpr std::chrono::milliseconds kPrintLimit(1000);

const char* name_of(Why why) {
  constexpr std::array kNames = {"error", "user_error", "stuck", "signal", "communicator_error", "device_error"};
  return kNames[static_cast<size_t>(why)];
}

ordered_json to_json(const std::vector<ChannelRecord>& channels) {
  ordered_json all = ordered_json::array();
  for (const ChannelRecord& channel : channels) {
    ordered_json last = ordered_json::array();
    for (const CollectiveRecord& one : channel.last) {
      last.push_back({one.sequence, one.operation, one.bytes, static_cast<int>(one.state), one.seconds});
    }
    all.push_back({{"name", channel.name},
                   {"ranks", {channel.ranks.first, channel.ranks.count, channel.ranks.stride}},
                   {"queued", channel.queued},
                   {"started", channel.started},
                   {"completed", channel.completed},
                   {"last", std::move(last)}});
  }
  return all;
}

ordered_json to_json(const std::vector<Neighbor>& neighbors) {
  ordered_json all = ordered_json::array();
  for (const Neighbor& one : neighbors) {
    all.push_back({{"rank", one.rank},
                   {"pid", one.pid},
                   {"alive", one.alive},
                   {"ended", one.has_left},
                   {"exit_status", one.exit_status ? ordered_json(*one.exit_status) : ordered_json()},
                   {"phase", name_of(one.phase)},
                   {"step", one.step},
                   {"seconds_since_progress", one.idle},
                   {"quiet", one.quiet},
                   {"channels", to_json(one.channels)}});
  }
  return all;
}

std::string show_bytes(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  const char* unit = "KMG";
  for (; value >= 1024 && unit[1] != '\0'; value /= 1024) ++unit;
  return fmt::format("{:.1f} {}iB", value, *unit);
}

// Describes the collective in which the rank has waited longest; empty if there is none.
std::string awaited(const std::vector<ChannelRecord>& channels) {
  double longest = -1;
  std::string text;
  for (const ChannelRecord& channel : channels) {
    for (const CollectiveRecord& one : channel.last) {
      if (one.sequence != channel.completed + 1 || one.seconds <= longest) continue;
      longest = one.seconds;
      text = fmt::format(", waiting in {} {} of {} ({})", one.operation, one.sequence, channel.name,
                         show_bytes(one.bytes));
    }
  }
  return text;
}

std::string text_of(const std::filesystem::path& file) {
  constexpr int64_t kMostBytes = int64_t{1} << 20;
  try {
    return io::read_text_file(file, kMostBytes);
  } catch (const Error&) {
    return "";
  }
}

// Returns the reason in the evidence of the rank that wrote `first`.
std::string reason_of(const std::filesystem::path& folder, int rank) {
  try {
    return parse_json(text_of(folder / fmt::format("rank_{}.json", rank)), kLineLimits).at("reason").get<std::string>();
  } catch (const nlohmann::json::exception&) {
    return "";
  } catch (const JsonError&) {
    return "";
  }
}

// Throws if the folder is not writable.
EvidenceWriter::Outcome write_into(const std::filesystem::path& folder, const StartRanks& start,
                                   const std::string& start_text, const std::string& text, bool claims) {
  if (!text.empty()) {
    const std::filesystem::path all = folder.parent_path(), place = all.parent_path();
    std::filesystem::create_directories(place);
    // Use the permissions of the parent: in /tmp, the runs of all users share this folder.
    if (std::filesystem::create_directory(all)) {
      std::error_code none;  // some file systems have no permissions
      std::filesystem::permissions(all, std::filesystem::status(place).permissions(), none);
    }
    std::filesystem::create_directory(folder);
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
  const int number = EvidenceWriter::first_in(folder);
  return {.first = number, .reason = number < 0 ? "" : reason_of(folder, number)};
}

}  // namespace

std::string json_text(const ordered_json& json) {
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

ordered_json evidence_json(const Evidence& evidence, const StartRanks& start, const ordered_json& host_condition) {
  const RankActivity::Report& activity = evidence.activity;
  return {{"version", 1},
          {"start", start.id},
          {"job", start.job},
          {"restart", start.restart},
          {"checkpoint_dir", start.checkpoint_dir},
          {"rank", start.rank},
          {"host", start.hosts.at(static_cast<size_t>(start.rank))},
          {"pid", start.pids.at(static_cast<size_t>(start.rank))},
          {"time", evidence.time},
          {"why", name_of(evidence.why)},
          {"error", evidence.error},
          {"reason", describe(evidence, start)},
          {"culprits", evidence.culprits},
          {"exit_status", evidence.exit_status},
          {"phase", name_of(activity.phase)},
          {"step", activity.step},
          {"seconds_since_progress", activity.idle},
          {"limit", activity.limit},
          {"channels", to_json(evidence.channels)},
          {"watchdog_gap_seconds", activity.gap},
          {"host_condition", host_condition},
          {"neighbours", to_json(evidence.neighbors)}};
}

ordered_json start_json(const StartRanks& start) {
  return {{"version", 1},
          {"start", start.id},
          {"job", start.job},
          {"restart", start.restart},
          {"checkpoint_dir", start.checkpoint_dir},
          {"ranks", start.hosts.size()},
          {"started", start.time},
          {"hosts", start.hosts},
          {"pids", start.pids}};
}

std::string describe(const Evidence& evidence, const StartRanks& start) {
  const std::string error = printable(evidence.error);
  if (evidence.why == Why::kUserError) return fmt::format("rank {}: {}", start.rank, error);
  const RankActivity::Report& activity = evidence.activity;
  const auto rank = static_cast<size_t>(evidence.culprits.empty() ? start.rank : evidence.culprits.front());
  const std::string name = fmt::format("rank {} on {} (pid {})", rank, start.hosts.at(rank), start.pids.at(rank));
  const std::string where = describe(activity.phase, activity.step);
  if (!error.empty()) return fmt::format("{}, {}: {}", name, where, error);
  return fmt::format("{} has made no progress for {:.0f} s {}{}", name, activity.idle, where,
                     awaited(evidence.channels));
}

void print_error(const std::string& text) {
  const auto print = [text] { write_output(Output::kStderr, text); };
  parallel::no_longer_than(kPrintLimit, print, parallel::WithoutThread::kRunInline);
}

int EvidenceWriter::first_in(const std::filesystem::path& folder) {
  const std::string rank = text_of(folder / "first");
  return rank.empty() ? kNobody : std::atoi(rank.c_str());
}

std::filesystem::path EvidenceWriter::folder_in(const std::filesystem::path& folder) const {
  return folder / "failures" / start_.id;
}

EvidenceWriter::Outcome EvidenceWriter::write(const std::string& text, bool claims) const {
  for (const std::filesystem::path& folder : folders_) {
    // The helper thread may outlive this object.
    const auto work = [=, path = folder_in(folder), start = start_, start_text = json_text(start_json(start_))] {
      return write_into(path, start, start_text, text, claims);
    };
    if (auto outcome = parallel::answer_within(kDiskLimit, work, parallel::WithoutThread::kRunInline)) {
      if (folder != folders_.front()) outcome->elsewhere = folder_in(folder);
      return *outcome;
    }
  }
  if (!text.empty()) print_error(fmt::format("mpzero: evidence: {}\n", parse_json(text, kLineLimits).dump()));
  return {};
}

int EvidenceWriter::poll_first() {
  // Long enough for a responsive file system, and short compared with the watchdog's interval.
  constexpr std::chrono::milliseconds kAnswer(20);
  reads_.resize(folders_.size());
  int first = kNobody;
  bool all_answer = true;
  for (size_t i = 0; i < folders_.size(); ++i) {
    std::future<int>& read = reads_[i];
    if (!read.valid()) {
      const auto task = std::make_shared<std::packaged_task<int()>>(
          [read_in = read_first_, folder = folder_in(folders_[i])] { return read_in(folder); });
      read = task->get_future();
      if (!parallel::run_detached([task] { (*task)(); })) read = {};
    }
    if (read.valid() && read.wait_for(kAnswer) == std::future_status::ready) {
      first = std::max(first, read.get());
    } else {
      all_answer = false;
    }
  }
  return first >= 0 || all_answer ? first : kUnknown;
}

void EvidenceWriter::remove() const {
  for (const std::filesystem::path& one : folders_) {
    parallel::no_longer_than(kDiskLimit, [folder = folder_in(one)] {
      std::error_code none;
      if (std::filesystem::exists(folder / "first", none)) return;
      std::filesystem::remove_all(folder, none);
      std::filesystem::remove(folder.parent_path(), none);  // fails if the folder contains evidence of other starts
    });
  }
}

}  // namespace mpzero
