#include <fstream>

#include "app/tokens/train_files.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

namespace mpzero {
namespace {

using Catch::Contains;
using Files = std::vector<TrainFile>;

TEST_CASE("either all files of a mixture have weights or none") {
  CHECK(train_files("data/t.h5") == Files{{.path = "data/t.h5"}});
  CHECK(train_files("a.h5,b.h5") == Files{{.path = "a.h5"}, {.path = "b.h5"}});
  CHECK(train_files("a.h5:0.7,data/b.h5:3e-1") ==
        Files{{.path = "a.h5", .weight = 0.7}, {.path = "data/b.h5", .weight = 0.3}});
  CHECK(train_files("a.h5:0.7, b.h5:0.3").back() == TrainFile{.path = "b.h5", .weight = 0.3});
  CHECK(train_files("a:b.h5") == Files{{.path = "a:b.h5"}});
  for (const auto& [text, words] : {std::pair("a.h5:0.7,b.h5", "b.h5 has no weight"),
                                    {"a.h5,b.h5:0.7", "a.h5 has no weight"},
                                    {"a.h5=0.7,b.h5=0.3", "a.h5:0.7"},
                                    {"a.h5:0,b.h5:1", "the weight of a.h5:0"},
                                    {"a.h5:-1,b.h5:1", "the weight of a.h5:-1"},
                                    {"a.h5:inf,b.h5:1", "the weight of a.h5:inf"},
                                    {"a.h5:1e999,b.h5:1", "the weight of a.h5:1e999"},
                                    {"a.h5:1e308,b.h5:1e308", "the weight of a.h5:1e308"},
                                    {"a.h5:1e-300,b.h5:1", "the weight of a.h5:1e-300"},
                                    {"a.h5,", "an empty path"},
                                    {":1,b.h5:1", "an empty path"}}) {
    INFO(text);
    CHECK_THAT(error_from([&] { train_files(text); }), Contains(words) && Contains("--train_data"));
  }
}

TEST_CASE("an existing path is a single file, whatever its name") {
  const io::testing::TemporaryFolder folder;
  const std::string path = (folder / "a,b.h5:2").string();
  std::ofstream(path) << "tokens";
  CHECK(train_files(path) == Files{{.path = path}});
}

}  // namespace
}  // namespace mpzero
