#include <fstream>

#include "base/error.hpp"
#include "io/weights/tokenizer_files.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

namespace mpzero::io {
namespace {

class OfRun final : public StoredCheckpoint {
 public:
  const std::filesystem::path& folder() const override { return folder_; }
  const RunRecord& run() const override { return record; }
  const TrainingProgress& progress() const override { return made; }
  std::span<const ParameterSpec> parameters() const override { return {}; }
  void read(const std::string&, StateKind, int64_t, std::span<float>) const override {}
  void verify_what_was_read(ProcessGroup&) const override {}
  void verify() const override {}

  RunRecord record;
  TrainingProgress made;

 private:
  std::filesystem::path folder_;
};

TEST_CASE("the tokenizer is that of the initial weights, or of the token file") {
  const testing::TemporaryFolder weights, tokenizer;
  OfRun checkpoint;
  CHECK(recorded_tokenizer(checkpoint).empty());
  CHECK(tokenizer_folder(checkpoint).empty());
  checkpoint.made.data_order = "187 sequences of 16 tokens, tokenizer " + tokenizer.path().string() + ", shuffled";
  CHECK(recorded_tokenizer(checkpoint) == tokenizer.path());
  CHECK(tokenizer_folder(checkpoint).empty());
  std::ofstream(tokenizer / "tokenizer.json") << "{}";
  CHECK(tokenizer_folder(checkpoint) == tokenizer.path());
  checkpoint.record.init_from = weights.path();
  std::ofstream(weights / "tokenizer.model") << "x";
  CHECK(tokenizer_folder(checkpoint) == weights.path());
}

TEST_CASE("what is there already stays unless it is to be replaced") {
  const testing::TemporaryFolder from, to;
  CHECK_THROWS_AS(copy_tokenizer(from.path(), to.path(), false), UserError);
  for (const char* name : {"tokenizer.json", "generation_config.json", "README.md"})
    std::ofstream(from / name) << "new";
  std::ofstream(to / "tokenizer.json") << "old";
  CHECK(copy_tokenizer(from.path(), to.path(), false) == std::vector<std::string>{"generation_config.json"});
  CHECK(copy_tokenizer(from.path(), to.path(), true) ==
        std::vector<std::string>{"tokenizer.json", "generation_config.json"});
  CHECK_FALSE(std::filesystem::exists(to / "README.md"));
}

}  // namespace
}  // namespace mpzero::io
