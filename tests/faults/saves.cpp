#include "tests/faults/saves.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/process_group.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/checkpoint_dir/old_run.hpp"
#include "io/files/atomic_file.hpp"
#include "io/locks/folder_lock.hpp"

namespace mpzero::faults {
namespace fs = std::filesystem;
namespace {

constexpr const char* kConfig =
    R"({"model_type": "qwen3", "hidden_size": 5, "num_hidden_layers": 2, "num_attention_heads": 1})";

// The shards of each rank. The last may hold less, or nothing.
std::vector<io::UnitShard> shards_of(int rank, int ranks) {
  std::vector<io::UnitShard> shards;
  for (const UnitSpec& unit : tiny_model()) {
    const int64_t share = (unit.numel() + ranks - 1) / ranks;
    const int64_t begin = std::min(unit.numel(), rank * share);
    shards.push_back({&unit, begin, std::min(share, unit.numel() - begin)});
  }
  return shards;
}

io::SaveJob job_for(const fs::path& dir, const Save& save, int rank) {
  io::SaveJob job;
  job.checkpoint_dir = dir;
  job.tag = save.tag();
  job.progress.step = save.step;
  job.progress.tokens_seen = save.step * 1000;
  job.progress.sequences_seen = save.step * kWindowsOfStep;
  job.progress.seed = 17;
  job.progress.lr = 0.25;
  job.progress.dtype = save.dtype;
  job.progress.zero_stage = save.zero_stage;
  job.progress.model_config_json = kConfig;
  job.progress.run_config_json = R"({"train_micro_batch_size_per_gpu": 2})";
  job.shards = shards_of(rank, save.ranks);
  job.model_type = "tiny";
  job.keep_last = save.keep_last;
  job.run.id = save.run_id;
  if (save.deepspeed) {
    job.format = io::DeepSpeedSettings{
        .ranks = save.ranks,
        .optimizer = {.next_lr = 0.5, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1}};
  }
  return job;
}

// Does not wait.
io::WaitingClock hasty_clock() {
  const auto now = std::make_shared<std::chrono::milliseconds>(0);
  return {.now = [now] { return *now; }, .wait = [now](std::chrono::milliseconds pause) { *now += pause; }};
}

}  // namespace

Files read_files(const fs::path& folder) {
  Files files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files.emplace_back(entry.path().lexically_relative(folder).string(), read_bytes(entry.path()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

void write_files(const fs::path& folder, const Files& files) {
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const auto& [name, bytes] : files) {
    fs::create_directories((folder / name).parent_path());
    write_bytes(folder / name, bytes);
  }
}

std::string read_bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

const std::vector<UnitSpec>& tiny_model() {
  static const std::vector<UnitSpec> units = [] {
    std::vector<UnitSpec> made = {{"embedding", {{"model.embed_tokens.weight", {37, 5}}}}};
    for (int i = 0; i < 2; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      made.push_back({"layers." + std::to_string(i),
                      {{layer + "input_layernorm.weight", {5}},
                       {layer + "self_attn.q_proj.weight", {7, 5}},
                       {layer + "self_attn.o_proj.weight", {5, 7}},
                       {layer + "mlp.down_proj.weight", {5, 11}}}});
    }
    made.push_back({"head", {{"model.norm.weight", {5}}}});
    return made;
  }();
  return units;
}

std::vector<ParameterSpec> tiny_parameters() {
  std::vector<ParameterSpec> parameters;
  for (const UnitSpec& unit : tiny_model()) {
    parameters.insert(parameters.end(), unit.parameters.begin(), unit.parameters.end());
  }
  return parameters;
}

float value_of(uint32_t save, size_t unit, StateKind kind, int64_t element) {
  uint64_t x = (static_cast<uint64_t>(element) + 1) * 0x9E3779B97F4A7C15ULL + unit * 0xD1B54A32D192ED03ULL +
               static_cast<uint64_t>(kind) * 0x8CB92BA72F3D8DD7ULL + save * 0xABC98388FB8FAC03ULL;
  x ^= x >> 31;
  x *= 0xBF58476D1CE4E5B9ULL;
  const auto fraction = static_cast<float>((x >> 40) & 0xFFFFFF) / static_cast<float>(1 << 24);
  // Second moments are not negative.
  return kind == StateKind::kExpAvgSq ? fraction : 2 * fraction - 1;
}

void write_save(const fs::path& dir, const Save& save, const std::function<void()>& check_owner) {
  SingleProcess leader;
  io::SaveJob job = job_for(dir, save, 0);
  job.check_owner = check_owner;
  io::begin_save(job, leader);
  try {
    std::vector<std::string> written;
    for (int rank = 0; rank < save.ranks; ++rank) {
      const io::SaveJob of_rank = job_for(dir, save, rank);
      std::map<std::pair<size_t, StateKind>, std::vector<float>> values;
      const auto fetch = [&](size_t unit, StateKind kind) -> std::span<const float> {
        const io::UnitShard& shard = of_rank.shards[unit];
        std::vector<float>& out = values[{unit, kind}];
        out.resize(static_cast<size_t>(shard.count));
        for (int64_t i = 0; i < shard.count; ++i) {
          out[static_cast<size_t>(i)] = value_of(save.values, unit, kind, shard.begin + i);
        }
        return out;
      };
      written.push_back(io::write_shards(of_rank, rank, {.fetch = fetch}));
    }
    io::publish_save(job, written);
  } catch (...) {
    io::discard_save(job);
    throw;
  }
}

void save_as_run(const fs::path& dir, const Save& save) {
  io::check_writable(dir);
  io::FolderLock::Options options;
  options.clock = hasty_clock();
  options.renewal = std::chrono::milliseconds(0);
  io::FolderLock lock(dir, options);
  lock.set_run(save.run_id);
  io::finish_moving(dir);
  io::clean_up(dir);
  write_save(dir, save, [&] { lock.check(); });
}

}  // namespace mpzero::faults
