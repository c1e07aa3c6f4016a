#include "io/checkpoint_dir/old_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

#include "io/checkpoint_dir/folder.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "old-";

// Returns n of "old-<n>".
std::optional<int64_t> number_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc{} || end != name.data() + name.size() || number < 1) return std::nullopt;
  return number;
}

}  // namespace

std::string next_old_name(const fs::path& checkpoint_dir) {
  int64_t last = 0;
  for (const fs::path& folder : folders_in(checkpoint_dir)) {
    last = std::max(last, number_of(folder.filename().string()).value_or(0));
  }
  return fmt::format("{}{}", kPrefix, last + 1);
}

fs::path move_aside(const fs::path& checkpoint_dir, const std::vector<std::string>& names, FileSystem& files) {
  fs::path old_run = checkpoint_dir / next_old_name(checkpoint_dir);
  make_folders(old_run, files);
  for (const std::string& name : names) rename_path(checkpoint_dir / name, old_run / name, files);
  sync_folder(old_run, files);
  sync_folder(checkpoint_dir, files);
  return old_run;
}

}  // namespace mpzero::io
