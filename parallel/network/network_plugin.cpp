#include "parallel/network/network_plugin.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string_view>

namespace mpzero::parallel {
namespace {

struct Unload {
  void operator()(void* library) const { dlclose(library); }
};

// Returns a plugin's symbol for NCCL, or null if `library` is not a network plugin. The symbol is a struct
// ncclNetPlugin_v<release>, which begins with a `const char* name` in every release of NCCL's interface. NCCL 2.28
// requires release 6 or later.
const void* find_net(void* library) {
  constexpr int kNewestRelease = 20, kOldestRelease = 6;
  for (int release = kNewestRelease; release >= kOldestRelease; --release) {
    const void* net = dlsym(library, fmt::format("ncclNetPlugin_v{}", release).c_str());
    if (net != nullptr && *static_cast<const char* const*>(net) != nullptr) return net;
  }
  return nullptr;
}

std::string file_of(const void* net) {
  Dl_info place{};
  if (dladdr(net, &place) == 0 || place.dli_fname == nullptr) return {};
  return place.dli_fname;
}

// Returns the plugin in `library`, or sets `problem` to the reason for a failure. Leaves `problem` unchanged if the
// file does not exist.
std::optional<NetworkPlugin> open_plugin(const std::string& library, std::string& problem) {
  const std::unique_ptr<void, Unload> handle(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!handle) {
    const char* error = dlerror();
    const std::string reason = error == nullptr ? "unknown reason" : error;
    const bool absent = reason.find(library + ": cannot open shared object file: No such file") != std::string::npos;
    if (!absent) problem = fmt::format("{} cannot be loaded ({})", library, reason);
    return std::nullopt;
  }
  const void* net = find_net(handle.get());
  if (net == nullptr) {
    problem = fmt::format("{} is not an NCCL network plugin", library);
    return std::nullopt;
  }
  const std::string name = *static_cast<const char* const*>(net);
  if (!is_libfabric_net(name)) {
    problem = fmt::format("{} provides the network \"{}\" instead of libfabric", library, name);
    return std::nullopt;
  }
  return NetworkPlugin{.library = library, .file = file_of(net), .net_name = name, .by_default = false};
}

}  // namespace

bool is_libfabric_net(const std::string& net_name) {
  for (const char* known : {"Libfabric", "AWS Libfabric", "OFI"}) {
    if (strcasecmp(net_name.c_str(), known) == 0) return true;
  }
  return false;
}

std::string plugin_version(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  constexpr std::string_view kName = "aws-ofi-nccl ";
  for (size_t at = bytes.find(kName); at != std::string::npos; at = bytes.find(kName, at + 1)) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at + kName.size());
    const auto end = std::find_if_not(begin, bytes.end(), [](unsigned char letter) {
      return std::isalnum(letter) != 0 ||
             std::string_view(".-+~_").find(static_cast<char>(letter)) != std::string::npos;
    });
    std::string word(begin, end);
    // The name also appears before other text, as in "aws-ofi-nccl initialization failed".
    if (!word.empty() && (std::isdigit(static_cast<unsigned char>(word.front())) != 0 || word.rfind("git-", 0) == 0)) {
      return word;
    }
  }
  return {};
}

std::optional<std::string> plugin_hazard(const std::string& version) {
  int major = 0, minor = 0;
  if (std::sscanf(version.c_str(), "%d.%d", &major, &minor) != 2 || major != 1) return std::nullopt;
  // See aws/deep-learning-containers #6551 and #6668.
  if (minor >= 18 && minor < 20) {
    return fmt::format("aws-ofi-nccl {} can hang on broadcasts: install 1.21 or later", version);
  }
  // See the release notes of 1.21.
  if (minor == 20) {
    return fmt::format("aws-ofi-nccl {} can hang on small messages over EFA: install 1.21 or later", version);
  }
  return std::nullopt;
}

std::vector<std::string> usual_plugin_files() {
  return {"libnccl-net-ofi.so",
          "libnccl-net-aws-ofi.so",
          "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so",
          "/opt/amazon/ofi-nccl/lib64/libnccl-net.so",
          "/opt/amazon/ofi-nccl/lib/libnccl-net.so",
          "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net-ofi.so",
          "/opt/amazon/ofi-nccl/lib64/libnccl-net-ofi.so",
          "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so",
          "/opt/amazon/aws-ofi-nccl/lib/libnccl-net-aws-ofi.so",
          "/opt/amazon/aws-ofi-nccl/lib/libnccl-net-ofi.so",
          "/opt/aws-ofi-nccl/lib/libnccl-net.so",
          "/opt/aws-ofi-nccl/install/lib/libnccl-net.so"};
}

PluginSearch find_libfabric_plugin(const Environment& environment, const std::vector<std::string>& files) {
  PluginSearch search;
  if (const auto named = environment("NCCL_NET_PLUGIN"); named && !named->empty()) {
    if (strcasecmp(named->c_str(), "none") == 0) {
      search.problem = "NCCL_NET_PLUGIN=none disables plugins";
      return search;
    }
    // NCCL accepts several names, including short forms.
    for (size_t begin = 0; begin <= named->size() && !search.plugin;) {
      const size_t end = std::min(named->find(',', begin), named->size());
      const std::string word = named->substr(begin, end - begin);
      search.plugin = open_plugin(word, search.problem);
      if (!search.plugin) search.plugin = open_plugin(fmt::format("libnccl-net-{}.so", word), search.problem);
      begin = end + 1;
    }
    if (search.plugin) {
      search.plugin->by_default = true;
    } else if (search.problem.empty()) {
      search.problem = fmt::format("the dynamic loader cannot find NCCL_NET_PLUGIN={}", *named);
    }
    return search;
  }
  search.plugin = open_plugin("libnccl-net.so", search.problem);
  if (search.plugin) {
    search.plugin->by_default = true;
    return search;
  }
  for (const std::string& file : files) {
    search.plugin = open_plugin(file, search.problem);
    if (search.plugin) return search;
  }
  if (search.problem.empty()) search.problem = "no libnccl-net.so was found";
  return search;
}

}  // namespace mpzero::parallel
