#include "app/checkpoint_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "app/checkpoint/checkpoint_facts.hpp"
#include "base/command_line/command_flags.hpp"
#include "base/error.hpp"
#include "base/output.hpp"
#include "base/text/printable.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/run_record.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/checkpoint_dir/catalog.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/locks/folder_lock.hpp"

namespace mpzero {

namespace fs = std::filesystem;

namespace {

constexpr double kGigabyte = 1e9;
constexpr double kMegabyte = 1e6;

std::string show_size(int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  return size >= kGigabyte ? fmt::format("{:.2f} GB", size / kGigabyte) : fmt::format("{:.2f} MB", size / kMegabyte);
}

// Prints rows with aligned columns. The first row is the heading.
void print_table(std::vector<std::vector<std::string>> rows) {
  std::vector<size_t> widths(rows.front().size());
  for (auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = printable(row[i]);
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += i + 1 == row.size() ? row[i] : fmt::format("{:<{}}  ", row[i], widths[i]);
    }
    print_out("{}\n", line);
  }
}

struct Arguments {
  fs::path folder;
  fs::path other;  // only for diff
  std::string tag;
  std::optional<int64_t> keep_last;
  std::optional<std::string> run;  // prefix of an id, or "none"
  bool dry_run = false;
};

Arguments parse(const std::string& command, const std::vector<std::string>& arguments) {
  Arguments parsed;
  std::vector<CommandFlag> flags = {{.name = "tag", .value = text(parsed.tag), .letter = "t"}};
  if (command == "prune") {
    flags.push_back({"keep_last", integer(parsed.keep_last, 1)});
    flags.push_back({"run", text(parsed.run)});
    flags.push_back({"dry_run", switch_on(parsed.dry_run)});
  }
  const size_t most = command == "diff" ? 2 : 1;
  const std::vector<std::string> folders = read_flags_of("mpzero checkpoint " + command, arguments, flags, most);
  if (folders.size() < most) {
    throw_user_error("mpzero checkpoint {0} requires {1}, e.g. `mpzero checkpoint {0} {2}`", command,
                     most == 2 ? "two folders" : "a folder of checkpoints", most == 2 ? "A B" : "checkpoints");
  }
  parsed.folder = folders.front();
  if (most == 2) parsed.other = folders.back();
  for (const fs::path& folder : {parsed.folder, parsed.other}) {
    if (!folder.empty() && !fs::is_directory(folder)) {
      throw_user_error("folder {} does not exist; check the path", folder.string());
    }
  }
  return parsed;
}

// Returns the checkpoint in `latest`; std::nullopt and a `problem` if it is missing or invalid.
std::optional<fs::path> latest_of(const fs::path& folder, std::string& problem) {
  try {
    return io::latest_checkpoint(folder);
  } catch (const UserError& error) {
    problem = error.what();
    return std::nullopt;
  }
}

// Returns the run ids recorded in the manifests of the checkpoints.
std::set<std::string> runs_of(const std::vector<io::CatalogEntry>& entries) {
  std::set<std::string> runs;
  for (const io::CatalogEntry& entry : entries) {
    if (entry.run_id) runs.insert(*entry.run_id);
  }
  return runs;
}

struct Found {
  std::string problem;             // error message; empty: none
  bool is_damage = false;          // false: system error or newer format
  const char* change = nullptr;    // concurrent change; the checkpoint is then neither good nor damaged
  std::vector<std::string> notes;  // other messages

