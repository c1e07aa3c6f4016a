#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"
#include "app/config/zero_options.hpp"
#include "app/memory/run_memory.hpp"
#include "app/train/communicators/network.hpp"
#include "app/train/trainer.hpp"
#include "app/watchdog/watchdog.hpp"
#include "base/collectives.hpp"
#include "model/decoder.hpp"
#include "parallel/comm/mpi_communicator.hpp"
#include "tests/io/token_files.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

// A training run of a few seconds on the ranks of the test program: a small model on a few tokens, in a separate
// folder. All functions are collective.
namespace mpzero {

inline bool is_rank_0() { return parallel::mpi().rank() == 0; }

// Runs `work` on rank 0. Returns on all ranks once `work` has completed.
inline void on_rank_0(const std::function<void()>& work) {
  if (is_rank_0()) work();
  parallel::mpi().barrier();
}

// A temporary folder that all ranks use.
class SharedFolder {
 public:
  SharedFolder() {
    if (is_rank_0()) own_.emplace();
    path_ = broadcast(parallel::mpi(), own_ ? own_->path().string() : std::string());
  }
  ~SharedFolder() { parallel::mpi().barrier(); }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::optional<io::testing::TemporaryFolder> own_;
  std::filesystem::path path_;
};

class TinyTraining {
 public:
  TinyTraining() {
    on_rank_0([this] { write_inputs(); });
  }

  const std::filesystem::path& folder() const { return folder_.path(); }
  std::filesystem::path checkpoints() const { return folder_ / "checkpoints"; }
  std::filesystem::path checkpoint(int64_t step) const { return checkpoints() / fmt::format("model-{}steps", step); }
  std::filesystem::path metrics() const { return folder_ / "metrics.jsonl"; }

  // Sets up a run with `flags` and, unless `flags` set them, the flags for the model, the data and the folders. These
  // paths are relative to the current folder if `relative` is true.
  RunSetup set_up(std::vector<std::string> flags, bool relative = false) const {
    for (const auto& [flag, name] : {std::pair("deepspeed_config", "ds_config.json"),
                                     {"model_config", "model.json"},
                                     {"train_data", "train.h5"},
                                     {"checkpoint_dir", "checkpoints"},
                                     {"metrics_file", "metrics.jsonl"}}) {
      if (std::ranges::any_of(flags,
                              [&](const auto& given) { return given.starts_with(fmt::format("--{}=", flag)); })) {
        continue;
      }
      flags.push_back(fmt::format("--{}={}", flag, relative ? name : (folder_ / name).string()));
    }
    flags.insert(flags.end(), {"--seq_length=16", "--device=cpu"});
    return set_up_run(parse_command_line(flags), parallel::mpi().world_size());
  }

  // Trains like `mpzero train`. Calls `begun` once signals are handled.
  TrainingEnd train(const std::vector<std::string>& flags, const std::function<void()>& begun = [] {}) const {
    parallel::MpiRuntime& mpi = parallel::mpi();
    RunSetup setup = set_up(flags);
    const StopRequest stop;
    Watchdog watchdog(mpi, stop, {.checkpoint_dir = setup.config.checkpoint_dir});
    Network network("auto", at::kCPU, mpi, {.limit = std::chrono::milliseconds(0), .overdue = [](const auto&) {}});
    RunMemory memory(setup, at::kCPU, mpi);
    Trainer trainer(mpi, network, std::move(setup), at::kCPU, memory, {.stop = stop, .watchdog = watchdog});
    begun();
    return trainer.run();
  }

 private:
  static constexpr int64_t kVocabSize = 64;

  void write_inputs() const {
    std::vector<uint16_t> tokens(4000);
    // The next token is determined by the previous token, so the model can learn.
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i * 3 % kVocabSize);
    io::testing::write_token_file(folder_ / "train.h5", tokens, kVocabSize);
    std::ofstream(folder_ / "model.json") << R"({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"],
      "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
      "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu", "initializer_range": 0.02})";
    std::ofstream(folder_ / "ds_config.json") << R"({"train_micro_batch_size_per_gpu": 2,
      "gradient_accumulation_steps": 2, "gradient_clipping": 1.0, "bf16": {"enabled": false},
      "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 2}})";
  }

  SharedFolder folder_;
};

// The engine of such a run, without a trainer.
struct TinyEngine {
  explicit TinyEngine(const RunSetup& setup)
      : decoder(setup.model), engine(decoder.units(), zero_options(setup.config, at::kCPU), parameters, gradients) {}

  parallel::MpiCommunicator parameters{parallel::mpi()};
  parallel::MpiCommunicator gradients{parallel::mpi()};
  model::Decoder decoder;
  parallel::ZeroEngine engine;
};

}  // namespace mpzero
