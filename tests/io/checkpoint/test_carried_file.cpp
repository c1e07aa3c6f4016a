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

template <typename T>
CarriedValues values_of(const std::string& unit, const std::string& name, std::vector<int64_t> shape,
                        std::vector<T> numbers) {
  const auto owner = std::make_shared<std::vector<T>>(std::move(numbers));
  return {.unit = unit,
          .name = name,
          .shape = std::move(shape),
          .is_bf16 = sizeof(T) == 2,
          .bytes = std::as_bytes(std::span(*owner)),
          .owner = owner};
}

std::vector<uint16_t> ramp(int64_t count) {
  std::vector<uint16_t> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<uint16_t>(31 * i));
  return numbers;
}

CarriedState state() {
  return {.nodes = 3,
          .ranks_per_node = 2,
          .values = {values_of<uint16_t>("layers.0", "gradient_residual", {2, 4096}, ramp(8192)),
                     values_of<uint16_t>("layers.0", "parameters", {4096}, ramp(4096)),
                     values_of<float>("head", "parameters", {3}, {0.5F, -1.0F, 1e-30F}),
                     values_of<float>("head", "gradient_residual", {2, 0}, {})}};
}

std::vector<std::byte> bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(chars));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

TEST_CASE("what is carried is read as it was written, by mpzero and by HDF5") {
  const testing::TemporaryFolder folder;
  const CarriedState written = state();
  const ManifestFile entry = write_carried_file(folder.path(), "a.h5", written);
  const std::vector<std::byte> bytes = bytes_of(folder / "a.h5");
  CHECK(entry.name == "a.h5");
  CHECK(entry.size == static_cast<int64_t>(bytes.size()));
  CHECK(entry.datasets.empty());
  CHECK(entry.structure_checksum == checksum(bytes));

  const CarriedState read = read_carried_file(folder / "a.h5", bytes);
  CHECK(read.nodes == 3);
  CHECK(read.ranks_per_node == 2);
  REQUIRE(read.values.size() == written.values.size());
  for (const CarriedValues& values : written.values) {
    const auto same_place = [&](const CarriedValues& other) {
      return other.unit == values.unit && other.name == values.name;
    };
    const auto found = std::find_if(read.values.begin(), read.values.end(), same_place);
    REQUIRE(found != read.values.end());
    CHECK(found->shape == values.shape);
    // HDF5 keeps no type for numbers that are not there.
    CHECK(found->is_bf16 == values.is_bf16);
    CHECK(std::equal(found->bytes.begin(), found->bytes.end(), values.bytes.begin(), values.bytes.end()));
  }

  const hdf5::File file = hdf5::File::open(folder / "a.h5");
  std::vector<float> head(3);
  file.group("head").dataset("parameters").read(0, std::span(head));
  CHECK(head == std::vector<float>{0.5F, -1.0F, 1e-30F});
}

TEST_CASE("a carried file of a newer format is refused by its version") {
  const testing::TemporaryFolder folder;
  {
    hdf5::File file = hdf5::File::create(folder / "b.h5");
    file.set_attribute("format_version", int64_t{2});
    file.close();
  }
  try {
    read_carried_file(folder / "b.h5", bytes_of(folder / "b.h5"));
    FAIL("it was read");
  } catch (const UserError& error) {
    CHECK_THAT(error.what(), Contains("has format version 2, this mpzero reads version 1"));
  }
}

TEST_CASE("the carried file of a rank is named as its optimizer file is") {
  CHECK(carried_file_name("bf16", 7) == "bf16_zero_pp_rank_7_mp_rank_00_carried_states.h5");
  CHECK(carried_file_name("fp32", 0) == "zero_pp_rank_0_mp_rank_00_carried_states.h5");
}

}  // namespace mpzero::io
