#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "io/hdf5/file.hpp"
#include "tests/catch.hpp"
#include "tests/io/token_files.hpp"

using mpzero::Failure;
using mpzero::UserError;
using namespace mpzero::io::testing;
using namespace mpzero::io::hdf5;

TEMPLATE_TEST_CASE("numbers in datasets and attributes are read as they were written", "", uint8_t, uint16_t, uint32_t,
                   uint64_t, int8_t, int16_t, int32_t, int64_t, float, double) {
  const TemporaryFolder folder;
  const std::vector<TestType> values = {0, 1, std::numeric_limits<TestType>::max(),
                                        std::numeric_limits<TestType>::lowest()};
  File file = File::create(folder / "numbers.h5");
  file.create_dataset<TestType>("data", values.size()).write(0, std::span<const TestType>(values));
  file.set_attribute("one", values[2]);
  file.set_attribute("many", std::span<const TestType>(values));
  file.close();

  const File opened = File::open(folder / "numbers.h5");
  const Dataset data = opened.dataset("data");
  CHECK(data.holds<TestType>());
  CHECK(data.element_size() == sizeof(TestType));
  std::vector<TestType> read(values.size());
  data.read(0, std::span<TestType>(read));
  CHECK(read == values);
  CHECK(opened.attribute<TestType>("one") == values[2]);
  CHECK(opened.array_attribute<TestType>("many") == values);
}

TEST_CASE("element types are distinguished by kind, size and sign") {
  const TemporaryFolder folder;
  File file = File::create(folder / "types.h5");
  const Dataset data = file.create_dataset<uint32_t>("data", 1);
  CHECK(data.holds<uint32_t>());
  CHECK(!data.holds<int32_t>());
  CHECK(!data.holds<uint16_t>());
  CHECK(!data.holds<float>());
}

TEST_CASE("slabs of one and two dimensions are read and written in place") {
  const TemporaryFolder folder;
  File file = File::create(folder / "slabs.h5");
  const std::array<uint64_t, 2> shape = {3, 4}, chunk = {2, 2};
  Dataset table = file.create_dataset<int32_t>("table", shape, chunk);
  std::vector<int32_t> all(12);
  std::iota(all.begin(), all.end(), 0);
  const std::array<uint64_t, 2> origin = {0, 0}, start = {1, 2}, count = {2, 2};
  table.write(origin, shape, std::span<const int32_t>(all));
  std::vector<int32_t> corner(4);
  table.read(start, count, std::span<int32_t>(corner));
  CHECK(corner == std::vector<int32_t>{6, 7, 10, 11});

  Dataset row = file.create_dataset<int32_t>("row", 6);
  row.write(2, std::span<const int32_t>(corner));
  std::vector<int64_t> converted(3);
  row.read(3, std::span<int64_t>(converted));
  CHECK(converted == std::vector<int64_t>{7, 10, 11});

  CHECK(lacks(message_of<UserError>([&] { row.read(4, std::span<int64_t>(converted)); }),
              {"/row of", "slabs.h5", "ends at 6", "4 to 7", "too short"}) == "");
  CHECK(lacks(message_of<UserError>([&] { table.read(0, std::span<int64_t>(converted)); }), {"has 2 dimensions"}) ==
        "");
  CHECK_THROWS_AS(table.read(start, count, std::span<int64_t>(converted)), Failure);
}

