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

// Values of one unit that compression between shard groups carries from step to step on one rank, row-major.
struct CarriedValues {
  std::string unit;
  std::string name;  // "gradient_residual" or "parameters"
  std::vector<int64_t> shape;
  bool is_bf16 = false;  // else fp32

  int64_t bytes() const;
};

// The carried values of one rank, to be saved. Only a rank at the same position in the same layout can use them.
struct CarriedState {
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  std::vector<CarriedValues> values;
  // Returns the bytes of values[index], valid until the next call. Called from the thread that saves.
  std::function<std::span<const std::byte>(size_t index)> fetch;

  int64_t bytes() const;
};

// The content of a rank's file.
struct StoredCarried {
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  // Bytes of the requested values, in order; std::nullopt: the file has none with this unit, name, shape and dtype.
  std::vector<std::optional<std::vector<std::byte>>> values;
};

// The name of a rank's file: "bf16_zero_pp_rank_0_mp_rank_00_carried_states.h5".
std::string carried_file_name(const std::string& dtype, int rank);
bool is_carried_file(const std::string& name);
// Upper bound of the size of one rank's file, in bytes, for a model with these units on `ranks` ranks.
int64_t largest_carried_file(std::span<const UnitSpec> units, int64_t ranks);

// Writes and syncs `folder/name`: HDF5, a group for each unit with a dataset for each name: float or, for bf16, the
// bits as uint16. The manifest has one checksum for the whole file.
ManifestFile write_carried_file(const std::filesystem::path& folder, const std::string& name, const CarriedState& state,
                                const WriteOptions& options = {});
// Parses the bytes of such a file. Allocates no more memory than the requested values need. `file`: for messages.
StoredCarried read_carried_file(const std::filesystem::path& file, std::span<const std::byte> bytes,
                                std::span<const CarriedValues> wanted);

}  // namespace mpzero::io