  bool good() const { return problem.empty() && change == nullptr; }
};

// Opens a checkpoint and calls `read`. A run may concurrently save and remove checkpoints.
Found look_at(const fs::path& folder, const std::function<void(const io::StoredCheckpoint&)>& read) {
  Found found;
  try {
    io::read_checkpoint([&] { return folder; }, read, [&](const std::string& what) { found.notes.push_back(what); });
  } catch (const io::ReplacedWhileRead& replaced) {
    found.notes.clear();
    if (replaced.change() == io::OpenFolder::Change::kRemoved) {
      found.change = "removed while being read";
    } else {
      found.change = "replaced while being read";
      found.problem = replaced.what();
    }
  } catch (const Damaged& error) {
    found.problem = error.what();
    found.is_damage = true;
  } catch (const Error& error) {
    found.problem = error.what();
  }
  return found;
}

Found verify(const fs::path& folder) {
  return look_at(folder, [](const io::StoredCheckpoint& stored) { stored.verify(); });
}

void list(const fs::path& run, const std::vector<io::CatalogEntry>& entries) {
  std::string problem_of_latest;
  const std::optional<fs::path> latest = latest_of(run, problem_of_latest);
  const bool shows_run = runs_of(entries).size() > 1;
  std::vector<std::vector<std::string>> rows = {{"checkpoint", "step", "saved at", "size", "dtype", "ZeRO", "state"}};
  if (shows_run) rows.front().insert(rows.front().end() - 1, "run");
  std::vector<std::string> problems;
  for (const io::CatalogEntry& entry : entries) {
    std::vector<std::string> row = {
        entry.tag, "?", entry.saved_at.empty() ? "?" : entry.saved_at, show_size(entry.bytes), "?", "?"};
    // Checks again, since a run may have replaced the files after list_checkpoints().
    const Found found = look_at(entry.folder, [&](const io::StoredCheckpoint& stored) {
      row[1] = std::to_string(stored.progress().step);
      row[4] = stored.progress().dtype;
      row[5] = std::to_string(stored.progress().zero_stage);
    });
    std::string state = "complete";
    if (found.change) {
      state = found.change;
    } else if (!found.good()) {
      state = !found.is_damage ? "cannot be read" : entry.has_manifest ? "damaged" : "unfinished or damaged";
    }
    if (entry.folder == latest) state += ", latest";
    if (shows_run) row.push_back(entry.run_id ? io::short_run_id(*entry.run_id) : "?");
    row.push_back(state);
    rows.push_back(row);
    if (!found.problem.empty()) problems.push_back(found.problem);
  }
  if (rows.size() == 1) {
    print_out("{} contains no checkpoints\n", run.string());
  } else {
    print_table(rows);
  }
  if (!problem_of_latest.empty()) problems.push_back(problem_of_latest);
  for (const std::string& problem : problems) print_out("\n{}\n", problem);
}

int list_command(const Arguments& arguments) {
  const std::vector<io::CatalogEntry> entries = io::list_checkpoints(arguments.folder);
  if (entries.empty()) io::refuse_foreign(io::OpenFolder(arguments.folder));
  const std::vector<fs::path> runs = entries.empty() ? io::runs_in(arguments.folder) : std::vector<fs::path>{};
  if (runs.empty()) list(arguments.folder, entries);
  for (const fs::path& run : runs) {
    if (run != runs.front()) print_out("\n");
    print_out("{}:\n", run.string());
    list(run, io::list_checkpoints(run));
  }
  return 0;
}

int verify_command(const Arguments& arguments) {
  struct Checked {
    std::string name;
    fs::path folder;
  };
  std::vector<Checked> to_check;
  if (!arguments.tag.empty() || io::looks_like_checkpoint(arguments.folder)) {
    const fs::path folder = io::find_checkpoint(arguments.folder, arguments.tag);
    to_check.push_back({folder.filename().string(), folder});
  } else {
    for (const io::CatalogEntry& entry : io::list_checkpoints(arguments.folder)) {
      to_check.push_back({entry.tag, entry.folder});
    }
  }
  if (to_check.empty()) io::refuse_foreign(io::OpenFolder(arguments.folder));
  if (to_check.empty()) {
    throw_user_error("{} contains no checkpoints; {}", arguments.folder.string(),
                     io::suggest_runs(arguments.folder, "check the path"));
  }
  std::vector<std::vector<std::string>> rows = {{"checkpoint", "size", "read rate", "state"}};
  std::vector<std::string> problems;
  std::vector<std::string> notes;
  {
    ProgressBar bar("Verifying", static_cast<int64_t>(to_check.size()));
    for (const auto& [name, folder] : to_check) {
      bar.update(static_cast<int64_t>(rows.size()) - 1, name);
      const int64_t bytes = io::files_in(folder).bytes;
      const auto start = std::chrono::steady_clock::now();
      const Found found = verify(folder);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      rows.push_back({name, show_size(bytes),
                      found.good() ? fmt::format("{:.2f} GB/s", static_cast<double>(bytes) / kGigabyte / seconds)
                                   : std::string("-"),
                      found.good()      ? "good"
                      : found.change    ? found.change
                      : found.is_damage ? "damaged"
                                        : "cannot be read"});
      notes.insert(notes.end(), found.notes.begin(), found.notes.end());
      if (!found.problem.empty()) problems.push_back(found.problem);
    }
  }
  print_table(rows);
  for (const std::string& sentence : notes) print_out("\n{}\n", sentence);
  for (const std::string& problem : problems) print_out("\n{}\n", problem);
  return problems.empty() ? 0 : kFailureExitCode;
}

struct FactsOf {
  fs::path checkpoint;
  std::vector<CheckpointFact> facts;
};

// Reads the checkpoint `folder`, or the checkpoint `tag` (default: `latest`) in this folder.
FactsOf read_facts(const fs::path& folder, const std::string& tag) {
  FactsOf found;
  io::read_checkpoint([&] { return found.checkpoint = io::find_checkpoint(folder, tag); },
                      [&](const io::StoredCheckpoint& stored) { found.facts = checkpoint_facts(stored); },
                      [](const std::string& what) { print_err("{}\n", what); });
  return found;
}

int show(const Arguments& arguments) {
  const FactsOf found = read_facts(arguments.folder, arguments.tag);
  print_out("{}\n", found.checkpoint.string());
  for (const std::string& line : describe_facts(found.facts)) print_out("{}\n", line);
  return 0;
}

// Same exit statuses as diff(1): 1 for differences, 2 for an unreadable checkpoint.
int diff(const Arguments& arguments) {
  constexpr int kDifferent = 1;
  try {
    const FactsOf a = read_facts(arguments.folder, arguments.tag), b = read_facts(arguments.other, arguments.tag);
    const std::vector<std::array<std::string, 3>> differences = different_facts(a.facts, b.facts);
    if (differences.empty()) return 0;
    std::vector<std::vector<std::string>> rows = {{"", a.checkpoint.string(), b.checkpoint.string()}};
    for (const auto& [key, of_a, of_b] : differences) rows.push_back({key, of_a, of_b});
    print_table(rows);
    return kDifferent;
  } catch (const Failure& error) {
    throw UserError(error.what());
  }
}

// Returns the id of the run to prune: --run or, by default, the run of the newest checkpoint.
std::string run_to_prune(const Arguments& arguments, const std::vector<io::CatalogEntry>& newest_first) {
  const std::set<std::string> runs = runs_of(newest_first);
  if (!arguments.run) {
    std::string ignored;
    if (const std::optional<fs::path> latest = latest_of(arguments.folder, ignored)) {
      for (const io::CatalogEntry& entry : newest_first) {
        if (entry.folder == *latest && entry.run_id) return *entry.run_id;
      }
    }
    for (const io::CatalogEntry& entry : newest_first) {
      if (entry.run_id) return *entry.run_id;
    }
    return "";
  }
  std::vector<std::string> found;
  for (const std::string& id : runs) {
    if (id.empty() ? arguments.run == "none" : !arguments.run->empty() && id.starts_with(*arguments.run))
      found.push_back(id);
  }
  if (found.size() == 1) return found.front();
  throw_user_error("--run {}: {} runs in {} match this id; choose an id from `mpzero checkpoint ls`", *arguments.run,
                   found.empty() ? "no" : std::to_string(found.size()), arguments.folder.string());
}

int prune(const Arguments& arguments) {
  if (!arguments.keep_last) {
    throw_user_error("mpzero checkpoint prune requires --keep_last N, the number of good checkpoints to keep");
  }
  if (io::list_checkpoints(arguments.folder).empty() && !io::runs_in(arguments.folder).empty()) {
    throw_user_error("{} contains no checkpoints; {}", arguments.folder.string(),
                     io::suggest_runs(arguments.folder, ""));
  }
  io::FolderLock lock(arguments.folder, {.purpose = io::FolderLock::Purpose::kPruning,
                                         .say = [](const std::string& line) { print_out("{}\n", line); },
                                         .warn = [](const std::string& line) { print_err("warning: {}\n", line); }});
  std::vector<io::CatalogEntry> entries = io::list_checkpoints(arguments.folder);
  const std::string run = run_to_prune(arguments, entries);
  // If the folder contains checkpoints of several models, N applies to each model.
  std::map<std::string, std::vector<io::CatalogEntry>> of_model;
  for (io::CatalogEntry& entry : entries) {
    if (entry.run_id.value_or(run) != run) {
      print_out("skipped: {} ({})\n", entry.folder.string(), io::show_run(*entry.run_id));
    } else if (entry.step) {
      of_model[entry.tag.substr(0, entry.tag.rfind('-'))].push_back(std::move(entry));
    }
  }
  std::vector<fs::path> doomed;
  for (const auto& [model, entries] : of_model) {
    for (const io::CatalogEntry& entry : entries) {
      if (!entry.problem.empty()) print_out("not counted as a good checkpoint: {}\n", entry.problem);
    }
    for (const fs::path& folder :
         io::checkpoints_to_prune(arguments.folder, entries, *arguments.keep_last, [](const io::CatalogEntry& entry) {
           const Found found = verify(entry.folder);
           if (!found.problem.empty()) print_out("not counted as a good checkpoint: {}\n", found.problem);
           return found.good();
         })) {
      doomed.push_back(folder);
    }
  }
  std::vector<io::Leftover> left;
  for (const fs::path& folder : doomed) {
    if (!arguments.dry_run) lock.check();
    const std::vector<io::Leftover> stays =
        arguments.dry_run ? std::vector<io::Leftover>{} : io::remove_checkpoints({folder}, run);
    if (stays.empty()) print_out("{} {}\n", arguments.dry_run ? "would remove" : "removed", folder.string());
    left.insert(left.end(), stays.begin(), stays.end());
  }
  if (!arguments.dry_run) {
    lock.check();
    const io::CleanUp cleaned = io::clean_up(arguments.folder);
    for (const std::string& name : cleaned.removed) print_out("removed unfinished {}\n", name);
    left.insert(left.end(), cleaned.left.begin(), cleaned.left.end());
  }
  std::set<fs::path> named;
  for (const io::Leftover& leftover : left) {
    if (named.insert(leftover.path).second) print_err("not removed: {}\n", leftover.problem);
  }
  if (doomed.empty()) print_out("no checkpoints to remove: no run has more than {} good ones\n", *arguments.keep_last);
  return left.empty() ? 0 : kFailureExitCode;
}

}  // namespace

