#include "app/flags/validation_data.hpp"

#include <fmt/ranges.h>

#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/error.hpp"
#include "base/saturating_product.hpp"

namespace mpzero {
namespace {

constexpr const char* kNameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

// Returns true if the text begins with NAME=; false for a path that contains "=".
bool has_name(const std::string& text) {
  const size_t equals = text.find('=');
  return equals != std::string::npos && equals < text.find('/');
}

// Parses one NAME=FILE or FILE of the list `text`.
ValidationFile read_set(const std::string& flag, const std::string& text, const std::string& item) {
  ValidationFile set{.name = std::filesystem::path(item).stem().string(), .path = item};
  if (has_name(item)) set = {.name = item.substr(0, item.find('=')), .path = item.substr(item.find('=') + 1)};
  if (set.path.empty()) throw_user_error("--{} {}: \"{}\" has no path; write NAME=FILE.", flag, text, item);
  if (set.name.empty() || set.name.find_first_not_of(kNameCharacters) != std::string::npos) {
    throw_user_error("--{} {}: invalid name \"{}\"; use only letters, digits, _ and -, and write NAME=FILE.", flag,
                     text, set.name);
  }
  return set;
}

}  // namespace

void read_validation_data(CommandLine& line, const std::string& flag, const std::string& text) {
  line.validation_data.clear();
  std::error_code ignored;
  const bool is_list = has_name(text) || text.find(',') != std::string::npos;
  if (!is_list || std::filesystem::exists(text, ignored)) {
    line.validation_data = {{.name = "", .path = text}};
    return;
  }
  std::istringstream items(text + ",");
  for (std::string item; std::getline(items, item, ',');) {
    ValidationFile set = read_set(flag, text, item);
    for (const ValidationFile& other : line.validation_data) {
      if (other.name == set.name) {
        throw_user_error("--{} {}: duplicate name {}; rename one of the two sets.", flag, text, set.name);
      }
    }
    line.validation_data.push_back(std::move(set));
  }
}

std::string show(const ValidationFile& file) {
  return file.name.empty() ? file.path : fmt::format("{}={}", file.name, file.path);
}

std::string show_validation_data(const Settings& settings) {
  std::vector<std::string> items;
  for (const ValidationFile& file : settings.validation_data) items.push_back(show(file));
  return fmt::to_string(fmt::join(items, ","));
}

std::string validation_loss_key(const std::string& set) {
  return set.empty() ? "validation_loss" : fmt::format("validation_{}_loss", set);
}

void settle_validation(const CommandLine& line, int64_t sequences_of_batch, Settings& settings, Origins& origins,
                       std::vector<std::string>& warnings) {
  if (!settings.validation_batches || settings.validation_data.empty()) return;
  if (line.gives("validation_sequences")) {
    throw_user_error(
        "--validation_sequences {} and --validation_batches {} both set the validation size; omit "
        "--validation_batches.",
        line.validation_sequences, *settings.validation_batches);
  }
  settings.validation_sequences = saturating_product(*settings.validation_batches, sequences_of_batch);
  origins.set("validation_sequences", {Origin::Kind::kFlag, "validation_batches"});
  warnings.push_back(fmt::format("--validation_batches {} is deprecated; use the equivalent --validation_sequences {}.",
                                 *settings.validation_batches, settings.validation_sequences));
}

}  // namespace mpzero
