#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/parameter_spec.hpp"
#include "io/checkpoint_dir/save.hpp"

namespace mpzero::faults {

// The files of a folder, by relative path, with their bytes.
using Files = std::vector<std::pair<std::string, std::string>>;

Files read_files(const std::filesystem::path& folder);
// Makes `folder` hold exactly these files.
void write_files(const std::filesystem::path& folder, const Files& files);
std::string read_bytes(const std::filesystem::path& path);
void write_bytes(const std::filesystem::path& path, const std::string& bytes);

// A save of a tiny model, determined by a few numbers.
struct Save {
  int64_t step = 3;
  uint32_t values = 1;  // another number gives other weights and moments
  std::string run_id = "00112233445566aa";
  bool deepspeed = false;  // the format
  int zero_stage = 2;
  std::string dtype = "bf16";
  int ranks = 3;
  int64_t keep_last = 0;

  std::string tag() const { return "tiny-" + std::to_string(step) + "steps"; }
};

inline constexpr int64_t kWindowsOfStep = 8;

// Two layers with sizes that no number of ranks divides.
const std::vector<UnitSpec>& tiny_model();

// All of its parameters.
std::vector<ParameterSpec> tiny_parameters();

// Finite values that identify save, unit, kind and element.
float value_of(uint32_t save, size_t unit, StateKind kind, int64_t element);

// Writes `dir/TAG` and `dir/latest` as the ranks of a run would, one rank after another, so that the calls are in the
// same order each time.
void write_save(const std::filesystem::path& dir, const Save& save, const std::function<void()>& check_owner = nullptr);

// The same by a run that first takes ownership of the folder. While it waits for another run no time passes for others:
// a run that is stopped in the meantime counts as dead.
void save_as_run(const std::filesystem::path& dir, const Save& save);

}  // namespace mpzero::faults
