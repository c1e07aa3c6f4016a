#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace mpzero::io {

// The cache of Hugging Face on this machine, as huggingface_hub finds it: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE,
// HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub. It need not exist.
std::filesystem::path hub_cache();

// Whether it has the form of a name on the hub: "Qwen/Qwen3-0.6B".
bool is_hub_name(std::string_view text);

// `given`; if that is no file or folder but the name of a cached model, the folder of its snapshot:
// models--ORG--NAME/snapshots/COMMIT, with the commit in models--ORG--NAME/refs/main. Also if only a part is cached.
std::filesystem::path hub_snapshot_or(const std::filesystem::path& given);

// The folder of a snapshot of the model of this name at a branch, tag or commit. It need not exist.
std::filesystem::path hub_snapshot(const std::filesystem::path& name, const std::string& revision);

// The name on the hub of the model in the folder of a snapshot; empty: it is no such folder.
std::string hub_name_of(const std::filesystem::path& folder);

// A clause: why there are no weights for `given`, which is no folder, and how to get them.
std::string explain_missing_weights(const std::filesystem::path& given);

}  // namespace mpzero::io
