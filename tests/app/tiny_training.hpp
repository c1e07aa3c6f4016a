#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"
#include "app/config/zero_options.hpp"
#include "app/liveness/liveness.hpp"
#include "app/memory/run_memory.hpp"
#include "app/train/network.hpp"
#include "app/train/trainer.hpp"
#include "model/decoder.hpp"
#include "parallel/comm/local_communicator.hpp"
#include "tests/io/token_files.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

// A run of seconds in this process: a small model on a text of few tokens, in a folder of its own.
namespace mpzero {

class TinyTraining {
 public:
  TinyTraining() {
    std::vector<uint16_t> tokens(4000);
    // The next token follows from the one before, so that there is something to learn.
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

  std::filesystem::path checkpoints() const { return folder_ / "checkpoints"; }
  std::filesystem::path checkpoint(int64_t step) const { return checkpoints() / fmt::format("model-{}steps", step); }
  std::filesystem::path metrics() const { return folder_ / "metrics.jsonl"; }

  // `flags` in addition to the model, the data and the folders.
  RunSetup set_up(std::vector<std::string> flags) const {
    for (const auto& [flag, name] : {std::pair("deepspeed_config", "ds_config.json"),
                                     {"model_config", "model.json"},
                                     {"train_data", "train.h5"},
                                     {"checkpoint_dir", "checkpoints"},
                                     {"metrics_file", "metrics.jsonl"}}) {
      flags.push_back(fmt::format("--{}={}", flag, (folder_ / name).string()));
    }
    flags.insert(flags.end(), {"--seq_length=16", "--device=cpu"});
    return set_up_run(flags, /*world_size=*/1);
  }

  // As `mpzero train` does; `begun` is called when signals are taken.
  TrainingEnd train(const std::vector<std::string>& flags, const std::function<void()>& begun = [] {}) const {
    parallel::MpiRuntime& mpi = parallel::mpi();
    RunSetup setup = set_up(flags);
    const StopRequest stop;
    Liveness liveness(mpi, stop, {.checkpoint_dir = setup.config.checkpoint_dir});
    Network network("auto", at::kCPU, mpi, {.limit = std::chrono::milliseconds(0), .overdue = [](const auto&) {}});
    RunMemory memory(setup, at::kCPU, mpi);
    Trainer trainer(mpi, network, std::move(setup), at::kCPU, memory, {.stop = stop, .liveness = liveness});
    begun();
    return trainer.run();
  }

 private:
  static constexpr int64_t kVocabSize = 64;
  io::testing::TemporaryFolder folder_;
};

// The engine of such a run, which no trainer drives.
struct TinyEngine {
  explicit TinyEngine(const RunSetup& setup)
      : decoder(setup.model),
        engine(decoder.units(), zero_options(setup.config, at::kCPU), communicator, communicator) {}

  parallel::LocalCommunicator communicator;
  model::Decoder decoder;
  parallel::ZeroEngine engine;
};

}  // namespace mpzero
