#include "parallel/network/nccl_log.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/host_name.hpp"
#include "base/output.hpp"

namespace mpzero::parallel {
namespace {

// Makes NCCL read NCCL_DEBUG and related variables again before its next message. NCCL still exports it, although it is
// no longer part of the interface, so it is looked up at run time instead of being linked.
void reread_settings() {
  using Reset = void();
  void* reset = dlsym(RTLD_DEFAULT, "ncclResetDebugInit");
  if (reset != nullptr) reinterpret_cast<Reset*>(reset)();
}

// The file that NCCL writes to for a value of NCCL_DEBUG_FILE: %h is the host name up to its first dot, %p the process
// id.
std::string expand(const std::string& pattern) {
  const std::string host = host_name();
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      path += pattern[i];
      continue;
    }
    switch (pattern[++i]) {
      case 'h':
        path += host.substr(0, host.find('.'));
        break;
      case 'p':
        path += std::to_string(getpid());
        break;
      case '%':
        path += '%';
        break;
      default:
        path += {'%', pattern[i]};
    }
  }
  return path;
}

}  // namespace

// NCCL's log is the only account of its network that every release gives: no call of the library names the network of a
// communicator, and a plugin of ours between NCCL and aws-ofi-nccl would have to follow each version of that interface.
// The log file is in memory only, so that no folder needs to be writable and no file is left over.
NcclLog::NcclLog() : file_(memfd_create("nccl-log", MFD_CLOEXEC)) {
  if (file_ < 0) throw_failure("memfd_create for NCCL's log failed: {}", std::strerror(errno));
  const std::array<std::pair<std::string, std::string>, 3> settings = {
      {{"NCCL_DEBUG", "INFO"},
       {"NCCL_DEBUG_SUBSYS", "INIT,NET"},
       {"NCCL_DEBUG_FILE", fmt::format("/proc/{}/fd/{}", getpid(), file_)}}};
  for (const auto& [name, value] : settings) {
    before_.emplace_back(name, process_environment(name));
    setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  }
  reread_settings();
}

NcclLog::~NcclLog() {
  for (const auto& [name, value] : before_) {
    value ? setenv(name.c_str(), value->c_str(), /*overwrite=*/1) : unsetenv(name.c_str());
  }
  reread_settings();
  pass_on();
  close(file_);
}

std::optional<std::string> NcclLog::before(const std::string& name) const {
  for (const auto& [known, value] : before_) {
    if (known == name) return value;
  }
  return std::nullopt;
}

void NcclLog::pass_on() const {
  const std::string level = before("NCCL_DEBUG").value_or("");
  if (strcasecmp(level.c_str(), "INFO") != 0 && strcasecmp(level.c_str(), "TRACE") != 0) return;
  const std::string content = text();
  const std::string pattern = before("NCCL_DEBUG_FILE").value_or("");
  if (pattern.empty() || pattern == "/dev/stdout") {
    write_output(Output::kStdout, content);
  } else if (pattern == "/dev/stderr") {
    write_output(Output::kStderr, content);
  } else {
    // A convenience for the user's own debugging: the run ignores a file that cannot be written.
    std::ofstream(expand(pattern) + ".start") << content;
  }
}

std::string NcclLog::text() const {
  std::string text;
  std::array<char, 4096> block;
  while (true) {
    const ssize_t bytes = pread(file_, block.data(), block.size(), static_cast<off_t>(text.size()));
    if (bytes <= 0) return text;
    text.append(block.data(), static_cast<size_t>(bytes));
  }
}

}  // namespace mpzero::parallel
