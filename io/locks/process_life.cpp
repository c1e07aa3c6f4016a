#include "io/locks/process_life.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace mpzero::io {
namespace {

struct Seen {
  bool runs = false;
  int64_t start = 0;
};

// std::nullopt if no process with this pid is visible.
std::optional<Seen> look_for(int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  // The name, in parentheses, may hold anything. The start time is the 20th field after it.
  constexpr int kFieldsBefore = 19;
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string state, skipped;
  fields >> state;
  for (int i = 1; i < kFieldsBefore; ++i) fields >> skipped;
  Seen seen;
  if (!(fields >> seen.start)) return std::nullopt;
  // A dead process remains until its parent reaps it.
  seen.runs = state != "Z" && state != "X";
  return seen;
}

}  // namespace

int64_t process_start(int64_t pid) { return look_for(pid).value_or(Seen{}).start; }

Life life_of_process(int64_t pid, int64_t start) {
  if (const auto seen = look_for(pid)) {
    if (!seen->runs) return Life::kDead;
    if (start == 0 || seen->start == 0) return Life::kUnknown;
    return seen->start == start ? Life::kAlive : Life::kDead;
  }
  // Another user's process may be hidden in /proc.
  return ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH ? Life::kDead : Life::kUnknown;
}

}  // namespace mpzero::io
