#include <nlohmann/json.hpp>

#include "io/data/token_dataset.hpp"
#include "io/data/token_identity.hpp"
#include "io/data/tokenization.hpp"
#include "io/hdf5/file.hpp"
#include "tests/catch.hpp"
#include "tests/io/token_files.hpp"

namespace mpzero::io {
using namespace testing;

TEST_CASE("the recorded tokenization of a token file is read, and older files lack it") {
  const TemporaryFolder folder;
  write_token_file(folder / "old.h5", std::vector<uint16_t>{1, 2, 3}, 100);
  const Tokenization old = TokenDataset(folder / "old.h5", 1).tokenization();
  CHECK(old == Tokenization{.tokenizer = "counting",
                            .vocab_size = 100,
                            .eos_token_id = 99,
                            .bos_token_id = {},
                            .add_bos = {},
                            .end_of_turn_token_id = {},
                            .chat_template = {},
                            .tokenizer_hash = {}});
  hdf5::File file = hdf5::File::create(folder / "new.h5");
  add_tokens(file, std::vector<uint16_t>{1, 2, 3}, 100, {0, 3});
  file.set_attribute("bos_token_id", int64_t{7});
  file.set_attribute("add_bos", int64_t{1});
  file.set_attribute("end_of_turn_token_id", int64_t{9});
  file.set_attribute("chat_template", "{{ messages }}\n");
  file.set_attribute("tokenizer_hash", "xxh3:0123456789abcdef");
  file.close();
  const Tokenization found = TokenDataset(folder / "new.h5", 1).tokenization();
  CHECK((found.bos_token_id == 7 && found.add_bos == true && found.tokenizer_hash == "xxh3:0123456789abcdef"));
  CHECK((found.end_of_turn_token_id == 9 && found.chat_template == "{{ messages }}\n"));
  CHECK(read_token_identity(folder / "new.h5").tokenization == found);
  for (const Tokenization& tokens : {old, found, Tokenization{}}) {
    const nlohmann::ordered_json written = tokens;
    CHECK(nlohmann::json(written).get<Tokenization>() == tokens);
  }
  CHECK(nlohmann::json::parse(R"({"eos_token_id": "x", "add_bos": 3})").get<Tokenization>() == Tokenization{});
  CHECK(nlohmann::json().get<Tokenization>() == Tokenization{});
}

}  // namespace mpzero::io
