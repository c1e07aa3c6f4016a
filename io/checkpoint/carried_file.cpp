#include "io/checkpoint/carried_file.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/files/output_file.hpp"
#include "io/files/scratch_file.hpp"
#include "io/hdf5/file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kCarriedVersion = 1;

std::vector<uint64_t> extents(const std::vector<int64_t>& shape) { return {shape.begin(), shape.end()}; }

constexpr std::string_view kNameEnd = "_carried_states.h5";

// Returns the bytes of the dataset, or std::nullopt if its shape or dtype differs from `wanted`.
template <typename T>
std::optional<std::vector<std::byte>> read_values(const hdf5::Dataset& dataset, const CarriedValues& wanted) {
  if (!dataset.holds<T>() || dataset.shape() != extents(wanted.shape)) return std::nullopt;
  std::vector<std::byte> bytes(static_cast<size_t>(wanted.bytes()));
  const std::vector<uint64_t> begin(dataset.shape().size(), 0);
  const std::span<T> values(reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T));
  if (!values.empty()) dataset.read(std::span(begin), std::span(dataset.shape()), values);
  return bytes;
}

std::optional<std::vector<std::byte>> find_values(const hdf5::File& file, const CarriedValues& wanted) {
  if (!file.contains(wanted.unit)) return std::nullopt;
  const hdf5::Group group = file.group(wanted.unit);
  if (!group.contains(wanted.name)) return std::nullopt;
  const hdf5::Dataset dataset = group.dataset(wanted.name);
  return wanted.is_bf16 ? read_values<uint16_t>(dataset, wanted) : read_values<float>(dataset, wanted);
}

std::span<const std::byte> fetch_checked(const CarriedState& state, size_t index) {
  const CarriedValues& values = state.values[index];
  const std::span<const std::byte> bytes = state.fetch(index);
  if (static_cast<int64_t>(bytes.size()) != values.bytes()) {
    throw_failure("{} of unit {} has {} bytes instead of {}", values.name, values.unit, bytes.size(), values.bytes());
  }
  return bytes;
}

}  // namespace

int64_t CarriedValues::bytes() const {
  int64_t bytes = is_bf16 ? sizeof(uint16_t) : sizeof(float);
  for (const int64_t extent : shape) bytes *= extent;
  return bytes;
}

int64_t CarriedState::bytes() const {
  int64_t total = 0;
  for (const CarriedValues& some : values) total += some.bytes();
  return total;
}

std::string carried_file_name(const std::string& dtype, int rank) {
  return fmt::format("{}zero_pp_rank_{}_mp_rank_00{}", dtype == "bf16" ? "bf16_" : "", rank, kNameEnd);
}

bool is_carried_file(const std::string& name) { return name.ends_with(kNameEnd); }

int64_t largest_carried_file(std::span<const UnitSpec> units, int64_t ranks) {
  // Assumes two page-aligned fp32 datasets per unit. A dataset contains at most the elements of the unit plus the
  // padding of all shards, and needs less than one page of HDF5 metadata.
  constexpr int64_t kMostOfShard = 64, kDataSets = 2;
  int64_t elements = 0;
  for (const UnitSpec& unit : units) elements += unit.numel() + kMostOfShard * ranks;
  const auto count = static_cast<int64_t>(units.size());
  return kDataSets * (elements * static_cast<int64_t>(sizeof(float)) + (count + 1) * 2 * OutputFile::kAlignment);
}

ManifestFile write_carried_file(const fs::path& folder, const std::string& name, const CarriedState& state,
                                const WriteOptions& options) {
  const ScratchFile scratch;
  std::vector<std::pair<int64_t, size_t>> places;  // offset in the file, index in state.values
  hdf5::File out = hdf5::File::create(scratch.path(), OutputFile::kAlignment);
  for (size_t i = 0; i < state.values.size(); ++i) {
    const CarriedValues& values = state.values[i];
    hdf5::Group group = out.contains(values.unit) ? out.group(values.unit) : out.create_group(values.unit);
    const std::vector<uint64_t> shape = extents(values.shape);
    const int64_t offset = values.is_bf16 ? group.reserve_dataset<uint16_t>(values.name, shape)
                                          : group.reserve_dataset<float>(values.name, shape);
    if (values.bytes() > 0) places.emplace_back(offset, i);
  }
  out.set_attribute("format_version", kCarriedVersion);
  out.set_attribute("nodes", state.nodes);
  out.set_attribute("ranks_per_node", state.ranks_per_node);
  out.close();
  std::sort(places.begin(), places.end());

  const File laid_out = File::open_for_reading(scratch.path());
  OutputFile file(folder / name, {.expected_size = laid_out.size(), .stop = options.stop, .pace = options.pace},
                  *options.files);
  StreamingChecksum sum;
  int64_t position = 0;
  const auto add = [&](std::span<const std::byte> bytes) {
    sum.add(bytes);
    file.append(bytes);
    position += static_cast<int64_t>(bytes.size());
  };
  const auto add_structure = [&](int64_t end) {
    std::vector<std::byte> structure(static_cast<size_t>(end - position));
    laid_out.read(position, structure);
    add(structure);
  };
  for (const auto& [offset, index] : places) {
    add_structure(offset);
    add(fetch_checked(state, index));
  }
  add_structure(laid_out.size());
  file.finish();
  return {.name = name, .size = file.size(), .structure_checksum = sum.value(), .datasets = {}};
}

StoredCarried read_carried_file(const fs::path& path, std::span<const std::byte> bytes,
                                std::span<const CarriedValues> wanted) {
  const hdf5::File in = hdf5::File::open_image(path, bytes);
  if (const auto version = in.attribute<int64_t>("format_version"); version != kCarriedVersion) {
    throw_user_error(
        "{} has format version {}, but this build reads version {}; use the version of mpzero that wrote the file",
        path.string(), version, kCarriedVersion);
  }
  StoredCarried stored{
      .nodes = in.attribute<int64_t>("nodes"), .ranks_per_node = in.attribute<int64_t>("ranks_per_node"), .values = {}};
  for (const CarriedValues& values : wanted) stored.values.push_back(find_values(in, values));
  return stored;
}

}  // namespace mpzero::io
