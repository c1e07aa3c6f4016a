#include "app/watchdog/evidence.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "app/health/gpu_condition.hpp"
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
  constexpr std::array kNames = {"error",  "shared_error",       "user_error",  "stuck",
                                 "signal", "communicator_error", "device_error"};
  return kNames[static_cast<size_t>(why)];
}

std::string text_of(const ordered_json& json) {
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
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
                   {"exit_status", one.exit_status ? ordered_json(*one.exit_status) : ordered_json()},
                   {"phase", name_of(one.activity.phase)},
                   {"step", one.activity.step},
                   {"seconds_since_progress", one.activity.idle},
                   {"quiet", one.quiet},
                   {"channels", to_json(one.channels)}});
  }
  return all;
}

// Returns the first line that starts with `key`; empty if there is none.
std::string line_of(const std::filesystem::path& file, std::string_view key) {
  std::ifstream text(file);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with(key)) return line;
  }
  return "";
}

// Returns the last kernel messages of NVIDIA's driver about GPU errors. Access may require privileges.
std::vector<std::string> xid_messages(const std::filesystem::path& file) {
  constexpr size_t kKept = 8;
  std::vector<std::string> found;
  const int log = open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (log < 0) return found;
  std::array<char, 8192> record{};  // each read() returns one message
  for (ssize_t size = 0; (size = read(log, record.data(), record.size())) > 0;) {
    const std::string_view line(record.data(), static_cast<size_t>(size));
    const size_t at = line.find("NVRM: Xid");
    if (at == std::string_view::npos) continue;
    found.emplace_back(line.substr(at, line.find('\n', at) - at));
    if (found.size() > kKept) found.erase(found.begin());
  }
  close(log);
  return found;
}

ordered_json read_condition(at::Device device, const std::filesystem::path& root) {
  return {{"memory_available", line_of(root / "proc/meminfo", "MemAvailable:")},
          {"memory_pressure", line_of(root / "proc/pressure/memory", "some")},
          {"oom_kills", line_of(root / "proc/vmstat", "oom_kill ")},
          {"xid", xid_messages(root / "dev/kmsg")},
          {"gpu", gpu_condition(device)}};
}

// Describes the collective in which the rank has waited longest; empty if there is none.
std::string awaited(const std::vector<ChannelRecord>& channels) {
  double longest = -1;
  std::string text;
  for (const ChannelRecord& channel : channels) {
    for (const CollectiveRecord& one : channel.last) {
      if (one.sequence != channel.completed + 1 || one.seconds <= longest) continue;
      longest = one.seconds;
      text = fmt::format(", waiting in {} {} of {}", one.operation, one.sequence, channel.name);
    }
  }
  return text;
}

// `is_shared`: other users can write to the folder, as in /tmp, so their files are ignored.
EvidenceWriter::First read_first_in(const std::filesystem::path& folder, bool is_shared) {
  const int file = open((folder / "first").c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY);
  if (file < 0) return {};
  std::string text(1 << 16, '\0');
  struct stat status {};
  const bool is_own = fstat(file, &status) == 0 && (!is_shared || status.st_uid == geteuid());
  text.resize(static_cast<size_t>(std::max(is_own ? read(file, text.data(), text.size()) : 0, ssize_t{0})));
  close(file);
  const size_t end = text.find('\n');
  int rank = -1;
  const auto [read, error] = std::from_chars(text.data(), text.data() + std::min(end, text.size()), rank);
  // The file is being written, or another program has written it.
  if (end == std::string::npos || error != std::errc() || read != text.data() + end || rank < 0) return {};
  return {.rank = rank, .reason = text.substr(end + 1, text.find('\n', end + 1) - end - 1)};
}