TEST_CASE("string attributes may have any length, and replacing one keeps only the last") {
  const TemporaryFolder folder;
  const std::string length_of_a_config(200'000, 'x');  // beyond the 64 KiB of an object header
  File file = File::create(folder / "texts.h5");
  Group group = file.create_group("run");
  group.set_attribute("json", "first");
  group.set_attribute("json", length_of_a_config);
  group.set_attribute("empty", "");
  group.set_attribute("unicode", "Tolstói – Война и мир");
  group.set_attribute("number", 7);
  CHECK_THROWS_AS(group.set_attribute("zero", std::string("a\0b", 3)), Failure);
  file.close();

  const File opened = File::open(folder / "texts.h5");
  const Group read = opened.group("run");
  CHECK(read.text_attribute("json") == length_of_a_config);
  CHECK(read.text_attribute("empty").empty());
  CHECK(read.text_attribute("unicode") == "Tolstói – Война и мир");
  CHECK(read.has_attribute("number"));
  CHECK(!read.has_attribute("nothing"));
  CHECK(lacks(message_of<UserError>([&] { read.text_attribute("number"); }), {"'number' on /run of", "not a string"}) ==
        "");
  CHECK(lacks(message_of<UserError>([&] { read.attribute<int>("json"); }), {"'json' on /run of", "texts.h5"}) == "");
  CHECK(lacks(message_of<UserError>([&] { read.attribute<int>("lr"); }), {"'lr' is missing from /run of"}) == "");
}

TEST_CASE("an in-memory file gives the same results as the file on disk") {
  const TemporaryFolder folder;
  const std::array<uint64_t, 1> shape = {4}, chunk = {2};
  const std::vector<int32_t> numbers = {3, -1, 2, 7};
  File file = File::create(folder / "a.h5");
  file.set_attribute("json", "a text of variable length");
  file.create_dataset<int32_t>("numbers", shape, chunk).write(0, std::span<const int32_t>(numbers));
  file.close();

  std::ifstream in(folder / "a.h5", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const File opened = File::open_image(folder / "not there.h5", std::as_bytes(std::span(bytes)));
  CHECK(opened.text_attribute("json") == "a text of variable length");
  std::vector<int32_t> read(numbers.size());
  opened.dataset("numbers").read(0, std::span<int32_t>(read));
  CHECK(read == numbers);
}

TEST_CASE("groups list their objects, and missing objects are reported") {
  const TemporaryFolder folder;
  File file = File::create(folder / "groups.h5");
  Group units = file.create_group("units");
  units.create_dataset<float>("layers.1", 2);
  units.create_dataset<float>("layers.0", 2);
  CHECK(units.names() == std::vector<std::string>{"layers.0", "layers.1"});
  CHECK(units.contains("layers.0"));
  CHECK(!units.contains("layers.2"));
  CHECK(lacks(message_of<UserError>([&] { units.dataset("layers.2"); }), {"groups.h5 has no /units/layers.2"}) == "");
  CHECK(lacks(message_of<UserError>([&] { file.group("run"); }), {"groups.h5 has no /run"}) == "");
  CHECK_THROWS_AS(units.create_dataset<float>("layers.0", 2), Failure);
}

TEST_CASE("a path that is not writable is reported with the reason") {
  CHECK(lacks(message_of<UserError>([] { File::create("/nowhere/at/all.h5"); }),
              {"cannot write /nowhere/at/all.h5", "No such file"}) == "");
}

TEST_CASE("different files can be used on different threads concurrently") {
  const TemporaryFolder folder;
  std::vector<std::jthread> threads;
  std::array<int64_t, 4> sums{};
  for (size_t t = 0; t < sums.size(); ++t) {
    threads.emplace_back([&, t] {
      const auto path = folder / ("thread" + std::to_string(t) + ".h5");
      const std::vector<uint32_t> tokens(5000, static_cast<uint32_t>(t + 1));
      for (int repeat = 0; repeat < 10; ++repeat) {
        write_token_file(path, tokens, 100);
        const File file = File::open(path);
        std::vector<int64_t> read(100);
        for (uint64_t begin = 0; begin < tokens.size(); begin += read.size()) {
          file.dataset("tokens").read(begin, std::span<int64_t>(read));
          sums[t] += std::accumulate(read.begin(), read.end(), int64_t{0});
        }
      }
    });
  }
  threads.clear();
  for (size_t t = 0; t < sums.size(); ++t) CHECK(sums[t] == static_cast<int64_t>(50000 * (t + 1)));
}
