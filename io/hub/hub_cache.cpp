#include "io/hub/hub_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "io/files/atomic_file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "models--";
constexpr std::string_view kSeparator = "--";
constexpr std::string_view kHexadecimal = "0123456789abcdef";
constexpr int64_t kMaxReferenceBytes = 4096;

// Returns an empty path if the variable is not set.
fs::path folder_in(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

bool is_plain(unsigned char c) { return (std::isalnum(c) != 0) || c == '_' || c == '-' || c == '.'; }

// Matches huggingface_hub's validate_repo_id().
bool is_part_of_name(std::string_view part) {
  const auto is_mark = [](char c) { return c == '-' || c == '.'; };
  return !part.empty() && std::ranges::all_of(part, is_plain) && !is_mark(part.front()) && !is_mark(part.back()) &&
         part.find(kSeparator) == std::string_view::npos && part.find("..") == std::string_view::npos;
}

}  // namespace

fs::path hub_cache() {
  for (const char* variable : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const fs::path folder = folder_in(variable); !folder.empty()) return folder;
  }
  if (const fs::path home = folder_in("HF_HOME"); !home.empty()) return home / "hub";
  const fs::path cache = folder_in("XDG_CACHE_HOME");
  return (cache.empty() ? folder_in("HOME") / ".cache" : cache) / "huggingface" / "hub";
}

bool is_hub_name(std::string_view text) {
  const size_t slash = text.find('/');
  return slash != std::string_view::npos && is_part_of_name(text.substr(0, slash)) &&
         is_part_of_name(text.substr(slash + 1));
}

fs::path hub_snapshot(const fs::path& name, const std::string& revision) {
  const fs::path repository =
      hub_cache() / fmt::format("{}{}{}{}", kPrefix, name.parent_path().string(), kSeparator, name.filename().string());
  const fs::path reference = repository / "refs" / revision;
  // A commit hash has no file in refs.
  if (revision.find("..") != std::string::npos || !path_exists(reference)) return repository / "snapshots" / revision;
  const std::string text = read_text_file(reference, kMaxReferenceBytes);
  return repository / "snapshots" / text.substr(0, text.find_first_not_of(kHexadecimal));
}

fs::path hub_snapshot_or(const fs::path& given) {
  if (!is_hub_name(given.native()) || path_exists(given)) return given;
  const fs::path snapshot = hub_snapshot(given, "main");
  return snapshot.has_filename() && is_folder(snapshot) ? snapshot : given;
}

std::string hub_name_of(const fs::path& folder) {
  const fs::path snapshots = folder.parent_path();
  const std::string repository = snapshots.parent_path().filename();
  if (snapshots.filename() != "snapshots" || !repository.starts_with(kPrefix)) return "";
  const std::string name = repository.substr(kPrefix.size());
  const size_t separator = name.find(kSeparator);
  if (separator == std::string::npos) return "";
  return name.substr(0, separator) + "/" + name.substr(separator + kSeparator.size());
}

std::string explain_missing_weights(const fs::path& given) {
  if (!is_hub_name(given.native())) {
    return "the folder does not exist; download the weights first, e.g. with `.venv/bin/hf download NAME --local-dir "
           "FOLDER`";
  }
  return fmt::format(
      "neither a folder nor a complete model in the Hugging Face cache {} has this name; check the name, or download "
      "the model with `.venv/bin/hf download {}`",
      hub_cache().string(), given.string());
}

}  // namespace mpzero::io
