#include <fstream>

#include "app/dry_run/tokenizer_file.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

TEST_CASE("token ids are counted in the tokenizer's files") {
  const io::testing::TemporaryFolder folder;
  CHECK(read_tokenizer_size("bytes")->all == 257);
  const auto empty = folder / "empty";
  std::filesystem::create_directory(empty);
  CHECK_THAT(error_from([&] { read_tokenizer_size(empty.string()); }), Contains("neither tokenizer.json nor"));

  std::ofstream(folder / "vocab.json") << R"({"a": 0, "b": 6})";
  std::ofstream(folder / "merges.txt") << "";
  CHECK(read_tokenizer_size(folder.path().string())->regular == 7);

  const auto file = folder / "tokenizer.json";
  std::ofstream(file) << R"({"model": {"vocab": {"a": 0, "b": 3}}, "added_tokens": [{"id": 9, "content": "<s>"}]})";
  for (const auto& path : {folder.path(), file}) {
    const std::optional<TokenizerSize> size = read_tokenizer_size(path.string());
    REQUIRE(size);
    CHECK(size->regular == 4);
    CHECK(size->all == 10);
  }
  std::ofstream(file) << R"({"model": {"vocab": [["a", -1.0], ["b", -2.0]]}})";
  CHECK(read_tokenizer_size(file.string())->all == 2);
}

TEST_CASE("a damaged tokenizer.json is refused with its path") {
  const io::testing::TemporaryFolder folder;
  const std::string file = (folder / "tokenizer.json").string();
  const std::string deep(300'000, '[');
  for (const std::string& text :
       {"{\"model\": " + deep + "}", std::string(R"({"model": "x"})"),
        std::string(R"({"model": {"vocab": {"a": "x"}}})"),
        std::string(R"({"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": "x"}]})"),
        std::string(R"({"model": {"vocab": {"a": 0}}, "added_tokens": ["x"]})"),
        std::string(R"({"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 9223372036854775807}]})"),
        std::string(R"({"model": {"vocab": {"a": -1}}})")}) {
    std::ofstream(file) << text;
    INFO(text.substr(0, 80));
    CHECK_THAT(error_from([&] { read_tokenizer_size(file); }), Contains(file));
  }
}

TEST_CASE("a Hub name is not looked up, and a missing path is refused") {
  CHECK_FALSE(read_tokenizer_size("Qwen/Qwen3-0.6B"));
  CHECK_THAT(error_from([] { read_tokenizer_size("/no/such/folder"); }), Contains("/no/such/folder does not exist"));
  const io::testing::TemporaryFolder folder;
  std::ofstream(folder / "broken.json") << "[";
  CHECK_THAT(error_from([&] { read_tokenizer_size((folder / "broken.json").string()); }), Contains("broken.json"));
}

}  // namespace
}  // namespace mpzero
