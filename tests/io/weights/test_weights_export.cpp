// The output folder of zero_to_fp32: one export, the former or the new one, whatever happens on the way.

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/host_name.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/locks/export_lock.hpp"
#include "io/weights/weights_export.hpp"
#include "tests/io/checkpoint_fixture.hpp"
#include "tests/io/deadly_disk.hpp"
#include "tests/io/faulty_disk.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

using Names = std::vector<std::string>;
using Contents = std::map<std::string, std::string>;

// A checkpoint that is not on any disk. Its weights encode its generation.
class MadeUpCheckpoint final : public StoredCheckpoint {
 public:
  explicit MadeUpCheckpoint(int generation) : MadeUpCheckpoint(generation, generation) {}
  // rope_theta is a value in its config.json.
  MadeUpCheckpoint(int generation, int rope_theta) : generation_(generation) {
    progress_.step = generation;
    progress_.model_config_json = fmt::format("{{\"rope_theta\": {}}}", rope_theta);
  }
  const fs::path& folder() const override { return folder_; }
  const RunRecord& run() const override { return run_; }
  const TrainingProgress& progress() const override { return progress_; }
  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  void read(const std::string& parameter, StateKind, int64_t begin, std::span<float> out) const override {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>(generation_ * 1000 + begin) + static_cast<float>(i + parameter.size());
    }
  }
  void verify_what_was_read(ProcessGroup&) const override {
    if (damaged) throw_user_error("the checkpoint is damaged");
  }
  void verify() const override {}

  bool damaged = false;
  std::vector<ParameterSpec> parameters_ = {
      {"model.embed_tokens.weight", {16, 8}}, {"layers.0.weight", {32}}, {"layers.1.weight", {40}}};

 private:
  int generation_;
  fs::path folder_ = "checkpoints/tiny-1steps";
  RunRecord run_;
  TrainingProgress progress_;
};

struct Form {
  WeightsFormat format = WeightsFormat::kSafetensors;
  int64_t max_shard_bytes = 5'000'000'000;

  ExportOptions options() const {
    ExportOptions options;
    options.format = format;
    options.max_shard_bytes = max_shard_bytes;
    return options;
  }
};

constexpr int64_t kThreeShards = 200;  // bytes
const std::vector<Form> kForms = {{WeightsFormat::kSafetensors},
                                  {WeightsFormat::kSafetensors, kThreeShards},
                                  {WeightsFormat::kTorch},
                                  {WeightsFormat::kTorch, kThreeShards},
                                  {WeightsFormat::kHdf5}};

// Indices into kForms, of a former and a new export: every change from or to one file, shards, another format.
struct Pair {
  size_t before;
  size_t after;
};
const std::vector<Pair> kPairs = {{0, 0}, {1, 1}, {0, 1}, {1, 0}, {2, 0}, {0, 2}, {3, 1}, {1, 3}, {4, 4}, {4, 0}};

Contents contents_of(const fs::path& folder) {
  Contents contents;
  for (const auto& entry : fs::directory_iterator(folder)) {
    contents[entry.path().filename()] = entry.is_regular_file() ? read_file(entry.path()) : "a folder";
  }
  return contents;
}

// The files of an export of this form.
Contents expected_of(const MadeUpCheckpoint& checkpoint, const Form& form) {
  const TemporaryFolder folder;
  UnsyncedDisk unsynced;
  export_weights(checkpoint, folder.path(), form.options(), unsynced);
  return contents_of(folder.path());
}

// The weights that are loaded from `folder`, by file: searched in transformers' order.
Contents weights_that_load(const Contents& folder) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                           "pytorch_model.bin.index.json", "model.h5"}) {
    if (!folder.contains(name)) continue;
    Contents found{{name, folder.at(name)}};
    if (!std::string(name).ends_with(".index.json")) return found;
    const nlohmann::json index = nlohmann::json::parse(folder.at(name));
    for (const auto& [tensor, shard] : index.at("weight_map").items()) {
      const auto file = folder.find(shard.get<std::string>());
      if (file == folder.end()) return {};  // transformers refuses it
      found[file->first] = file->second;
    }
    return found;
  }
  return {};
}

enum class Loads { kNothing, kOld, kNew, kMixed };

