#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint_writer.hpp"
#include "io/checkpoint/manifest.hpp"

namespace mpzero::io {

// Numbers of one unit that compression between nodes carries from step to step on one rank, row-major.
struct CarriedValues {
  std::string unit;
  std::string name;  // "gradient_residual" or "parameters"
  std::vector<int64_t> shape;
  bool is_bf16 = false;               // else fp32
  std::span<const std::byte> bytes;   // of all elements
  std::shared_ptr<const void> owner;  // keeps the bytes
};

// All that one rank carries. It is of use to a rank of the same place in the same layout only.
struct CarriedState {
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  std::vector<CarriedValues> values;
};

// The file of a rank: "bf16_zero_pp_rank_0_mp_rank_00_carried_states.h5".
std::string carried_file_name(const std::string& dtype, int rank);

// Writes and syncs `folder/name`: HDF5, a group for each unit with a data set for each name, float or, for bf16, the
// bits as uint16. The manifest has one checksum of all of it.
ManifestFile write_carried_file(const std::filesystem::path& folder, const std::string& name, const CarriedState& state,
                                const WriteOptions& options = {});
// Parses the bytes of such a file. `file` is used in messages.
CarriedState read_carried_file(const std::filesystem::path& file, std::span<const std::byte> bytes);

}  // namespace mpzero::io
