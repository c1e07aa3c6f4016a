#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/weights/tokenizer_files.hpp"
#include "tests/catch.hpp"
#include "tests/io/stub_checkpoint.hpp"
#include "tests/io/temporary_folder.hpp"

namespace mpzero::io {
namespace {

void none(const std::string& warning) { FAIL(warning); }

TEST_CASE("the tokenizer is found in the initial weights' folder or in the token file") {
  const testing::TemporaryFolder weights, tokenizer;
  testing::StubCheckpoint checkpoint;
  CHECK(recorded_tokenizer(checkpoint).empty());
  CHECK(tokenizer_folder(checkpoint, none).empty());
  checkpoint.made.data_order = "187 sequences of 16 tokens, tokenizer " + tokenizer.path().string() + ", shuffled";
  CHECK(recorded_tokenizer(checkpoint) == tokenizer.path());
  CHECK(tokenizer_folder(checkpoint, none).empty());
  std::ofstream(tokenizer / "tokenizer.json") << "{}";
  CHECK(tokenizer_folder(checkpoint, none) == tokenizer.path());
  checkpoint.record.init_from = weights.path();
  std::ofstream(weights / "tokenizer.model") << "x";
  CHECK(tokenizer_folder(checkpoint, none) == weights.path());
}

constexpr const char* kTokenizer = R"({"model": {"vocab": {"a": 0, "b": 1}}})";
constexpr const char* kOther = R"({"model": {"vocab": {"a": 1, "b": 0}}})";

TEST_CASE("a tokenizer that differs from the token file's is not used") {
  const testing::TemporaryFolder weights, data;
  std::ofstream(weights / "tokenizer.json") << kOther;
  std::ofstream(data / "tokenizer.json") << kTokenizer;
  testing::StubCheckpoint checkpoint;
  checkpoint.record.init_from = weights.path();
  checkpoint.made.data_order = "187 sequences of 16 tokens, tokenizer " + data.path().string() + ", shuffled";
  CHECK(tokenizer_folder(checkpoint, none) == weights.path());
  checkpoint.made.settings_json = fmt::format(
      R"({{"train_data": {{"tokenization": {{"tokenizer_hash": "{}", "eos_token_id": 7, "add_bos": true}}}}}})",
      tokenizer_hash_of(data.path()));
  CHECK(recorded_tokenization(checkpoint).add_bos == true);
  CHECK(tokenizer_folder(checkpoint, none) == data.path());
  CHECK(more_eos_ids(checkpoint, data.path(), none) == std::vector<int64_t>{7});
  std::ofstream(data / "generation_config.json") << R"({"eos_token_id": [7, 3]})";
  CHECK(more_eos_ids(checkpoint, data.path(), none) == std::vector<int64_t>{7, 7, 3});
  CHECK(more_eos_ids(checkpoint, "", none) == std::vector<int64_t>{7});
  testing::StubCheckpoint mixture;
  mixture.made.data_order = "187 sequences of 16 tokens, tokenizer other, shuffled, of 2 files";
  mixture.made.settings_json =
      fmt::format(R"({{"train_data": {{"tokenization": {{"tokenizer": "{}"}}}}}})", data.path().string());
  CHECK(recorded_tokenizer(mixture) == data.path());
  testing::StubCheckpoint chat;
  chat.made.settings_json = R"({"train_data": {"tokenization": {"eos_token_id": 7, "end_of_turn_token_id": 9}}})";
  CHECK(more_eos_ids(chat, "", none) == std::vector<int64_t>{7, 9});

  // A checkpoint outlives the files of the folder that its run began with.
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& text) { warnings.push_back(text); };
  std::ofstream(weights / "tokenizer.json") << "[";
  CHECK(tokenizer_folder(checkpoint, warn) == data.path());
  std::ofstream(data / "generation_config.json") << "[";
  CHECK(more_eos_ids(checkpoint, data.path(), warn) == std::vector<int64_t>{7});
  REQUIRE(warnings.size() == 2);
  CHECK_THAT(warnings[0], Catch::Contains((weights / "tokenizer.json").string()));
  CHECK_THAT(warnings[1], Catch::Contains((data / "generation_config.json").string()));
  const testing::TemporaryFolder output;
  CHECK(copy_tokenizer(data.path(), output.path(), false) == std::vector<std::string>{"tokenizer.json"});
}

TEST_CASE("a run on bytes has no tokenizer folder, even if the initial weights' folder contains a tokenizer") {
  const testing::TemporaryFolder weights;
  std::ofstream(weights / "tokenizer.json") << kTokenizer;
  testing::StubCheckpoint checkpoint;
  checkpoint.record.init_from = weights.path();
  checkpoint.made.data_order = "187 sequences of 16 tokens, tokenizer bytes, shuffled";
  CHECK(tokenizer_folder(checkpoint, none).empty());
  checkpoint.made.data_order = "187 sequences of 16 tokens, tokenizer other, shuffled";
  CHECK(tokenizer_folder(checkpoint, none) == weights.path());
}

TEST_CASE("generation_config.json has one id, several or none, and receives those of config.json") {
  const testing::TemporaryFolder folder;
  std::vector<std::string> warnings;
  CHECK(generation_eos_ids(folder.path(), 100, none).empty());
  const auto with = [&](const std::string& text) {
    std::ofstream(folder / "generation_config.json") << text;
    return generation_eos_ids(folder.path(), 100, [&](const std::string& text) { warnings.push_back(text); });
  };
  CHECK(with("{}").empty());
  CHECK(with(R"({"eos_token_id": null})").empty());
  CHECK(with(R"({"eos_token_id": 3})") == std::vector<int64_t>{3});
  CHECK(with(R"({"eos_token_id": [3, 1]})") == std::vector<int64_t>{3, 1});
  CHECK(warnings.empty());
  CHECK(with(R"({"eos_token_id": [-1, 99, 100, 18446744073709551615]})") == std::vector<int64_t>{99});
  REQUIRE(warnings.size() == 3);
  CHECK_THAT(warnings[2], Catch::Contains("generation_config.json") && Catch::Contains("18446744073709551615"));
  CHECK_THROWS_WITH(with(R"({"eos_token_id": "x"})"), Catch::Contains("generation_config.json"));
  CHECK_THROWS_AS(with("["), UserError);

  with(R"({"eos_token_id": [3], "pad_token_id": 4, "bos_token_id": 5, "top_p": 0.5})");
  agree_with_config(folder.path(), R"({"eos_token_id": [2, 3], "pad_token_id": 6, "bos_token_id": null})");
  std::ifstream file(folder / "generation_config.json");
  CHECK(nlohmann::json::parse(file) ==
        nlohmann::json::parse(R"({"eos_token_id": [2, 3], "pad_token_id": 6, "bos_token_id": 5, "top_p": 0.5})"));

  const testing::TemporaryFolder empty;
  const std::string model = R"({"eos_token_id": [2, 3], "bos_token_id": 6, "pad_token_id": null, "hidden_size": 8})";
  agree_with_config(empty.path(), model);
  CHECK_FALSE(std::filesystem::exists(empty / "generation_config.json"));
  agree_with_config(empty.path(), model, /*creates=*/true);
  std::ifstream created(empty / "generation_config.json");
  CHECK(nlohmann::json::parse(created) == nlohmann::json::parse(R"({"eos_token_id": [2, 3], "bos_token_id": 6})"));
}

TEST_CASE("existing files are kept unless they are to be replaced") {
  const testing::TemporaryFolder from, to;
  CHECK_THROWS_AS(copy_tokenizer(from.path(), to.path(), false), UserError);
  for (const char* name : {"tokenizer.json", "generation_config.json", "README.md"}) std::ofstream(from / name) << "{}";
  std::ofstream(to / "tokenizer.json") << "old";
  CHECK(copy_tokenizer(from.path(), to.path(), false) == std::vector<std::string>{"generation_config.json"});
  CHECK(copy_tokenizer(from.path(), to.path(), true) ==
        std::vector<std::string>{"tokenizer.json", "generation_config.json"});
  CHECK_FALSE(std::filesystem::exists(to / "README.md"));
}

}  // namespace
}  // namespace mpzero::io