Loads what_loads(const Contents& folder, const Contents& old_export, const Contents& new_export) {
  const Contents weights = weights_that_load(folder);
  if (weights.empty()) return Loads::kNothing;
  const bool is_old = weights == weights_that_load(old_export);
  if (!is_old && weights != weights_that_load(new_export)) return Loads::kMixed;
  const auto config = folder.find("config.json");
  if (config == folder.end()) return Loads::kNothing;
  const Contents& of = is_old ? old_export : new_export;
  const auto wanted = of.find("config.json");
  if (wanted == of.end() || wanted->second != config->second) return Loads::kMixed;
  return is_old ? Loads::kOld : Loads::kNew;
}

// Whether `folder` holds the full export, and otherwise at most `others`.
bool holds_exactly(const fs::path& folder, Contents wanted, const Contents& others = {}) {
  wanted.insert(others.begin(), others.end());
  return contents_of(folder) == wanted;
}

Names names_of(const Contents& contents) {
  Names names;
  for (const auto& [name, bytes] : contents) names.push_back(name);
  return names;
}

}  // namespace

TEST_CASE("a folder holds one export: a new one of any form replaces one of any form, and other files stay") {
  const size_t before = GENERATE(range(0, 5));
  const size_t after = GENERATE(range(0, 5));
  CAPTURE(before, after);
  const TemporaryFolder folder;
  const Contents others = {{"tokenizer.json", "{}"},
                           {"model_card.safetensors", "not ours"},
                           {"model-1.safetensors", "nor this"},
                           {"pytorch_model_lora.bin", "nor this"}};
  for (const auto& [name, text] : others) write_file(folder / name, text);
  UnsyncedDisk unsynced;
  const MadeUpCheckpoint first(1), second(2);
  CHECK(export_weights(first, folder.path(), kForms[before].options(), unsynced).replaced.empty());
  const Contents former = expected_of(first, kForms[before]);
  REQUIRE(holds_exactly(folder.path(), former, others));
  const Exported exported = export_weights(second, folder.path(), kForms[after].options(), unsynced);
  CHECK(holds_exactly(folder.path(), expected_of(second, kForms[after]), others));
  CHECK(exported.replaced == names_of(former));
}

TEST_CASE("killed at any call, a conversion leaves the former export or the new one, and the next one continues") {
  const auto [before, after] = GENERATE(from_range(kPairs));
  // With a different config.json or the same.
  const int rope_theta = GENERATE(1, 2);
  const auto moment = GENERATE(DeadlyDisk::Moment::kBefore, DeadlyDisk::Moment::kAfter);
  const MadeUpCheckpoint first(1, 1), second(2, rope_theta);
  const Contents old_export = expected_of(first, kForms[before]);
  const Contents new_export = expected_of(second, kForms[after]);
  const Contents others = {{"tokenizer.json", "{}"}};
  bool was_unloadable = false;
  int kills = 0;
  for (int call = 1;; ++call) {
    CAPTURE(before, after, rope_theta, static_cast<int>(moment), call);
    const TemporaryFolder folder;
    for (const auto& [name, bytes] : old_export) write_file(folder / name, bytes);
    for (const auto& [name, bytes] : others) write_file(folder / name, bytes);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      DeadlyDisk deadly(call, moment, false);
      try {
        export_weights(second, folder.path(), kForms[after].options(), deadly);
        ::_exit(0);
      } catch (const std::exception&) {
        ::_exit(1);
      }
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    const Loads found = what_loads(contents_of(folder.path()), old_export, new_export);
    REQUIRE(found != Loads::kMixed);
    REQUIRE(read_file(folder / "tokenizer.json") == "{}");
    was_unloadable = was_unloadable || found == Loads::kNothing;
    if (!WIFSIGNALED(status)) {
      REQUIRE(WEXITSTATUS(status) == 0);
      REQUIRE(holds_exactly(folder.path(), new_export, others));
      break;
    }
    ++kills;

    // The next conversion completes it even if it fails itself.
    MadeUpCheckpoint damaged(3);
    damaged.damaged = true;
    UnsyncedDisk unsynced;
    CHECK_THROWS_AS(export_weights(damaged, folder.path(), kForms[before].options(), unsynced), UserError);
    const bool is_old = holds_exactly(folder.path(), old_export, others);
    REQUIRE((is_old || holds_exactly(folder.path(), new_export, others)));
    if (is_old) REQUIRE(found != Loads::kNew);
  }
  CHECK(kills >= 10);
  // One file that replaces one file always exists.
  if (before == after && kForms[after].max_shard_bytes != kThreeShards && rope_theta == 1) CHECK(!was_unloadable);
}

