#include "parallel/network/network_proof.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/host_name.hpp"
#include "base/output.hpp"

namespace mpzero::parallel {
namespace {

// Makes NCCL read NCCL_DEBUG and related variables again before its next message. NCCL still exports this function, but
// no longer declares it, so the symbol is looked up at run time.
void reread_settings() {
  using Reset = void();
  void* reset = dlsym(RTLD_DEFAULT, "ncclResetDebugInit");
  if (reset != nullptr) reinterpret_cast<Reset*>(reset)();
}

// Returns the file that NCCL writes for a value of NCCL_DEBUG_FILE. %h is the host name up to the first dot, and %p is
// the process ID.
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

// Only NCCL's log reports the network in every release. NCCL has no API for a communicator's network, and a custom
// plugin between NCCL and aws-ofi-nccl would have to follow each version of that interface. The log file is in memory,
// so that mpzero needs no writable folder and leaves no file behind.
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
    // Best effort, for the user's debugging: write errors are ignored.
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

namespace {

// Returns the text after the first `mark` in `line`, up to one of the characters in `ends`.
std::optional<std::string> text_after(std::string_view line, std::string_view mark, std::string_view ends) {
  const size_t at = line.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = line.substr(at + mark.size());
  return std::string(rest.substr(0, rest.find_first_of(ends)));
}

template <typename Visit>
void for_each_line(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    visit(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

bool contains(std::string_view line, std::string_view part) { return line.find(part) != std::string_view::npos; }

}  // namespace

NetworkProof parse_network_proof(std::string_view log) {
  NetworkProof proof;
  std::optional<bool> cards, channels;
  // Data passes through host memory if any network card or channel lacks GPUDirect RDMA.
  const auto also = [](std::optional<bool>& all, bool direct) { all = all.value_or(true) && direct; };
  for_each_line(log, [&](std::string_view line) {
    if (const auto net = text_after(line, "Using network ", "\r\n")) proof.net = *net;
    // "Initializing" since 1.7.4, "Using" in earlier releases.
    for (const char* mark : {"NET/OFI Initializing aws-ofi-nccl ", "NET/OFI Using aws-ofi-nccl "}) {
      if (const auto plugin = text_after(line, mark, " \r\n")) proof.plugin = "aws-ofi-nccl " + *plugin;
    }
    // "Selected Provider is efa (found 16 nics)" up to 1.13, "Selected provider is efa, fabric is efa-direct (found 16
    // nics)" since 1.14.
    auto provider = text_after(line, "NET/OFI Selected provider is ", ", \r\n");
    if (!provider) provider = text_after(line, "NET/OFI Selected Provider is ", ", \r\n");
    if (provider) {
      proof.provider = *provider;
      if (const auto found = text_after(line, "(found ", " )")) {
        std::from_chars(found->data(), found->data() + found->size(), proof.devices);
      }
    }
    if (contains(line, "NET/") && contains(line, "GPU Direct RDMA Enabled for HCA")) also(cards, true);
    if (contains(line, "NET/") && contains(line, "GPU Direct RDMA Disabled for HCA")) also(cards, false);
    if (contains(line, "via NET/")) also(channels, contains(line, "/GDRDMA"));
  });
  // Channels show whether GPUDirect RDMA is used. Network cards show only whether it is supported. A rank without a
  // peer on another node has no such channel.
  proof.gpu_direct = channels ? channels : cards;
  return proof;
}

std::string parse_network_failure(std::string_view log) {
  // Since 1.21, the plugin reports this cause in a note below a less informative line.
  if (contains(log, "the security group on either this instance or the peer")) {
    return "a security group drops EFA's packets";
  }
  std::string of_plugin, of_loading;
  const auto remember = [](std::string& reason, const std::optional<std::string>& found) {
    if (found && reason.empty()) reason = *found;
  };
  for_each_line(log, [&](std::string_view line) {
    remember(of_plugin, text_after(line, "NCCL WARN NET/OFI ", "\r\n"));
    // The next warning contains only the failed protocol.
    if (contains(line, "No eligible providers")) remember(of_plugin, text_after(line, "NET/OFI ", "\r\n"));
    // Lines about plugins that were loaded, and about alternative names that were not found, have the same prefix.
    if (contains(line, "Could not find") || contains(line, ".so: ")) {
      remember(of_loading, text_after(line, "NET/Plugin: ", "\r\n"));
    }
  });
  return of_plugin.empty() ? of_loading : of_plugin;
}

std::string missing_proof(const NetworkPlan& plan, const NetworkProof& proof, const std::string& host) {
  const std::string seen = proof.provider.empty() ? fmt::format("\"{}\"", proof.net)
                                                  : fmt::format("\"{}\" over {}", proof.net, proof.provider);
  switch (plan.proof) {
    case NetworkPlan::Proof::kEfa:
      if (is_libfabric_net(proof.net) && strncasecmp(proof.provider.c_str(), "efa", 3) == 0) return {};
      return fmt::format(
          "NCCL uses {} instead of EFA on {}; check that `fi_info -p efa` lists the EFA devices (EFA driver, Amazon's "
          "libfabric, /dev/infiniband in containers), or pass --network socket for TCP",
          seen, host);
    case NetworkPlan::Proof::kSocket:
      if (strcasecmp(proof.net.c_str(), "Socket") == 0) return {};
      return fmt::format("NCCL uses {} on {} despite --network socket; report this as a bug", seen, host);
    case NetworkPlan::Proof::kNone:
    case NetworkPlan::Proof::kAnything:
      return {};
  }
  return {};
}

}  // namespace mpzero::parallel