std::string checkpoint_command_help() {
  return "Usage: mpzero checkpoint COMMAND DIR\n\n" +
         in_columns(
             {{"ls DIR",
               "list the checkpoints of DIR, or of each run in DIR, newest first. State \"complete\": all files in the "
               "manifest exist and have the recorded sizes"},
              {"verify DIR [-t TAG]",
               "verify the checksums of all checkpoints, or only of TAG; status 1 if any is damaged"},
              {"show DIR [-t TAG]", "print the run, step, model, settings and layout of a checkpoint"},
              {"diff A B",
               "compare two checkpoints, excluding their weights: status 0 if equal, 1 if different, 2 if unreadable. "
               "For a folder of checkpoints, diff reads the latest checkpoint"},
              {"prune DIR --keep_last N [--run ID] [--dry_run]",
               "remove unfinished saves and all but the newest N good checkpoints of a run. --run: ID from ls, or none "
               "for checkpoints without an ID (default: the run of the newest checkpoint). --dry_run lists the "
               "checkpoints without removing them"}},
             23);
}

int checkpoint_command(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments.front();
  if (std::ranges::any_of(arguments, asks_for_help)) {
    write_output(Output::kStdout, checkpoint_command_help());
    return 0;
  }
  const std::map<std::string, std::function<int(const Arguments&)>> commands = {
      {"ls", list_command}, {"verify", verify_command}, {"show", show}, {"diff", diff}, {"prune", prune}};
  const auto found = commands.find(command);
  if (found == commands.end()) {
    throw_user_error("{} of mpzero checkpoint; use ls, verify, show, diff or prune (see `mpzero checkpoint --help`)",
                     command.empty() ? "pass a command" : fmt::format("\"{}\" is not a command", command));
  }
  return found->second(parse(command, {arguments.begin() + 1, arguments.end()}));
}

}  // namespace mpzero