TEST_CASE(
    "after a power failure at any call, a folder has the former export or the new one, or the next one completes it") {
  const auto [before, after] = GENERATE(from_range(kPairs));
  const auto seed = GENERATE(range(0U, 5U));
  const MadeUpCheckpoint first(1), second(2);
  const Contents old_export = expected_of(first, kForms[before]);
  const Contents new_export = expected_of(second, kForms[after]);
  for (int call = 1, calls = call; call <= calls; ++call) {
    CAPTURE(before, after, seed, call);
    const TemporaryFolder folder;
    for (const auto& [name, bytes] : old_export) write_file(folder / name, bytes);
    FaultyDisk faulty(folder.path());
    faulty.lose_power_at(call);
    const std::string error =
        message_of([&] { export_weights(second, folder.path(), kForms[after].options(), faulty); });
    calls = faulty.calls();
    faulty.crash(seed);
    REQUIRE(what_loads(contents_of(folder.path()), old_export, new_export) != Loads::kMixed);
    if (error.empty()) REQUIRE(what_loads(contents_of(folder.path()), old_export, new_export) == Loads::kNew);

    MadeUpCheckpoint damaged(3);
    damaged.damaged = true;
    UnsyncedDisk unsynced;
    CHECK_THROWS_AS(export_weights(damaged, folder.path(), kForms[before].options(), unsynced), UserError);
    const Contents left = contents_of(folder.path());
    REQUIRE(what_loads(left, old_export, new_export) != Loads::kNothing);
    // And no file of the other export remains.
    for (const auto& [name, bytes] : left) {
      if (name.starts_with(".zero_to_fp32.")) continue;  // this process's own, which is still running
      REQUIRE((left == old_export || old_export.contains(name) || new_export.contains(name)));
    }
  }
}

TEST_CASE("a failing call leaves the former export, or the new one with the remedy, and names the path") {
  const auto [before, after] = GENERATE(from_range(kPairs));
  const int number = GENERATE(ENOSPC, EIO);
  const MadeUpCheckpoint first(1), second(2);
  const Contents old_export = expected_of(first, kForms[before]);
  const Contents new_export = expected_of(second, kForms[after]);
  for (int call = 1, calls = call; call <= calls; ++call) {
    CAPTURE(before, after, number, call);
    const TemporaryFolder folder;
    for (const auto& [name, bytes] : old_export) write_file(folder / name, bytes);
    FaultyDisk faulty(folder.path());
    faulty.fail_at(call, number, false);
    const std::string error =
        message_of([&] { export_weights(second, folder.path(), kForms[after].options(), faulty); });
    calls = faulty.calls();
    const Loads found = what_loads(contents_of(folder.path()), old_export, new_export);
    REQUIRE(found != Loads::kMixed);
    if (error.empty()) REQUIRE(found == Loads::kNew);
    if (!error.empty()) REQUIRE_THAT(error, Contains(folder.path().string()));
    if (found == Loads::kNothing) REQUIRE_THAT(error, Contains("the next conversion into " + folder.path().string()));
    UnsyncedDisk unsynced;
    export_weights(second, folder.path(), kForms[after].options(), unsynced);
    REQUIRE(what_loads(contents_of(folder.path()), old_export, new_export) == Loads::kNew);
  }
}

TEST_CASE("of two simultaneous conversions into one folder the second is refused, and the first is complete") {
  const TemporaryFolder folder;
  const MadeUpCheckpoint first(1), second(2);
  std::string refused;
  ExportOptions options = Form{}.options();
  options.on_written = [&](int64_t, int64_t) {
    if (refused.empty()) refused = message_of([&] { export_weights(second, folder.path(), Form{}.options()); });
  };
  CHECK_NOTHROW(export_weights(first, folder.path(), options));
  CHECK_THAT(refused, Contains(folder.path().string()) && Contains("process " + std::to_string(::getpid())) &&
                          Contains(host_name()) && Contains("wait until"));
  CHECK(holds_exactly(folder.path(), expected_of(first, Form{})));
}

