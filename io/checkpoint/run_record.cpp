#include "io/checkpoint/run_record.hpp"

#include <algorithm>
#include <cstdint>
#include <random>

#include "io/bytes/checksum.hpp"

namespace mpzero::io {
namespace {

constexpr size_t kDigits = 16;
constexpr size_t kShownDigits = 8;

}  // namespace

std::string new_run_id() {
  std::random_device entropy;
  constexpr int kHalf = 32;
  const uint64_t upper = entropy();
  return to_hex(upper << kHalf | entropy());
}

bool is_run_id(std::string_view text) {
  return text.size() == kDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string short_run_id(const std::string& id) { return id.empty() ? "-" : id.substr(0, kShownDigits); }

std::string show_run(const std::string& id) { return id.empty() ? "a run without an id" : "run " + short_run_id(id); }

}  // namespace mpzero::io
