#include "app/tokens/train_files.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "base/error.hpp"

namespace mpzero {
namespace {

constexpr double kLargestWeight = 1e9;

TrainFile read_train_file(const std::string& train_data, const std::string& item) {
  TrainFile file{.path = item};
  double weight = 0;
  std::error_code ignored;
  if (const size_t equals = item.rfind('='); equals != std::string::npos && !std::filesystem::exists(item, ignored)) {
    const char* const end = item.data() + item.size();
    if (const auto [parsed, error] = std::from_chars(item.data() + equals + 1, end, weight);
        error == std::errc() && parsed == end) {
      throw_user_error("--train_data {}: write the weight of {} as {}:{}.", train_data, item, item.substr(0, equals),
                       item.substr(equals + 1));
    }
  }
  const size_t colon = item.rfind(':');
  if (colon != std::string::npos) {
    const char* const end = item.data() + item.size();
    const auto [parsed, error] = std::from_chars(item.data() + colon + 1, end, weight);
    const bool is_weight = parsed == end && error != std::errc::invalid_argument;
    if (is_weight && (error != std::errc() || !(weight >= 1 / kLargestWeight && weight <= kLargestWeight))) {
      throw_user_error("--train_data {}: the weight of {} must be between {:g} and {:g}.", train_data, item,
                       1 / kLargestWeight, kLargestWeight);
    }
    if (is_weight) file = {.path = item.substr(0, colon), .weight = weight};
  }
  if (file.path.empty()) {
    throw_user_error("--train_data {} contains an empty path; write FILE:WEIGHT,FILE:WEIGHT.", train_data);
  }
  return file;
}

}  // namespace

std::vector<TrainFile> train_files(const std::string& train_data) {
  if (std::error_code ignored; std::filesystem::exists(train_data, ignored)) return {{.path = train_data}};
  std::vector<TrainFile> files;
  std::istringstream items(train_data + ",");
  for (std::string item; std::getline(items, item, ',');) {
    const size_t begin = std::min(item.size(), item.find_first_not_of(' '));
    files.push_back(read_train_file(train_data, item.substr(begin, item.find_last_not_of(' ') + 1 - begin)));
  }
  const auto bare = std::ranges::find(files, 0.0, &TrainFile::weight);
  const bool any_weight = std::ranges::any_of(files, [](const TrainFile& file) { return file.weight > 0; });
  if (any_weight && bare != files.end()) {
    throw_user_error("--train_data {}: {} has no weight; add a weight, or omit all weights.", train_data, bare->path);
  }
  return files;
}

}  // namespace mpzero