TEST_CASE("without locks the lock file keeps others out, and the error names the file to remove") {
  const int number = GENERATE(ENOSYS, ENOLCK, EOPNOTSUPP);
  const auto no_locks = [&](int) { return number; };
  const TemporaryFolder folder;
  const fs::path file = folder / ".zero_to_fp32.lock";
  {
    const ExportLock first(folder.path(), disk(), no_locks);
    CHECK_THAT(message_of([&] { ExportLock(folder.path(), disk(), no_locks); }),
               Contains("process " + std::to_string(::getpid())) && Contains("remove " + file.string()));
    CHECK(fs::exists(file));
  }
  CHECK(!fs::exists(file));
  write_file(file, "process 1 on another-machine");
  CHECK_THROWS_AS(ExportLock(folder.path(), disk(), no_locks), UserError);
  // With locks, the process that left the file is known to be dead.
  CHECK_NOTHROW(ExportLock(folder.path()));
  CHECK(!fs::exists(file));
}

TEST_CASE("where locks may not reach other hosts the lock file keeps others out") {
  // Each host has its own locks there, so every process gets the lock.
  const auto lock_of_this_host = [](int) { return 0; };
  const LockReach reach = GENERATE(LockReach::kThisHost, LockReach::kUnknown);
  const TemporaryFolder folder;
  const fs::path file = folder / ".zero_to_fp32.lock";
  {
    const ExportLock first(folder.path(), disk(), lock_of_this_host, reach);
    CHECK_THAT(message_of([&] { ExportLock(folder.path(), disk(), lock_of_this_host, reach); }),
               Contains("process " + std::to_string(::getpid())) && Contains("remove " + file.string()));
    CHECK(fs::exists(file));
  }
  CHECK_NOTHROW(ExportLock(folder.path(), disk(), lock_of_this_host, reach));
  CHECK(!fs::exists(file));
}

namespace {

// Calls `act` once, before or after the call on the path with this name (the target, for a rename).
class Interrupted final : public UnsyncedDisk {
 public:
  enum class Call { kBeforeRemovingFile, kAfterRemovingFile, kBeforeRenaming, kAfterRenaming };
  Interrupted(Call call, std::string name, std::function<void()> act)
      : call_(call), name_(std::move(name)), act_(std::move(act)) {}
  int remove_file(const fs::path& path) override {
    reach(Call::kBeforeRemovingFile, path);
    const int error = UnsyncedDisk::remove_file(path);
    reach(Call::kAfterRemovingFile, path);
    return error;
  }
  int rename(const fs::path& from, const fs::path& to) override {
    reach(Call::kBeforeRenaming, from);
    const int error = UnsyncedDisk::rename(from, to);
    reach(Call::kAfterRenaming, to);
    return error;
  }
  bool has_acted() const { return !act_; }

 private:
  void reach(Call call, const fs::path& path) {
    if (call == call_ && path.filename() == name_ && act_) std::exchange(act_, nullptr)();
  }

  Call call_;
  std::string name_;
  std::function<void()> act_;
};
using Call = Interrupted::Call;

constexpr const char* kReady = ".zero_to_fp32.ready";

// The lock file was removed, and a conversion of this checkpoint stops once its ready folder exists.
void convert_until_ready(const fs::path& folder, const MadeUpCheckpoint& checkpoint, const Form& form) {
  struct Stopped {};
  fs::remove(folder / ".zero_to_fp32.lock");
  Interrupted files(Call::kAfterRenaming, kReady, [] { throw Stopped(); });
  CHECK_THROWS_AS(export_weights(checkpoint, folder, form.options(), files), Stopped);
}

}  // namespace

