#include "tests/app/checkpoint/resume_cases.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>

#include "tests/io/token_files.hpp"

namespace mpzero::resume_cases {
namespace {

const char* scheduler_of(Kind kind) {
  return kind == Kind::kWarmupLr ? "WarmupLR" : kind == Kind::kWarmupDecayLr ? "WarmupDecayLR" : "WarmupCosineLR";
}

const char* trainers_name(const Settings& settings) {
  switch (settings.shape.kind) {
    case Kind::kLinear:
      return "linear";
    case Kind::kCosine:
      return "cosine";
    case Kind::kStable:
      return "warmup_stable_decay";
    default:
      return settings.shape.warmup > 0 || settings.warmup_ratio ? "constant_with_warmup" : "constant";
  }
}

// Without a file the schedule is a WarmupCosineLR to 0, and a file without a scheduler section has a fixed rate.
bool has_file(const Settings& settings) {
  return settings.shape.kind <= Kind::kWarmupCosineLr && !settings.has_default_schedule;
}

std::string ds_config(const Settings& settings) {
  const Shape& shape = settings.shape;
  std::string params = fmt::format(R"("warmup_type": "{}")", shape.is_log ? "log" : "linear");
  const auto add = [&](const char* key, auto value) { params += fmt::format(R"(, "{}": {})", key, value); };
  if (settings.warmup_ratio) {
    params += R"(, "warmup_num_steps": "auto")";
  } else {
    add("warmup_num_steps", shape.warmup);
  }
  if (settings.schedule_end) add("total_num_steps", *settings.schedule_end);
  if (shape.kind == Kind::kWarmupCosineLr) {
    add("warmup_min_ratio", shape.warmup_min);
    add("cos_min_ratio", shape.cos_min_ratio);
  } else {
    add("warmup_min_lr", shape.warmup_min);
    add("warmup_max_lr", shape.peak);
  }
  const std::string optimizer = fmt::format(R"({{"type": "AdamW", "params": {{"lr": {}}}}})", shape.peak);
  if (shape.kind == Kind::kFixed) return fmt::format(R"({{"optimizer": {}}})", optimizer);
  return fmt::format(R"({{"optimizer": {}, "scheduler": {{"type": "{}", "params": {{{}}}}}}})", optimizer,
                     scheduler_of(shape.kind), params);
}

}  // namespace

int64_t Settings::steps() const {
  int64_t steps = max_steps.value_or(std::numeric_limits<int64_t>::max());
  if (epochs) steps = std::min(steps, *epochs * windows() / batch);
  if (num_train_epochs) {
    const double of_epochs = *num_train_epochs * static_cast<double>(windows() / batch);
    steps = std::min(steps, static_cast<int64_t>(std::ceil(of_epochs)));
  }
  return steps;
}

std::filesystem::path token_file(const std::filesystem::path& folder, int64_t num_tokens) {
  return folder / fmt::format("{}.h5", num_tokens);
}

void write_files(const std::filesystem::path& folder) {
  for (const int64_t num_tokens : kNumTokens) {
    io::testing::write_token_file(token_file(folder, num_tokens), io::testing::counting_tokens(num_tokens), kVocabSize);
  }
  std::ofstream(folder / "model.json") << fmt::format(
      R"({{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": {}, "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 8, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
      "tie_word_embeddings": true, "hidden_act": "silu", "initializer_range": 0.02}})",
      kVocabSize);
}

std::vector<std::string> Start::flags(const std::filesystem::path& folder) const {
  std::vector<std::string> flags;
  const auto add = [&](const char* flag, const auto& value) { flags.push_back(fmt::format("--{}={}", flag, value)); };
  const auto add_given = [&](const char* flag, const auto& value) {
    if (value) add(flag, *value);
  };
  const bool by_file = has_file(settings);
  if (by_file) {
    std::ofstream(folder / "ds_config.json") << ds_config(settings);
    add("deepspeed_config", (folder / "ds_config.json").string());
  } else {
    add("learning_rate", settings.shape.peak);
    if (!settings.has_default_schedule) add("lr_scheduler_type", trainers_name(settings));
    if (!settings.warmup_ratio) add("warmup_steps", settings.shape.warmup);
  }
  add_given("warmup_ratio", settings.warmup_ratio);
  add_given("num_decay_steps", settings.num_decay_steps);
  add_given("max_steps", settings.max_steps);
  add_given("epochs", settings.epochs);
  add_given("num_train_epochs", settings.num_train_epochs);
  add("train_micro_batch_size_per_gpu", micro_batch);
  add("gradient_accumulation_steps", accumulation);
  add("seq_length", settings.seq_length);
  add("shuffle", settings.shuffle);
  add("save_strategy", "epoch");
  add("model_config", (folder / "model.json").string());
  add("train_data", token_file(folder, settings.num_tokens).string());
  if (settings.way != Way::kUnset) {
    constexpr const char* kWays[] = {"", "keep", "rewarm", "extend"};
    add("schedule_on_resume", kWays[static_cast<int>(settings.way)]);
  }
  return flags;
}

