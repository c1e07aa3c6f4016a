#include "tests/app/checkpoint/resume_runs.hpp"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "base/process_group.hpp"
#include "io/data/data_loader.hpp"
#include "tests/catch.hpp"
#include "tests/io/stub_checkpoint.hpp"

namespace mpzero::resume_cases {
namespace {

constexpr int64_t kEpochsInOrder = 12;

int64_t number_in(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::stoll(text);
}

// What a run saves, of which only the progress is read.
io::testing::StubCheckpoint saved_by(const RunSetup& setup, const RunPosition& at) {
  const RunConfig& config = setup.config;
  io::testing::StubCheckpoint saved;
  saved.made.step = at.step;
  saved.made.tokens_seen = at.tokens_seen;
  saved.made.sequences_seen = at.sequences_seen;
  saved.made.seed = config.seed;
  saved.made.data_order = setup.data_order;
  saved.made.lr = config.lr(at.step);
  saved.made.dtype = config.dtype;
  saved.made.model_config_json = setup.model.to_json();
  saved.made.run_config_json = config.ds_config_json;
  saved.made.settings_json = recorded_settings(setup).dump();
  return saved;
}

// Checks that a micro-batch's sequence is a whole window of the file, whose token i is i, and returns the window.
int64_t window_in(const io::MicroBatch& batch, int64_t sequence, int64_t seq_length) {
  const auto begin = static_cast<size_t>(sequence * seq_length);
  const int64_t first = batch.tokens[begin];
  bool is_whole = first % seq_length == 0;
  for (int64_t i = 0; i < seq_length; ++i) {
    const size_t at = begin + static_cast<size_t>(i);
    is_whole = is_whole && batch.tokens[at] == first + i && batch.targets[at] == first + i + 1;
  }
  CHECK(is_whole);
  return first / seq_length;
}

io::TokenDataset tokens(const std::filesystem::path& folder, const Settings& settings) {
  return {token_file(folder, settings.num_tokens), settings.seq_length};
}

}  // namespace

RunPosition ProductRun::at(int64_t step) const {
  const RunConfig& config = setup.config;
  const int64_t sequences = (step - position.step) * config.train_batch_size;
  return {.step = step,
          .sequences_seen = position.sequences_seen + sequences,
          .tokens_seen = position.tokens_seen + sequences * config.seq_length};
}

RunSetup Inputs::set_up(const Start& start) const {
  RunSetup setup = set_up_run(parse_command_line(start.flags(folder())), start.ranks);
  SingleProcess alone;
  setup.data = identify_data(setup.config, alone);
  return setup;
}

ProductRun Inputs::begin(const Start& start) const { return {.setup = set_up(start), .position = {}}; }

ProductRun Inputs::resume(const ProductRun& before, int64_t stop, const Start& start) const {
  RunSetup setup = set_up(start);
  const io::testing::StubCheckpoint saved = saved_by(before.setup, before.at(stop));
  const Continuation run = continue_run(saved, setup);
  check_unfinished(saved, setup, run);
  if (run.config.max_steps <= stop) throw UserError("the run has finished");
  setup.config = run.config;
  return {.setup = setup, .position = run.position};
}

const std::vector<int64_t>& Inputs::order(const Settings& settings) const {
  std::vector<int64_t>& order = orders_[{settings.num_tokens, settings.seq_length, settings.shuffle}];
  if (!order.empty()) return order;
  const int64_t windows = settings.windows();
  io::DataLoader loader(tokens(folder(), settings),
                        {.data_parallel = {},
                         .seed = mpzero::Settings{}.seed,
                         .shuffle = settings.shuffle,
                         .vocab_limit = kVocabSize,
                         .read_ahead = 256,
                         .first_window = 0},
                        /*first_step=*/0);
  for (int64_t i = 0; i < windows * kEpochsInOrder; ++i) {
    order.push_back(window_in(loader.next(), 0, settings.seq_length));
  }
  for (int64_t epoch = 0; epoch < kEpochsInOrder; ++epoch) {
    std::vector<int64_t> sorted(order.begin() + epoch * windows, order.begin() + (epoch + 1) * windows);
    CHECK(std::is_sorted(sorted.begin(), sorted.end()) != settings.shuffle);
    std::sort(sorted.begin(), sorted.end());
    for (int64_t window = 0; window < windows; ++window) CHECK(sorted[static_cast<size_t>(window)] == window);
  }
  return order;
}

std::vector<int64_t> Inputs::windows_read(const Start& start, const ProductRun& run, int64_t done,
                                          int64_t steps) const {
  const RunConfig& config = run.setup.config;
  const int64_t micro_batch = config.micro_batch_size;
  std::vector<std::vector<int64_t>> of_ranks;
  for (int rank = 0; rank < start.ranks; ++rank) {
    io::DataLoader loader(tokens(folder(), start.settings),
                          {.micro_batch_size = micro_batch,
                           .gradient_accumulation_steps = config.gradient_accumulation_steps,
                           .data_parallel = {.rank = rank, .size = start.ranks},
                           .seed = config.seed,
                           .shuffle = config.shuffle,
                           .vocab_limit = kVocabSize,
                           .read_ahead = 64,
                           .first_window = run.at(done).sequences_seen},
                          done);
    std::vector<int64_t>& windows = of_ranks.emplace_back();
    for (int64_t i = 0; i < steps * config.gradient_accumulation_steps; ++i) {
      const io::MicroBatch batch = loader.next();
      for (int64_t b = 0; b < micro_batch; ++b) windows.push_back(window_in(batch, b, start.settings.seq_length));
    }
  }
  // Micro-batch by micro-batch, rank by rank.
  std::vector<int64_t> windows;
  for (size_t begin = 0; begin < of_ranks.front().size(); begin += static_cast<size_t>(micro_batch)) {
    for (const std::vector<int64_t>& of_rank : of_ranks) {
      const auto first = of_rank.begin() + static_cast<int64_t>(begin);
      windows.insert(windows.end(), first, first + micro_batch);
    }
  }
  return windows;
}

CaseNumbers case_numbers() {
  const char* nightly = std::getenv("NIGHTLY");
  const bool is_nightly = nightly != nullptr && std::string(nightly) == "1";
  const int64_t first = number_in("RESUME_FIRST", 1);
  return {first, first + number_in("RESUME_CASES", is_nightly ? 4000 : 500)};
}

}  // namespace mpzero::resume_cases
