#include "tests/faults/targets.hpp"

#include <fmt/format.h>

#include <map>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/process_group.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/weights/safetensors.hpp"
#include "tests/faults/damaged_files.hpp"
#include "tests/faults/disk_targets.hpp"
#include "tests/faults/readings.hpp"
#include "tests/faults/saves.hpp"

namespace mpzero::faults {
namespace fs = std::filesystem;
namespace {

constexpr int kReadingRanks = 2;
constexpr const char* kLatest = "latest";
constexpr const char* kH5pyTokens = "h5py_tokens.h5";

using Targets = std::vector<std::unique_ptr<Target>>;

Readers checkpoint_readers() {
  const Reading as_run = [](const fs::path& folder, const fs::path&) { return read_as_run(folder, kReadingRanks); };
  const Reading as_export = [](const fs::path& folder, const fs::path& scratch) {
    const fs::path output = scratch / "export";
    fs::remove_all(output);
    export_as_fp32(folder, output);
    return read_export(output);
  };
  return {.verify = [](const fs::path& folder) { verify(folder); }, .readings = {as_run, as_export}, .tells = nullptr};
}

Files files_of_save(const fs::path& dir, const Save& save) {
  write_save(dir, save);
  return read_files(dir / save.tag());
}

void add_saves(Targets& targets, const std::string& name, const Save& save, const fs::path& scratch) {
  const fs::path dir = scratch / "saves";
  fs::remove_all(dir);
  Save later = save, again = save, of_other_run = save;
  later.step = 6;
  later.values = 2;
  again.values = 3;
  of_other_run.values = 4;
  of_other_run.run_id = "ffeeddccbbaa9988";
  Files files = files_of_save(dir, save);
  std::vector<DamagedFiles::OtherSave> others;
  others.push_back({"later", files_of_save(dir, later)});
  others.push_back({"again", files_of_save(dir, again)});
  fs::remove_all(dir);
  others.push_back({"other-run", files_of_save(dir, of_other_run)});
  targets.push_back(
      std::make_unique<DamagedFiles>(name, std::move(files), std::move(others), checkpoint_readers(), scratch));
}

// Checkpoints that DeepSpeed itself saved after step 6 and, resumed from there, after step 9.
void add_stock(Targets& targets, const std::string& run, const TargetPlaces& places) {
  const fs::path step6 = places.source / "tests" / "golden" / run / "deepspeed" / "global_step6";
  const fs::path step9 = places.source / "tests" / "faults" / "stock" / run / "global_step9";
  targets.push_back(std::make_unique<DamagedFiles>(
      fmt::format("stock-{}", run.substr(std::string_view("tiny-").size())), read_files(step6),
      std::vector<DamagedFiles::OtherSave>{{"later", read_files(step9)}}, checkpoint_readers(), places.scratch));
}

// `latest`, next to two checkpoints.
void add_latest(Targets& targets, const fs::path& scratch) {
  const fs::path dir = scratch / "saves";
  fs::remove_all(dir);
  write_save(dir, {.step = 6});
  write_save(dir, {.step = 13, .values = 2});
  Files latest, checkpoints;
  for (auto& file : read_files(dir)) (file.first == kLatest ? latest : checkpoints).push_back(file);
  const Reading reading = [checkpoints](const fs::path& folder, const fs::path&) {
    for (const auto& [name, bytes] : checkpoints) {
      fs::create_directories((folder / name).parent_path());
      write_bytes(folder / name, bytes);
    }
    return read_as_run(io::find_checkpoint(folder), kReadingRanks);
  };
  targets.push_back(std::make_unique<DamagedFiles>(kLatest, latest, std::vector<DamagedFiles::OtherSave>{},
                                                   Readers{.verify = nullptr, .readings = {reading}, .tells = nullptr},
                                                   scratch));
}

// The weights of a Hugging Face model, with the values of value_of().
class TinyWeights final : public ParameterSource {
 public:
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override {
    for (size_t unit = 0; unit < tiny_model().size(); ++unit) {
      int64_t offset = 0;
      for (const ParameterSpec& stored : tiny_model()[unit].parameters) {
        if (stored.name == parameter.name) {
          for (size_t i = 0; i < out.size(); ++i) {
            out[i] = value_of(1, unit, StateKind::kMaster, offset + begin + static_cast<int64_t>(i));
          }
        }
        offset += stored.numel();
      }
    }
  }
};

void add_weights(Targets& targets, const std::string& name, int64_t max_shard_bytes, io::WeightType type,
                 const fs::path& scratch) {
  const fs::path folder = scratch / "weights";
  fs::remove_all(folder);
  fs::create_directories(folder);
  io::write_safetensors(folder, tiny_parameters(), TinyWeights(), max_shard_bytes, nullptr, type);
  const Reading reading = [](const fs::path& path, const fs::path&) { return read_weights(path); };
  const auto tells = [hash = logged_hash(folder)](const fs::path& path) { return logged_hash(path) != hash; };
  targets.push_back(std::make_unique<DamagedFiles>(name, read_files(folder), std::vector<DamagedFiles::OtherSave>{},
                                                   Readers{.verify = nullptr, .readings = {reading}, .tells = tells},
                                                   scratch));
}

void add_tokens(Targets& targets, const std::string& name, const fs::path& file, const fs::path& scratch) {
  const std::string file_name = file.filename().string();
  const Reading reading = [file_name](const fs::path& folder, const fs::path&) {
    return read_tokens(folder / file_name);
  };
  const auto tells = [file_name](const fs::path& folder) { return lacks_checksums(folder / file_name); };
  targets.push_back(
      std::make_unique<DamagedFiles>(name, Files{{file_name, read_bytes(file)}}, std::vector<DamagedFiles::OtherSave>{},
                                     Readers{.verify = nullptr, .readings = {reading}, .tells = tells}, scratch));
}

constexpr const char* kStep3 = "tiny-3steps";

// A run that saves the same step again, and one that prunes it.
std::map<std::string, ReadingProgram::Meanwhile> what_runs_do(const Save& save) {
  Save again = save;
  again.values = 3;
  return {{"publish", [again](const fs::path& folder) { write_save(folder, again); }},
          {"prune", [](const fs::path& folder) { io::remove_checkpoints({folder / kStep3}); }}};
}

void add_programs(Targets& targets, const TargetPlaces& places) {
  const std::vector<std::pair<std::string, Save>> formats = {
      {"hdf5", {}},
      {"deepspeed-zero2", {.deepspeed = true}},
      {"deepspeed-zero3", {.deepspeed = true, .zero_stage = 3, .dtype = "fp32"}}};
  for (const auto& [format, save] : formats) {
    const fs::path dir = places.scratch / "saves";
    fs::remove_all(dir);
    write_save(dir, save);
    for (const char* command : {"read", "verify", "export"}) {
      targets.push_back(std::make_unique<ReadingProgram>(fmt::format("{}-{}", command, format), command,
                                                         read_files(dir), kStep3, what_runs_do(save), places.programs,
                                                         places.scratch));
    }
  }
  const fs::path stock = places.source / "tests" / "golden" / "tiny-qwen3-zero2-bf16" / "deepspeed";
  targets.push_back(std::make_unique<ReadingProgram>("read-stock", "read", read_files(stock), "global_step6",
                                                     std::map<std::string, ReadingProgram::Meanwhile>{},
                                                     places.programs, places.scratch));
  const fs::path weights = places.scratch / "weights";
  targets.push_back(std::make_unique<ReadingProgram>("read-safetensors", "weights", read_files(weights), "",
                                                     std::map<std::string, ReadingProgram::Meanwhile>{},
                                                     places.programs, places.scratch));
  const fs::path tokens = places.source / "tests" / "faults" / kH5pyTokens;
  targets.push_back(std::make_unique<ReadingProgram>("read-tokens", "tokens", Files{{kH5pyTokens, read_bytes(tokens)}},
                                                     kH5pyTokens, std::map<std::string, ReadingProgram::Meanwhile>{},
                                                     places.programs, places.scratch));
  for (const auto& [format, save] : formats) {
    Save next = save, same = save, only = save;
    next.step = 6;
    only.step = 6;
    only.keep_last = 1;
    next.values = same.values = only.values = 2;
    for (const SavingRun::Scene& scene : {SavingRun::Scene{fmt::format("save-{}", format), save, next},
                                          SavingRun::Scene{fmt::format("save-same-{}", format), save, same},
                                          SavingRun::Scene{fmt::format("save-renaming-{}", format), save, same, false},
                                          SavingRun::Scene{fmt::format("save-pruning-{}", format), save, only}}) {
      targets.push_back(std::make_unique<SavingRun>(scene, places.programs, places.scratch));
    }
  }
  targets.push_back(std::make_unique<ExportingProgram>("export-over", places.programs, places.scratch));
}

}  // namespace

std::vector<std::unique_ptr<Target>> make_targets(const TargetPlaces& places) {
  Targets targets;
  const Save zero3 = {.deepspeed = true, .zero_stage = 3, .dtype = "fp32"};
  add_saves(targets, "hdf5", {}, places.scratch);
  add_saves(targets, "deepspeed-zero2", {.deepspeed = true}, places.scratch);
  add_saves(targets, "deepspeed-zero3", zero3, places.scratch);
  add_latest(targets, places.scratch);
  for (const char* run : {"tiny-qwen3-zero2-bf16", "tiny-qwen3-zero2-fp32", "tiny-llama-zero3-fp32"}) {
    add_stock(targets, run, places);
  }
  add_weights(targets, "safetensors", int64_t{1} << 30, io::WeightType::kFloat32, places.scratch);
  add_weights(targets, "safetensors-shards", 500, io::WeightType::kBFloat16, places.scratch);
  if (!places.tokens.empty()) add_tokens(targets, "tokens", places.tokens, places.scratch);
  add_tokens(targets, "tokens-h5py", places.source / "tests" / "faults" / kH5pyTokens, places.scratch);
  add_programs(targets, places);
  return targets;
}

}  // namespace mpzero::faults
