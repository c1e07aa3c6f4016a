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

// State of one unit that persists across steps if communication between shard groups is compressed. Values are
// row-major.
struct CarriedValues {
  std::string unit;
  std::string name;  // "gradient_residual" or "parameters"
  std::vector<int64_t> shape;
  bool is_bf16 = false;  // fp32 if false

  int64_t bytes() const;
};

// The carried state that one rank saves. Only a rank at the same position in an identical layout can load this state.
struct CarriedState {
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  std::vector<CarriedValues> values;
  // Returns the bytes of values[index], which stay valid until the next call. Called from the saving thread.
  std::function<std::span<const std::byte>(size_t index)> fetch;

  int64_t bytes() const;
};

// The contents of one rank's carried-state file.
struct StoredCarried {
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  // Bytes of the requested values, in order; std::nullopt for a value whose unit, name, shape or dtype differs from the
  // request.
  std::vector<std::optional<std::vector<std::byte>>> values;
};

// Returns a name such as "bf16_zero_pp_rank_0_mp_rank_00_carried_states.h5".
std::string carried_file_name(const std::string& dtype, int rank);
bool is_carried_file(const std::string& name);
// Returns an upper bound on the size of one rank's file, in bytes.
int64_t largest_carried_file(std::span<const UnitSpec> units, int64_t ranks);

// Writes and syncs the HDF5 file `folder/name`. The file contains one group per unit and one dataset per name, as float
// or, for bf16, as raw bits in uint16. The manifest stores one checksum for the whole file.
ManifestFile write_carried_file(const std::filesystem::path& folder, const std::string& name, const CarriedState& state,
                                const WriteOptions& options = {});
// Parses the bytes of a carried-state file. Allocates memory only for the requested values. `file`: path for messages.
StoredCarried read_carried_file(const std::filesystem::path& file, std::span<const std::byte> bytes,
                                std::span<const CarriedValues> wanted);

}  // namespace mpzero::io
