#include <fstream>
#include <limits>

#include "app/flags/validation_data.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

namespace mpzero {
namespace {

using Catch::Contains;
using Files = std::vector<ValidationFile>;

Files read(const std::string& text) { return parse_command_line({"--validation_data=" + text}).validation_data; }

TEST_CASE("a single file has no name; a list has named files") {
  CHECK(read("v.h5") == Files{{.name = "", .path = "v.h5"}});
  CHECK(read("wiki=a.h5,code=data/b.h5") == Files{{"wiki", "a.h5"}, {"code", "data/b.h5"}});
  CHECK(read("wiki-2_en=a.h5") == Files{{"wiki-2_en", "a.h5"}});
  CHECK(read("data/lr=3/v.h5") == Files{{.name = "", .path = "data/lr=3/v.h5"}});
  CHECK(read("wiki=lr=3/v.h5") == Files{{"wiki", "lr=3/v.h5"}});
}

TEST_CASE("a file without a name is named after its stem; an existing path with a comma is one file") {
  CHECK(read("data/a.h5,b.h5") == Files{{"a", "data/a.h5"}, {"b", "b.h5"}});
  CHECK(read("./lr=3/v.h5,wiki=w.h5") == Files{{"v", "./lr=3/v.h5"}, {"wiki", "w.h5"}});
  const io::testing::TemporaryFolder folder;
  for (const char* name : {"a,b.h5", "a=b,c=d.h5"}) {
    const std::string path = (folder / name).string();
    std::ofstream(path) << "tokens";
    CHECK(read(path) == Files{{.name = "", .path = path}});
  }
}

TEST_CASE("an invalid list is refused, and the set is reported") {
  for (const auto& [text, words] : {std::pair("wiki=a.h5,", "\"\" has no path"),
                                    {"=a.h5", "invalid name \"\""},
                                    {"wiki=", "\"wiki=\" has no path"},
                                    {"data/a.h5,a.h5", "duplicate name a"},
                                    {"wiki=a.h5,wiki=b.h5", "duplicate name wiki"},
                                    {"my wiki=a.h5", "invalid name \"my wiki\""},
                                    {"wiki=a.h5,b/c=d.h5", "invalid name \"c=d\""}}) {
    INFO(text);
    CHECK_THAT(error_from([&] { read(text); }), Contains(words) && Contains("--validation_data"));
  }
}

TEST_CASE("a set's flag round-trips, and its loss key contains its name") {
  CHECK(show_validation_data(parse_command_line({"--validation_data=wiki=a.h5,code=b.h5"})) == "wiki=a.h5,code=b.h5");
  CHECK(show_validation_data(parse_command_line({"--validation_data=a.h5,b.h5"})) == "a=a.h5,b=b.h5");
  CHECK(validation_loss_key("") == "validation_loss");
  CHECK(validation_loss_key("wiki") == "validation_wiki_loss");
}

TEST_CASE("--validation_batches counts micro-batches on all ranks, with a warning") {
  const std::string json = trio(0, 3, 2);
  const Result four = run(json, {"--validation_data=v.h5", "--validation_batches=5"}, /*world_size=*/4);
  CHECK(four.config.validation_sequences == 5 * 3 * 4);
  REQUIRE(warnings_with(four, "--validation_sequences 60").size() == 1);
  const Result none = run(json, {"--validation_data=v.h5"});
  CHECK(none.config.validation_sequences == Settings{}.validation_sequences);
  CHECK(warnings_with(none, "validation").empty());
  CHECK_THAT(error_of(json, {"--validation_data=v.h5", "--validation_batches=5", "--validation_sequences=60"}),
             Contains("omit --validation_batches"));
  const Result without_data = run(json, {"--validation_batches=5"});
  CHECK(without_data.config.validation_sequences == Settings{}.validation_sequences);
  CHECK(warnings_with(without_data, "--validation_batches 5 has no effect").size() == 1);
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  const std::string most = fmt::format("--validation_batches={}", kLargest);
  CHECK(run(json, {"--validation_data=v.h5", most}).config.validation_sequences == kLargest);
}

}  // namespace
}  // namespace mpzero
