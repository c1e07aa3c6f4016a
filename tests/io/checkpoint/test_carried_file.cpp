#include <algorithm>
#include <bit>
#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/checkpoint/carried_file.hpp"
#include "io/hdf5/file.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

namespace mpzero::io {
namespace {

using Catch::Contains;

std::vector<std::byte> bytes_of(const auto& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  return {bytes.begin(), bytes.end()};
}

std::vector<uint16_t> ramp(int64_t count) {
  std::vector<uint16_t> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<uint16_t>(31 * i));
  return numbers;
}

// Contents by index.
const std::vector<std::vector<std::byte>>& contents() {
  static const std::vector<std::vector<std::byte>> all{
      bytes_of(ramp(8192)), bytes_of(ramp(4096)), bytes_of(std::vector<float>{0.5F, -1.0F, 1e-30F}), {}};
  return all;
}

// Each fetch overwrites the one before.
CarriedState state() {
  return {.nodes = 3,
          .ranks_per_node = 2,
          .values = {{"layers.0", "gradient_residual", {2, 4096}, true},
                     {"layers.0", "parameters", {4096}, true},
                     {"head", "parameters", {3}, false},
                     {"head", "gradient_residual", {2, 0}, false}},
          .fetch = [staging = std::vector<std::byte>()](size_t index) mutable {
            staging = contents()[index];
            return std::span<const std::byte>(staging);
          }};
}

std::vector<std::byte> bytes_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return bytes_of(chars);
}

}  // namespace

TEST_CASE("a carried-state file round-trips, read by mpzero and by HDF5") {
  const testing::TemporaryFolder folder;
  const CarriedState written = state();
  const ManifestFile entry = write_carried_file(folder.path(), "a.h5", written);
  const std::vector<std::byte> bytes = bytes_of_file(folder / "a.h5");
  CHECK(entry.name == "a.h5");
  CHECK(entry.size == static_cast<int64_t>(bytes.size()));
  CHECK(entry.datasets.empty());
  CHECK(entry.structure_checksum == checksum(bytes));
  CHECK(written.bytes() == 2 * 8192 + 2 * 4096 + 12);

  const StoredCarried read = read_carried_file(folder / "a.h5", bytes, written.values);
  CHECK(read.nodes == 3);
  CHECK(read.ranks_per_node == 2);
  REQUIRE(read.values.size() == written.values.size());
  for (size_t i = 0; i < read.values.size(); ++i) {
    REQUIRE(read.values[i]);
    CHECK((*read.values[i] == contents()[i]));
  }

  const hdf5::File file = hdf5::File::open(folder / "a.h5");
  std::vector<float> head(3);
  file.group("head").dataset("parameters").read(0, std::span(head));
  CHECK(head == std::vector<float>{0.5F, -1.0F, 1e-30F});
}

TEST_CASE("ignores carried values with another unit, name, shape or dtype") {
  const testing::TemporaryFolder folder;
  write_carried_file(folder.path(), "a.h5", state());
  const std::vector<CarriedValues> wanted{
      {"layers.1", "parameters", {4096}, true},  {"layers.0", "moments", {4096}, true},
      {"layers.0", "parameters", {4095}, true},  {"layers.0", "parameters", {1, 4096}, true},
      {"layers.0", "parameters", {4096}, false}, {"layers.0", "parameters", {4096}, true}};
  const StoredCarried read = read_carried_file(folder / "a.h5", bytes_of_file(folder / "a.h5"), wanted);
  for (size_t i = 0; i + 1 < wanted.size(); ++i) CHECK_FALSE(read.values[i]);
  CHECK((read.values.back() == contents()[1]));
}

TEST_CASE("reading a carried-state file uses memory only for the requested values") {
  const testing::TemporaryFolder folder;
  {
    hdf5::File file = hdf5::File::create(folder / "large.h5");
    file.set_attribute("format_version", int64_t{1});
    file.set_attribute("nodes", int64_t{2});
    file.set_attribute("ranks_per_node", int64_t{1});
    hdf5::Group group = file.create_group("head");
    // 4 TiB, of which no chunk is written.
    const uint64_t extent = uint64_t{1} << 40, chunk = 1 << 20;
    group.create_dataset<float>("parameters", std::span(&extent, 1), std::span(&chunk, 1));
    file.close();
  }
  const std::vector<CarriedValues> wanted{{"head", "parameters", {3}, false}};
  const StoredCarried read = read_carried_file(folder / "large.h5", bytes_of_file(folder / "large.h5"), wanted);
  CHECK_FALSE(read.values.front());
}

TEST_CASE("no run's carried state exceeds the size limit of its file") {
  const testing::TemporaryFolder folder;
  // Units of a layer and of one element, each filled up to 64 elements a shard, on nodes of one rank.
  const std::vector<UnitSpec> units{{"layer", {{"w", {1000}}}}, {"norm", {{"n", {1}}}}};
  for (const int64_t ranks : {2, 16}) {
    const int64_t layer = (1000 / ranks + 64) / 64 * 64;
    CarriedState state{.nodes = ranks, .ranks_per_node = 1, .values = {}, .fetch = {}};
    for (const auto& [unit, shard] : {std::pair("layer", layer), std::pair("norm", int64_t{64})}) {
      state.values.push_back({unit, "gradient_residual", {ranks - 1, shard}, false});
      state.values.push_back({unit, "parameters", {shard}, false});
    }
    const std::vector<std::byte> zeros(static_cast<size_t>(state.bytes()));
    state.fetch = [&](size_t index) {
      return std::span(zeros).first(static_cast<size_t>(state.values[index].bytes()));
    };
    const int64_t size = write_carried_file(folder.path(), "c.h5", state).size;
    CHECK(size <= largest_carried_file(units, ranks));
    CHECK(largest_carried_file(units, ranks) < 10 * size + (1 << 17));
  }
}

TEST_CASE("a carried-state file of a newer format is refused with its version") {
  const testing::TemporaryFolder folder;
  {
    hdf5::File file = hdf5::File::create(folder / "b.h5");
    file.set_attribute("format_version", int64_t{2});
    file.close();
  }
  try {
    read_carried_file(folder / "b.h5", bytes_of_file(folder / "b.h5"), {});
    FAIL("it was read");
  } catch (const UserError& error) {
    CHECK_THAT(error.what(), Contains("has format version 2"));
  }
}

TEST_CASE("a rank's carried-state file is named like its optimizer file") {
  CHECK(carried_file_name("bf16", 7) == "bf16_zero_pp_rank_7_mp_rank_00_carried_states.h5");
  CHECK(is_carried_file(carried_file_name("bf16", 7)));
  CHECK_FALSE(is_carried_file("bf16_zero_pp_rank_7_mp_rank_00_optim_states.h5"));
  CHECK(carried_file_name("fp32", 0) == "zero_pp_rank_0_mp_rank_00_carried_states.h5");
}

}  // namespace mpzero::io
