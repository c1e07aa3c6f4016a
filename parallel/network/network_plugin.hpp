#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/environment.hpp"

namespace mpzero::parallel {

// A library that provides an additional network for NCCL.
struct NetworkPlugin {
  std::string library;      // value of NCCL_NET_PLUGIN: a file, or a name for the dynamic loader
  std::string file;         // file that the dynamic loader finds for `library`
  std::string net_name;     // name of the plugin's network, for NCCL_NET
  bool by_default = false;  // NCCL loads the plugin by default
};

struct PluginSearch {
  std::optional<NetworkPlugin> plugin;
  std::string problem;  // reason why no plugin was found, one clause
};

// Returns true if `net_name` is the network of aws-ofi-nccl, the plugin that runs NCCL over libfabric and therefore
// over EFA. Releases of the plugin before 1.10 used the name "AWS Libfabric". The comparison ignores case, as in NCCL.
bool is_libfabric_net(const std::string& net_name);

// Returns the release of aws-ofi-nccl in `file`, e.g. "1.16.2", "1.9.2-aws" or "git-6e504db", or an empty string if
// unknown. The plugin lacks a version function, but every build since 1.3 contains the release in its initialization
// message.
std::string plugin_version(const std::string& file);

// Returns a known defect of a release of aws-ofi-nccl ("1.18.0") and the release to install, or std::nullopt.
std::optional<std::string> plugin_hazard(const std::string& version);

// Returns the usual paths of the plugin: the EFA installer, the deep learning images and NVIDIA's containers.
std::vector<std::string> usual_plugin_files();

// Finds aws-ofi-nccl: the library in NCCL_NET_PLUGIN, else NCCL's default plugin, else the first match in `files`. Each
// candidate is loaded to read the name of its network, which differs between releases.
PluginSearch find_libfabric_plugin(const Environment& environment,
                                   const std::vector<std::string>& files = usual_plugin_files());

}  // namespace mpzero::parallel
