#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/environment.hpp"

namespace mpzero::parallel {

// A library that gives NCCL another network.
struct NetworkPlugin {
  std::string library;      // as NCCL can be told to load it: a file, or a name that the loader finds
  std::string file;         // what the loader finds under that name
  std::string net_name;     // what NCCL_NET calls its network
  bool by_default = false;  // NCCL loads it by itself
};

struct PluginSearch {
  std::optional<NetworkPlugin> plugin;
  std::string problem;  // why there is none, one clause
};

// Whether `net_name` is the network of aws-ofi-nccl, the plugin that runs NCCL over libfabric and so over EFA. Releases
// before 1.10 called it "AWS Libfabric". NCCL compares without regard to case.
bool is_libfabric_net(const std::string& net_name);

// The release of aws-ofi-nccl in `file`, e.g. "1.16.2", "1.9.2-aws" or "git-6e504db"; empty where the file names none.
// The plugin has no call that tells its version, but every build since 1.3 carries it in the words with which it
// starts.
std::string plugin_version(const std::string& file);

// Where the EFA installer, the deep learning images and NVIDIA's containers put the plugin.
std::vector<std::string> usual_plugin_files();

// Finds aws-ofi-nccl: the library that NCCL_NET_PLUGIN names, else the one that NCCL loads by default, else those of
// `files`. Loads each candidate to read the name of its network, since that name differs between releases.
PluginSearch find_libfabric_plugin(const Environment& environment,
                                   const std::vector<std::string>& files = usual_plugin_files());

}  // namespace mpzero::parallel