// Throws if the folder is not writable.
void write_start(const std::filesystem::path& folder, const StartRanks& start) {
  const std::filesystem::path all = folder.parent_path(), place = all.parent_path();
  std::filesystem::create_directories(place);
  // Use the permissions of the parent: in /tmp, the runs of all users share this folder.
  if (std::filesystem::create_directory(all)) {
    std::error_code none;  // some file systems have no permissions
    std::filesystem::permissions(all, std::filesystem::status(place).permissions(), none);
  }
  std::filesystem::create_directory(folder);
  if (io::path_exists(folder / "start.json")) return;
  const ordered_json json = {{"version", 1},
                             {"start", start.id},
                             {"job", start.job},
                             {"restart", start.restart},
                             {"launch", start.launch},
                             {"checkpoint_dir", start.checkpoint_dir},
                             {"ranks", start.hosts.size()},
                             {"started", start.time},
                             {"hosts", start.hosts},
                             {"pids", start.pids}};
  io::replace_text_file(folder / "start.json", text_of(json), io::disk(), io::Synced::kNo);
}

EvidenceWriter::First write_into(const std::filesystem::path& folder, const StartRanks& start,
                                 const ordered_json& evidence, bool claims, bool is_shared) {
  write_start(folder, start);
  const std::filesystem::path own = folder / fmt::format("rank_{}.json", start.rank);
  io::replace_text_file(own, text_of(evidence), io::disk(), io::Synced::kNo);
  if (!claims) return read_first_in(folder, is_shared);
  try {
    io::File file = io::File::create_new(folder / "first");
    const auto reason = evidence.at("reason").get<std::string>();
    const std::string text = fmt::format("{}\n{}\n", start.rank, reason);
    file.write(0, std::as_bytes(std::span(text)));
    return {.rank = start.rank, .reason = reason};
  } catch (const Error& error) {
    if (error.system_error() != EEXIST) throw;
    return read_first_in(folder, is_shared);
  }
}

}  // namespace

ordered_json host_condition(at::Device device, const std::filesystem::path& root) {
  // The driver may not respond if a GPU has failed.
  constexpr std::chrono::seconds kLimit(2);
  return parallel::answer_within(kLimit, [device, root] { return read_condition(device, root); })
      .value_or(ordered_json::object());
}

ordered_json evidence_json(const Evidence& evidence, const StartRanks& start, const ordered_json& host_condition) {
  const RankActivity::Report& activity = evidence.activity;
  return {{"version", 1},
          {"start", start.id},
          {"rank", start.rank},
          {"host", start.hosts.at(static_cast<size_t>(start.rank))},
          {"pid", start.pids.at(static_cast<size_t>(start.rank))},
          {"time", evidence.time},
          {"why", name_of(evidence.why)},
          {"provisional", evidence.provisional},
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
  parallel::no_longer_than(kPrintLimit, print);
}

std::filesystem::path EvidenceWriter::folder_in(const std::filesystem::path& folder) const {
  return folder / "failures" / start_.id;
}

EvidenceWriter::Outcome EvidenceWriter::write(const Evidence& evidence, const ordered_json& host_condition,
                                              bool claims) const {
  const ordered_json json = evidence_json(evidence, start_, host_condition);
  for (const std::filesystem::path& folder : folders_) {
    // The helper thread may outlive this object.
    const auto work = [=, path = folder_in(folder), start = start_, is_shared = folder != folders_.front()] {
      return write_into(path, start, json, claims, is_shared);
    };
    if (const auto first = parallel::answer_within(kDiskLimit, work)) {
      return {.first = *first, .elsewhere = folder == folders_.front() ? "" : folder_in(folder)};
    }
  }
  if (evidence.provisional) return {.is_written = false};
  print_error(fmt::format("mpzero: evidence: {}\n", json.dump(-1, ' ', false, ordered_json::error_handler_t::replace)));
  return {.first = {.rank = start_.rank, .reason = {}}, .is_written = false};
}

EvidenceWriter::First EvidenceWriter::read_first() {
  for (const std::filesystem::path& folder : folders_) {
    if (unresponsive_.contains(folder)) continue;
    const auto first = parallel::answer_within(
        kDiskLimit,
        [path = folder_in(folder), is_shared = folder != folders_.front()] { return read_first_in(path, is_shared); });
    if (!first) unresponsive_.insert(folder);
    if (first && first->rank >= 0) return *first;
  }
  return {};
}

void EvidenceWriter::record_start() const {
  parallel::answer_within(kDiskLimit, [path = folder_in(folders_.front()), start = start_] {
    if (io::path_exists(path.parent_path())) write_start(path, start);
    return true;
  });
}

}  // namespace mpzero
