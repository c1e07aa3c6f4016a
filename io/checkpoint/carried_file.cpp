#include "io/checkpoint/carried_file.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/files/damaged.hpp"
#include "io/files/output_file.hpp"
#include "io/files/scratch_file.hpp"
#include "io/hdf5/file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kFormatVersion = 1;

std::vector<uint64_t> extents(const std::vector<int64_t>& shape) { return {shape.begin(), shape.end()}; }

template <typename T>
CarriedValues read_values(const hdf5::Dataset& dataset, const std::string& unit, const std::string& name) {
  auto values = std::make_shared<std::vector<T>>(dataset.size());
  const std::vector<uint64_t> begin(dataset.shape().size(), 0);
  if (!values->empty()) dataset.read(std::span(begin), std::span(dataset.shape()), std::span(*values));
  return {.unit = unit,
          .name = name,
          .shape = {dataset.shape().begin(), dataset.shape().end()},
          .is_bf16 = sizeof(T) == sizeof(uint16_t),
          .bytes = std::as_bytes(std::span(*values)),
          .owner = values};
}

}  // namespace

std::string carried_file_name(const std::string& dtype, int rank) {
  return fmt::format("{}zero_pp_rank_{}_mp_rank_00_carried_states.h5", dtype == "bf16" ? "bf16_" : "", rank);
}

ManifestFile write_carried_file(const fs::path& folder, const std::string& name, const CarriedState& state,
                                const WriteOptions& options) {
  const ScratchFile scratch;
  std::vector<std::pair<int64_t, const CarriedValues*>> places;  // offset in the file
  hdf5::File out = hdf5::File::create(scratch.path(), OutputFile::kAlignment);
  for (const CarriedValues& values : state.values) {
    hdf5::Group group = out.contains(values.unit) ? out.group(values.unit) : out.create_group(values.unit);
    const std::vector<uint64_t> shape = extents(values.shape);
    const int64_t offset = values.is_bf16 ? group.reserve_dataset<uint16_t>(values.name, shape)
                                          : group.reserve_dataset<float>(values.name, shape);
    if (!values.bytes.empty()) places.emplace_back(offset, &values);
  }
  out.set_attribute("format_version", kFormatVersion);
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
  for (const auto& [offset, values] : places) {
    add_structure(offset);
    add(values->bytes);
  }
  add_structure(laid_out.size());
  file.finish();
  return {.name = name, .size = file.size(), .structure_checksum = sum.value(), .datasets = {}};
}

CarriedState read_carried_file(const fs::path& path, std::span<const std::byte> bytes) {
  const hdf5::File in = hdf5::File::open_image(path, bytes);
  if (const auto version = in.attribute<int64_t>("format_version"); version != kFormatVersion) {
    throw_user_error("{} has format version {}, this mpzero reads version {}: use the mpzero that wrote it",
                     path.string(), version, kFormatVersion);
  }
  CarriedState state{
      .nodes = in.attribute<int64_t>("nodes"), .ranks_per_node = in.attribute<int64_t>("ranks_per_node"), .values = {}};
  for (const std::string& unit : in.names()) {
    const hdf5::Group group = in.group(unit);
    for (const std::string& name : group.names()) {
      const hdf5::Dataset dataset = group.dataset(name);
      if (dataset.holds<uint16_t>()) {
        state.values.push_back(read_values<uint16_t>(dataset, unit, name));
      } else if (dataset.holds<float>()) {
        state.values.push_back(read_values<float>(dataset, unit, name));
      } else {
        throw_damaged(path, fmt::format("{} of {} is neither float nor uint16", name, unit));
      }
    }
  }
  return state;
}

}  // namespace mpzero::io
