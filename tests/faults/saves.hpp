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
// Replaces the contents of `folder` with these files.
void write_files(const std::filesystem::path& folder, const Files& files);
std::string read_bytes(const std::filesystem::path& path);
void write_bytes(const std::filesystem::path& path, const std::string& bytes);

// A save of a tiny model, defined by a few numbers.
struct Save {
  int64_t step = 3;
  uint32_t values = 1;  // selects the weights and moments
  std::string run_id = "00112233445566aa";
  bool deepspeed = false;  // write DeepSpeed's format
  int zero_stage = 2;
  std::string dtype = "bf16";
  int ranks = 3;
  int64_t keep_last = 0;

  std::string tag() const { return "tiny-" + std::to_string(step) + "steps"; }
};

inline constexpr int64_t kWindowsOfStep = 8;

// A model of two layers whose sizes are not divisible by any number of ranks.
const std::vector<UnitSpec>& tiny_model();

// Returns all parameters of tiny_model().
std::vector<ParameterSpec> tiny_parameters();

// Returns a finite value that identifies the save, unit, kind and element.
float value_of(uint32_t save, size_t unit, StateKind kind, int64_t element);

// Writes `dir/TAG` and `dir/latest` like the ranks of a run, but one rank after another, so that the order of calls is
// deterministic.
void write_save(const std::filesystem::path& dir, const Save& save, const std::function<void()>& check_owner = nullptr);

// Like write_save(), for a run that first takes ownership of the folder. While the run waits for another owner, no time
// passes for other processes, so a stopped run counts as dead.
void save_as_run(const std::filesystem::path& dir, const Save& save);

}  // namespace mpzero::faults
