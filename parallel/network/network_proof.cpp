#include "parallel/network/network_proof.hpp"

#include <fmt/format.h>
#include <strings.h>

#include <charconv>

#include "base/error.hpp"

namespace mpzero::parallel {
namespace {

// The text after the first `mark` in `line`, up to one of the characters in `ends`.
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
  // Data passes through host memory if one card or channel does so.
  const auto also = [](std::optional<bool>& all, bool direct) { all = all.value_or(true) && direct; };
  for_each_line(log, [&](std::string_view line) {
    if (const auto net = text_after(line, "Using network ", "\r\n")) proof.net = *net;
    // "Initializing" since 1.7.4, "Using" before.
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
  // Channels report what is used, cards what is possible; a rank without a peer on another node has no such channel.
  proof.gpu_direct = channels ? channels : cards;
  return proof;
}

std::string parse_network_failure(std::string_view log) {
  // Releases of the plugin since 1.21 recognize this cause, in a note below a less informative line.
  if (contains(log, "the security group on either this instance or the peer")) {
    return "a security group drops EFA's packets";
  }
  std::string of_plugin, of_loading;
  const auto remember = [](std::string& reason, const std::optional<std::string>& found) {
    if (found && reason.empty()) reason = *found;
  };
  for_each_line(log, [&](std::string_view line) {
    remember(of_plugin, text_after(line, "NCCL WARN NET/OFI ", "\r\n"));
    // The following warning names only the protocol that does not start.
    if (contains(line, "No eligible providers")) remember(of_plugin, text_after(line, "NET/OFI ", "\r\n"));
    // The same prefix appears for plugins that were loaded, and for one of several names that was not found.
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
          "NCCL runs over {} instead of EFA on {}: `fi_info -p efa` must list the devices there (EFA driver, Amazon's "
          "libfabric, /dev/infiniband in containers); --network socket would accept TCP",
          seen, host);
    case NetworkPlan::Proof::kSocket:
      if (strcasecmp(proof.net.c_str(), "Socket") == 0) return {};
      return fmt::format("NCCL runs over {} on {}, although --network socket was given: report this", seen, host);
    case NetworkPlan::Proof::kNone:
    case NetworkPlan::Proof::kAnything:
      return {};
  }
  return {};
}

}  // namespace mpzero::parallel