std::string Start::command(const std::filesystem::path& folder) const {
  const std::string file = has_file(settings) ? fmt::format("  # ds_config.json: {}", ds_config(settings)) : "";
  return fmt::format("mpirun -n {} mpzero train {}{}", ranks, fmt::join(flags(folder), " "), file);
}

int64_t Generator::between(int64_t least, int64_t most) {
  // Not std::uniform_int_distribution, which differs between standard libraries.
  return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
}

void Generator::draw_batch(Start& start) {
  start.ranks = static_cast<int>(between(1, 4));
  start.micro_batch = between(1, 3);
  start.accumulation = one_in(3) ? between(2, 3) : 1;
  start.settings.batch = start.ranks * start.micro_batch * start.accumulation;
}

void Generator::draw_layout(Start& start) {
  const int64_t batch = start.settings.batch;
  std::vector<std::array<int64_t, 3>> layouts;
  for (int64_t ranks = 1; ranks <= batch; ++ranks) {
    for (int64_t micro_batch = 1; ranks * micro_batch <= batch; ++micro_batch) {
      if (batch % (ranks * micro_batch) == 0) layouts.push_back({ranks, micro_batch, batch / ranks / micro_batch});
    }
  }
  const auto& [ranks, micro_batch, accumulation] =
      layouts[static_cast<size_t>(between(0, static_cast<int64_t>(layouts.size()) - 1))];
  start.ranks = static_cast<int>(ranks);
  start.micro_batch = micro_batch;
  start.accumulation = accumulation;
}

void Generator::draw_schedule(Settings& settings) {
  Shape& shape = settings.shape;
  shape.kind = static_cast<Kind>(between(0, static_cast<int64_t>(Kind::kStable)));
  shape.peak = 1e-3;
  settings.has_default_schedule = shape.kind == Kind::kWarmupCosineLr && one_in(3);
  if (shape.kind == Kind::kFixed) return;
  const bool is_deepspeeds = shape.kind <= Kind::kWarmupCosineLr;
  if (is_deepspeeds && !settings.has_default_schedule) {
    shape.is_log = one_in(2);
    const bool is_cosine = shape.kind == Kind::kWarmupCosineLr;
    shape.warmup_min = one_in(2) ? 0 : is_cosine ? 0.05 : 2e-5;
    if (is_cosine) shape.cos_min_ratio = one_of({0.0, 1e-4, 0.1});
  }
  if (one_in(4)) {
    settings.warmup_ratio = one_of({0.05, 0.1, 0.3});
  } else {
    shape.warmup = one_of<int64_t>({0, 1, 2, 7, 20, 60});
  }
}

void Generator::draw_length(Settings& settings) {
  const int64_t way = between(1, 8);
  if (way <= 3) settings.max_steps = between(5, 150);
  if (way >= 4 && way <= 5) settings.num_train_epochs = one_of({0.5, 1.0, 1.3, 2.0, 3.0});
  if (way >= 6) settings.epochs = between(1, 3);
  if (way == 8) settings.max_steps = between(20, 200);
}

Start Generator::first() {
  for (;;) {
    Start start;
    Settings& settings = start.settings;
    settings.num_tokens = one_of<int64_t>({385, 769, 1000});
    settings.seq_length = one_of<int64_t>({2, 4, 8, 16});
    settings.shuffle = one_in(2);
    draw_batch(start);
    draw_schedule(settings);
    draw_length(settings);
    const int64_t length = settings.steps();
    if (settings.batch > settings.windows() || length < 2) continue;
    const bool has_section = settings.shape.kind > Kind::kWarmupLr && settings.shape.kind <= Kind::kWarmupCosineLr;
    if (has_section && !settings.has_default_schedule && one_in(4)) settings.schedule_end = between(5, length + 40);
    if (settings.shape.kind == Kind::kStable && one_in(2))
      settings.num_decay_steps = between(1, std::max<int64_t>(1, length / 3));
    if (one_in(8)) settings.way = static_cast<Way>(between(1, 3));
    return start;
  }
}

Start Generator::next(const Start& before, int64_t step) {
  for (;;) {
    Start start = before;
    Settings& settings = start.settings;
    if (one_in(3)) {
      draw_batch(start);
    } else if (one_in(2)) {
      draw_layout(start);
    }
    if (one_in(4)) settings.seq_length = one_of<int64_t>({2, 4, 8, 16});
    if (one_in(2)) {
      if (settings.max_steps) settings.max_steps = step + between(1, 150);
      if (settings.epochs) settings.epochs = between(1, 5);
      if (settings.num_train_epochs) settings.num_train_epochs = one_of({1.0, 1.5, 2.0, 4.0});
      if (settings.schedule_end && one_in(2)) settings.schedule_end = step + between(1, 100);
    }
    if (one_in(4)) settings.way = static_cast<Way>(between(0, 3));
    if (settings.batch <= settings.windows()) return start;
  }
}

}  // namespace mpzero::resume_cases
