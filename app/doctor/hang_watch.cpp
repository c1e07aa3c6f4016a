#include "app/doctor/hang_watch.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <thread>
#include <utility>

#include "io/files/atomic_file.hpp"

namespace mpzero::doctor {
namespace {

// The file system of the report may hang too.
constexpr std::chrono::milliseconds kWriteLimit(2000);
// Ranks that wait for a host that hangs end after that host has reported, since a launcher ends all ranks with the
// first.
constexpr std::chrono::milliseconds kPrecedence(5000);

}  // namespace

std::filesystem::path hang_report(const std::string& json, const std::string& host) {
  return fmt::format("{}.{}.hung", json, host);
}

HangWatch::HangWatch(std::string host, std::string json, JobStart start, std::chrono::milliseconds patience,
                     std::function<void(const std::string&)> end)
    : host_(std::move(host)),
      json_(std::move(json)),
      start_(std::move(start)),
      patience_(patience),
      deadline_(patience, [this] { return last_message(); }, std::move(end)) {}

std::string HangWatch::last_message() {
  const Look* look = look_;
  if (look == nullptr) {
    std::this_thread::sleep_for(kPrecedence);
    return fmt::format("{} has waited for other ranks for {} s: the hosts that hang report where", host_,
                       patience_.count() / 1000);
  }
  const std::string seen =
      fmt::format("{} has not responded {} s after the doctor started", look->at, patience_.count() / 1000);
  if (!json_.empty()) {
    const std::string text = to_json(start_, {{.host = host_, .findings = {failure(look->check, seen, look->remedy)}}});
    parallel::no_longer_than(kWriteLimit, [file = hang_report(json_, host_), text] {
      try {
        io::replace_text_file(file, text);
      } catch (const std::exception& error) {
        fmt::print(stderr, "mpzero: warning: {} could not be written: {}\n", file.string(), error.what());
      }
    });
  }
  return fmt::format("{}: {}; {}", host_, seen, look->remedy);
}

}  // namespace mpzero::doctor
