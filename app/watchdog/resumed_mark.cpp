#include "app/watchdog/resumed_mark.hpp"

#include <fmt/chrono.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "app/watchdog/evidence.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/output.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero {
namespace {

void mark(const std::filesystem::path& file, const std::string& job, int restart) {
  nlohmann::ordered_json json;
  try {
    const std::string text = io::read_text_file(file, static_cast<int64_t>(kLineLimits.bytes));
    if (const auto read = parse_json(text, kLineLimits); read.at("job") != job || read.at("restart") != restart) return;
    json = nlohmann::ordered_json::parse(text);  // keeps the order of the keys
  } catch (const nlohmann::json::exception&) {
    return;
  } catch (const JsonError&) {
    return;
  } catch (const Error&) {
    return;
  }
  if (json.contains("resumed")) return;
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  json["resumed"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
  io::replace_text_file(file, json_text(json));
}

}  // namespace

void mark_resumed(const std::filesystem::path& folder, const std::string& job, int restart) {
  if (job.empty()) return;
  for (const char* name : {"failure.json", "stop.json"}) {
    try {
      mark(folder / name, job, restart);
    } catch (const Error& error) {
      print_warning(fmt::format("{}: {}", name, error.what()));
    }
  }
}

}  // namespace mpzero
