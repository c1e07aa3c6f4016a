#pragma once

#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/app/checkpoint/resume_model.hpp"

// Random chains of starts, as command lines and as the settings of resume_model.
namespace mpzero::resume_cases {

// One start: what the model reads, and what `mpzero train` reads.
struct Start {
  resume_model::Settings settings;
  int ranks = 1;
  int64_t micro_batch = 1, accumulation = 1;

  // `folder` has the token files and the model; ds_config.json is written there if the start has one.
  std::vector<std::string> flags(const std::filesystem::path& folder) const;
  std::string command(const std::filesystem::path& folder) const;  // with the text of ds_config.json
};

inline constexpr int64_t kVocabSize = 1024;
// The token files of these numbers of tokens are in the folder: token i is i.
inline constexpr int64_t kNumTokens[] = {385, 769, 1000};
std::filesystem::path token_file(const std::filesystem::path& folder, int64_t num_tokens);
void write_files(const std::filesystem::path& folder);

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  int64_t between(int64_t least, int64_t most);
  bool one_in(int64_t count) { return between(1, count) == 1; }
  Start first();
  // Some of: another batch, layout, seq_length, length, --schedule_on_resume; or nothing.
  Start next(const Start& before, int64_t step);
  // Another layout of the same global batch.
  void draw_layout(Start& start);
  void draw_batch(Start& start);

 private:
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + between(0, static_cast<int64_t>(values.size()) - 1));
  }
  void draw_schedule(resume_model::Settings& settings);
  void draw_length(resume_model::Settings& settings);

  std::mt19937_64 random_;
};

}  // namespace mpzero::resume_cases