TEST_CASE("files that another conversion moves in during the removal of the ready folder stay, and the error says so") {
  const Form form = kForms[1];
  const TemporaryFolder folder;
  const MadeUpCheckpoint first(1), second(2), third(3);
  export_weights(first, folder.path(), form.options());
  const auto other = [&] { convert_until_ready(folder.path(), third, form); };
  const auto [call, name] =
      GENERATE(table<Call, std::string>({{Call::kAfterRemovingFile, ".files"}, {Call::kBeforeRenaming, kReady}}));
  Interrupted files(call, name, other);
  const std::string error = message_of([&] { export_weights(second, folder.path(), form.options(), files); });
  CHECK(files.has_acted());
  CHECK_THAT(error, Contains("another conversion was active in " + folder.path().string()));
  CHECK_THAT(error, !Contains("is complete"));
  // The next conversion completes what the other one began.
  MadeUpCheckpoint damaged(4);
  damaged.damaged = true;
  UnsyncedDisk unsynced;
  CHECK_THROWS(export_weights(damaged, folder.path(), form.options(), unsynced));
  CHECK(holds_exactly(folder.path(), expected_of(third, form)));
}

TEST_CASE("a conversion whose ready folder is removed by another one claims nothing") {
  const Form form = kForms[1];
  const TemporaryFolder folder;
  const MadeUpCheckpoint first(1), second(2);
  export_weights(first, folder.path(), form.options());
  // Right after it was created, and after its first file was moved to its place.
  const auto [call, name] = GENERATE(table<Call, std::string>(
      {{Call::kAfterRenaming, kReady}, {Call::kAfterRenaming, "model-00001-of-00003.safetensors"}}));
  Interrupted files(call, name, [&, &ready = kReady] { fs::remove_all(folder / ready); });
  const std::string error = message_of([&] { export_weights(second, folder.path(), form.options(), files); });
  CHECK(files.has_acted());
  CHECK_THAT(error, Contains("another conversion was active in " + folder.path().string()));
  CHECK_THAT(error, !Contains("is complete"));
}

TEST_CASE("a conversion stops and claims nothing if another one completes the same work first") {
  const Form form = kForms[1];
  const TemporaryFolder folder;
  const MadeUpCheckpoint first(1), second(2), third(3);
  export_weights(first, folder.path(), form.options());
  convert_until_ready(folder.path(), second, form);
  UnsyncedDisk unsynced;
  Interrupted files(Call::kAfterRemovingFile, "config.json", [&] {
    fs::remove(folder / ".zero_to_fp32.lock");
    export_weights(second, folder.path(), form.options(), unsynced);
  });
  const std::string error = message_of([&] { export_weights(third, folder.path(), form.options(), files); });
  CHECK(files.has_acted());
  CHECK_THAT(error, Contains("another conversion was active in " + folder.path().string()));
  CHECK(holds_exactly(folder.path(), expected_of(second, form)));
}

TEST_CASE("a conversion whose files another one replaces before its end claims nothing") {
  const size_t form = GENERATE(0, 1);
  CAPTURE(form);
  const TemporaryFolder folder;
  const MadeUpCheckpoint first(1), second(2), third(3);
  export_weights(first, folder.path(), kForms[form].options());
  UnsyncedDisk unsynced;
  const auto other = [&] {
    fs::remove(folder / ".zero_to_fp32.lock");
    export_weights(third, folder.path(), kForms[form].options(), unsynced);
  };
  Interrupted files(Call::kAfterRenaming, form == 0 ? "model.safetensors" : "config.json", other);
  const std::string error = message_of([&] { export_weights(second, folder.path(), kForms[form].options(), files); });
  CHECK(files.has_acted());
  CHECK_THAT(error, Contains("another conversion was active in " + folder.path().string()));
  CHECK(holds_exactly(folder.path(), expected_of(third, kForms[form])));
}

TEST_CASE("leftovers of a killed conversion are removed if it is known to be dead, and named otherwise") {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  const std::string dead = fmt::format(".zero_to_fp32.{}.{}.1.00000000.tmp", host_name(), child);
  const std::string reused = fmt::format(".zero_to_fp32.{}.{}.1.00000000.tmp", host_name(), ::getpid());
  const std::string elsewhere = ".zero_to_fp32.another-machine.1.1.00000000.tmp";
  const std::string earlier = ".zero_to_fp32.tmp";
  for (const std::string& name : {dead, reused, elsewhere, earlier}) {
    fs::create_directory(folder / name);
    write_file(folder / name / "model.safetensors", "part");
  }
  Names warnings;
  ExportOptions options = Form{}.options();
  options.on_warning = [&](const std::string& warning) { warnings.push_back(warning); };
  export_weights(MadeUpCheckpoint(1), folder.path(), options);
  CHECK(holds_exactly(folder.path(), expected_of(MadeUpCheckpoint(1), Form{}),
                      {{elsewhere, "a folder"}, {earlier, "a folder"}}));
  REQUIRE(warnings.size() == 2);
  CHECK_THAT(warnings[0], Contains((folder / elsewhere).string()) && Contains("remove it"));
  CHECK_THAT(warnings[1], Contains((folder / earlier).string()));
}

