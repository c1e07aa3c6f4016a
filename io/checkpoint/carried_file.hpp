#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"
#include "io/checkpoint/manifest.hpp"

namespace mpzero::io {

// Numbers of one unit that compression between nodes carries from step to step on one rank, row-major.
struct CarriedValues {
  std::string unit;
  std::string name;  // "gradient_residual" or "parameters"
  std::vector<int64_t> shape;
  bool is_bf16 = false;  // else fp32

  // Of all elements.
  int64_t bytes() const;
};

// All that one rank carries, to be saved. It is of use to a rank of the same place in the same layout only.
struct CarriedState {
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  std::vector<CarriedValues> values;
  // The bytes of one of them, by its index; they stay as they are until the next call. From the thread that saves.
  std::function<std::span<const std::byte>(size_t index)> fetch;

  int64_t bytes() const;
};

// What a rank's file holds.
struct StoredCarried {
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  // The bytes of the values that were asked for, in their order; std::nullopt: none of that unit, name, shape and type.
  std::vector<std::optional<std::vector<std::byte>>> values;
};

// The file of a rank: "bf16_zero_pp_rank_0_mp_rank_00_carried_states.h5".
std::string carried_file_name(const std::string& dtype, int rank);
bool is_carried_file(const std::string& name);
// Of the file of one of `ranks` ranks, an upper bound: what compression carries of a model with these units.
int64_t largest_carried_file(std::span<const UnitSpec> units, int64_t ranks);

// Writes and syncs `folder/name`: HDF5, a group for each unit with a data set for each name, float or, for bf16, the
// bits as uint16. The manifest has one checksum of all of it.
ManifestFile write_carried_file(const std::filesystem::path& folder, const std::string& name, const CarriedState& state,
                                const WriteOptions& options = {});
// Parses the bytes of such a file, in no more memory than the requested values need. `file`: for messages.
StoredCarried read_carried_file(const std::filesystem::path& file, std::span<const std::byte> bytes,
                                std::span<const CarriedValues> wanted);

}  // namespace mpzero::io
