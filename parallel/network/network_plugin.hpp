#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/environment.hpp"

namespace mpzero::parallel {

// A library with an additional network for NCCL.
struct NetworkPlugin {
  std::string library;      // for NCCL_NET_PLUGIN: a file, or a name that the loader finds
  std::string file;         // the file that the loader finds under that name
  std::string net_name;     // the name of its network, for NCCL_NET
  bool by_default = false;  // NCCL loads it by default
};

struct PluginSearch {
  std::optional<NetworkPlugin> plugin;
  std::string problem;  // why there is no plugin, one clause
};

// Whether `net_name` is the network of aws-ofi-nccl, the plugin that runs NCCL over libfabric and therefore over EFA.
// Releases before 1.10 called it "AWS Libfabric". NCCL ignores case in the comparison.
bool is_libfabric_net(const std::string& net_name);

// The release of aws-ofi-nccl in `file`, e.g. "1.16.2", "1.9.2-aws" or "git-6e504db"; empty if the file contains none.
// The plugin has no call that returns its version, but every build since 1.3 contains it in its start message.
std::string plugin_version(const std::string& file);

// A known defect of a release of aws-ofi-nccl ("1.18.0"), and the release to install; std::nullopt if none is known.
std::optional<std::string> plugin_hazard(const std::string& version);

// Paths at which the EFA installer, the deep learning images and NVIDIA's containers install the plugin.
std::vector<std::string> usual_plugin_files();

// Finds aws-ofi-nccl: the library that NCCL_NET_PLUGIN names, else the one that NCCL loads by default, else those of
// `files`. Loads each candidate to read the name of its network, because that name differs between releases.
PluginSearch find_libfabric_plugin(const Environment& environment,
                                   const std::vector<std::string>& files = usual_plugin_files());

}  // namespace mpzero::parallel