TEST_CASE("a leftover that cannot be removed is named and does no harm") {
  const TemporaryFolder folder;
  const std::string dead = fmt::format(".zero_to_fp32.{}.{}.1.00000000.tmp", host_name(), ::getpid());
  fs::create_directory(folder / dead);
  write_file(folder / dead / "model.safetensors", "part");
  // As set by chattr +i.
  class Immutable final : public UnsyncedDisk {
   public:
    explicit Immutable(fs::path kept) : kept_(std::move(kept)) {}
    int remove_file(const fs::path& path) override {
      return path.parent_path() == kept_ ? EPERM : UnsyncedDisk::remove_file(path);
    }

   private:
    fs::path kept_;
  } immutable(folder / dead);
  Names warnings;
  ExportOptions options = Form{}.options();
  options.on_warning = [&](const std::string& warning) { warnings.push_back(warning); };
  export_weights(MadeUpCheckpoint(1), folder.path(), options, immutable);
  CHECK(holds_exactly(folder.path(), expected_of(MadeUpCheckpoint(1), Form{}), {{dead, "a folder"}}));
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Contains((folder / dead).string()));
}

TEST_CASE("an export that does not fit on the disk is refused before anything is written") {
  const TemporaryFolder folder;
  const Contents former = expected_of(MadeUpCheckpoint(1), Form{});
  for (const auto& [name, bytes] : former) write_file(folder / name, bytes);
  MadeUpCheckpoint huge(2);
  huge.parameters_ = {{"model.embed_tokens.weight", {int64_t{1} << 30, int64_t{1} << 20}}};
  const std::string error = message_of([&] { export_weights(huge, folder.path(), Form{}.options()); });
  CHECK_THAT(error, Contains("4503599.627 GB") && Contains(folder.path().string()) && Contains("free some space"));
  CHECK(holds_exactly(folder.path(), former));
}

TEST_CASE("a folder with the name of an exported file is refused before anything changes") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "pytorch_model.bin");
  write_file(folder / "model.safetensors", "the former");
  const std::string error = message_of([&] { export_weights(MadeUpCheckpoint(1), folder.path(), Form{}.options()); });
  CHECK_THAT(error, Contains((folder / "pytorch_model.bin").string()) && Contains("move it elsewhere"));
  CHECK(holds_exactly(folder.path(), {{"model.safetensors", "the former"}, {"pytorch_model.bin", "a folder"}}));
}

TEST_CASE("symbolic links in the folder are not followed") {
  const TemporaryFolder folder, elsewhere;
  write_file(elsewhere / "model.safetensors", "precious");
  const std::string dead = fmt::format(".zero_to_fp32.{}.{}.1.00000000.tmp", host_name(), ::getpid());
  fs::create_symlink(elsewhere.path(), folder / dead);
  export_weights(MadeUpCheckpoint(1), folder.path(), Form{}.options());
  for (const char* name : {".zero_to_fp32.ready", ".zero_to_fp32.lock"}) {
    const fs::path target = GENERATE(true, false) ? elsewhere.path() : elsewhere / "model.safetensors";
    fs::create_symlink(target, folder / name);
    CHECK_THAT(message_of([&] { export_weights(MadeUpCheckpoint(2), folder.path(), Form{}.options()); }),
               Contains((folder / name).string()));
    fs::remove(folder / name);
  }
  CHECK(contents_of(elsewhere.path()) == Contents{{"model.safetensors", "precious"}});
}

TEST_CASE("a folder created by a failed conversion is removed") {
  const TemporaryFolder folder;
  MadeUpCheckpoint damaged(1);
  damaged.damaged = true;
  CHECK_THROWS_AS(export_weights(damaged, folder / "out", Form{}.options()), UserError);
  CHECK(!fs::exists(folder / "out"));
}

}  // namespace mpzero::io
