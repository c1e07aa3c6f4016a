// fault_campaign: tries thousands of faults on checkpoints, weights and token files, and on the programs that read and
// write them, and counts the outcomes. Exits with status 1 if one is bad (outcome.hpp).
//
//   --count N         about how many faults of each kind of each target (default: 100)
//   --seed N          the random choice of faults (default: 1)
//   --only NAME       targets, kinds, or one fault, as they are printed: hdf5, hdf5/flip, hdf5/flip/manifest.json@10.3;
//                     may be given several times
//   --workers N       number of parallel processes (default: one per core)
//   --json FILE       writes the counts, and all faults with a bad outcome
//   --show N          how many of those of each kind are printed (default: 3)
//   --tokens FILE     a token file of app/prepare_data.py
//   --source DIR      the repository (default: the one of the build)
//   --scratch DIR     a folder for temporary files; /dev/shm is fast
//   --list            only prints the faults
//   --nightly         does nothing unless NIGHTLY=1 is set
//
// Exits with status 77 if nothing could be tried.
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/faults/campaign.hpp"
#include "tests/faults/report.hpp"
#include "tests/faults/saves.hpp"
#include "tests/faults/targets.hpp"
#include "tests/skip.hpp"

namespace mpzero::faults {
namespace fs = std::filesystem;
namespace {

constexpr int kUsage = 2;

struct Options {
  size_t count = 100;
  uint64_t seed = 1;
  std::vector<std::string> only;
  int workers = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::string json;
  size_t show = 3;
  bool list = false;
  bool nightly = false;
  TargetPlaces places{.source = MPZERO_SOURCE_DIR, .programs = {}, .tokens = {}, .scratch = {}};
};

template <typename Number>
Number number(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw std::invalid_argument(fmt::format("'{}' is not a number", text));
  }
  return value;
}

Options parse(const std::vector<std::string>& words) {
  Options options;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& flag = words[i];
    if (flag == "--list" || flag == "--nightly") {
      (flag == "--list" ? options.list : options.nightly) = true;
      continue;
    }
    if (i + 1 == words.size()) throw std::invalid_argument(flag + " needs a value");
    const std::string& value = words[++i];
    if (flag == "--count") {
      options.count = number<size_t>(value);
    } else if (flag == "--seed") {
      options.seed = number<uint64_t>(value);
    } else if (flag == "--only") {
      options.only.push_back(value);
    } else if (flag == "--workers") {
      options.workers = number<int>(value);
    } else if (flag == "--json") {
      options.json = value;
    } else if (flag == "--show") {
      options.show = number<size_t>(value);
    } else if (flag == "--tokens") {
      options.places.tokens = value;
    } else if (flag == "--source") {
      options.places.source = value;
    } else if (flag == "--scratch") {
      options.places.scratch = value;
    } else {
      throw std::invalid_argument("unknown flag " + flag);
    }
  }
  return options;
}

// A folder that is removed at the end.
class ScratchFolder {
 public:
  explicit ScratchFolder(const fs::path& parent) {
    std::string pattern = (parent.empty() ? fs::temp_directory_path() : parent) / "mpzero-faults-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot create a folder as " + pattern);
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Whether `name` is `asked`, is below it, or contains it.
bool belongs(const std::string& name, const std::string& asked) {
  const std::string& shorter = name.size() < asked.size() ? name : asked;
  const std::string& longer = name.size() < asked.size() ? asked : name;
  return longer.starts_with(shorter) && (longer.size() == shorter.size() || longer[shorter.size()] == '/');
}

void add_faults(std::vector<Fault>& faults, Target& target, const std::string& kind, const Options& options) {
  const std::string name = target.name() + "/" + kind;
  // Independent of the other faults that are tried.
  Random random(options.seed ^ std::hash<std::string>()(name));
  if (options.only.empty()) {
    for (std::string& what : target.faults(kind, options.count, random)) faults.push_back({&target, kind, what});
    return;
  }
  bool all = false;
  for (const std::string& asked : options.only) {
    if (!belongs(name, asked)) continue;
    if (asked.size() > name.size()) {
      faults.push_back({&target, kind, asked.substr(name.size() + 1)});
    } else {
      all = true;
    }
  }
  if (!all) return;
  for (std::string& what : target.faults(kind, options.count, random)) faults.push_back({&target, kind, what});
}

bool is_night() {
  const char* nightly = std::getenv("NIGHTLY");
  return nightly != nullptr && std::string_view(nightly) == "1";
}

int run(const Options& options) {
  if (options.nightly && !is_night()) {
    std::puts("skipped: NIGHTLY=1 is not set");
    return kSkippedExitCode;
  }
  const ScratchFolder scratch(options.places.scratch);
  TargetPlaces places = options.places;
  places.scratch = scratch.path();
  places.programs = fs::read_symlink("/proc/self/exe").parent_path();
  const auto targets = make_targets(places);
  std::vector<Fault> faults;
  for (const auto& target : targets) {
    for (const std::string& kind : target->kinds()) add_faults(faults, *target, kind, options);
  }
  if (options.list) {
    for (const Fault& fault : faults) std::puts(fault.name().c_str());
    return 0;
  }
  if (faults.empty()) throw std::invalid_argument("there is no such fault");
  CampaignOptions campaign;
  campaign.workers = options.workers;
  campaign.scratch = scratch.path();
  const std::vector<Verdict> verdicts = try_faults(faults, campaign);
  std::fputs(table_of(faults, verdicts).c_str(), stdout);
  fmt::print("\n{}", list_of_bad(faults, verdicts, options.show));
  if (faults.size() == 1) fmt::print("{}\n", verdicts.front().note);
  if (!options.json.empty()) write_bytes(options.json, json_of(faults, verdicts, options.seed));
  const size_t bad = count_bad(verdicts);
  fmt::print("{} faults, {} ended badly; seed {}\n", faults.size(), bad, options.seed);
  const bool none_tried = std::all_of(verdicts.begin(), verdicts.end(),
                                      [](const Verdict& verdict) { return verdict.outcome == Outcome::kNotTried; });
  return none_tried ? kSkippedExitCode : bad == 0 ? 0 : 1;
}

}  // namespace
}  // namespace mpzero::faults

int main(int argc, char** argv) {
  try {
    return mpzero::faults::run(mpzero::faults::parse({argv + 1, argv + argc}));
  } catch (const std::exception& error) {
    fmt::print(stderr, "fault_campaign: {}\n", error.what());
    return mpzero::faults::kUsage;
  }
}
