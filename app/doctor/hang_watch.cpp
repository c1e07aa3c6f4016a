#include "app/doctor/hang_watch.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "base/output.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::doctor {
namespace {

// The file system of the report may also hang.
constexpr std::chrono::milliseconds kWriteLimit(2000);
// A rank that waits for a hung host exits only after that host has reported, because the launcher terminates all ranks
// when the first rank exits.
constexpr std::chrono::milliseconds kPrecedence(5000);

}  // namespace

std::filesystem::path hang_report(const std::string& json, const std::string& host) {
  return fmt::format("{}.{}.hung", json, host);
}

std::filesystem::path answer_report(const std::string& json, const std::string& host) {
  return fmt::format("{}.{}.answers", json, host);
}

void end_hung(const std::string& sentence) {
  print_err("mpzero: error: {}\n", sentence);
  std::_Exit(kHungExitCode);
}

HangWatch::HangWatch(std::string host, std::string json, JobStart start, std::chrono::milliseconds patience,
                     std::function<void(const std::string&)> end, Write write)
    : host_(std::move(host)),
      json_(std::move(json)),
      start_(std::move(start)),
      write_(std::move(write)),
      patience_(patience),
      deadline_(patience, [this] { return last_message(); }, std::move(end)) {}

void HangWatch::change(const Look* next) {
  const Look* last = look_.exchange(next);
  if (last != nullptr && fault_of(last->check.text()) == Fault::kFolder) folder_answered_ = true;
}

std::string HangWatch::last_message() {
  const Look* look = look_;
  if (look == nullptr) {
    const Finding answer =
        ok("report", "the file system of the --json file responds; this host is waiting for other hosts");
    if (folder_answered_ && !json_.empty() && write_report(answer_report(json_, host_), answer))
      print_line("responds", answer);
    std::this_thread::sleep_for(kPrecedence);
    return fmt::format("{} has been waiting for other ranks for {} s; see the messages of the hung hosts", host_,
                       patience_.count() / 1000);
  }
  const std::string seen =
      fmt::format("{} has not responded within {} s of the start of mpzero doctor", look->at, patience_.count() / 1000);
  const Finding hang = failure(look->check, seen, look->remedy);
  print_line("hangs", hang);
  if (!json_.empty()) write_report(hang_report(json_, host_), hang);
  return fmt::format("{}: {}; {}", host_, seen, look->remedy);
}

void HangWatch::print_line(const char* verb, const Finding& finding) const {
  const std::string of = start_.id.empty() ? "" : fmt::format(" (job {}, restart {})", start_.id, start_.restart);
  print_err("mpzero: doctor: {} {} in {}{}: {}\n", host_, verb, finding.check, of, finding.message);
}

void HangWatch::write_file(const std::filesystem::path& file, const std::string& text) {
  io::replace_text_file(file, text);
}

// Returns true if the file was written in time.
bool HangWatch::write_report(const std::filesystem::path& file, const Finding& finding) const {
  const auto written = std::make_shared<std::atomic<bool>>(false);
  const std::string text = to_json(start_, {{.host = host_, .findings = {finding}}});
  parallel::no_longer_than(kWriteLimit, [file, text, written, write = write_] {
    try {
      write(file, text);
      *written = true;
    } catch (const std::exception& error) {
      print_warning(fmt::format("cannot write {}: {}", file.string(), error.what()));
    }
  });
  return *written;
}

}  // namespace mpzero::doctor
