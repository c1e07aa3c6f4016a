#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace mpzero::io {

// The Hugging Face cache on this machine, as huggingface_hub finds it: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE,
// HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub. It need not exist.
std::filesystem::path hub_cache();

// Whether `text` has the form of a name on the hub: "Qwen/Qwen3-0.6B".
bool is_hub_name(std::string_view text);

// Returns `given` or, if it is the name of a cached model and not a file or folder, the model's snapshot folder:
// models--ORG--NAME/snapshots/COMMIT, with the commit in models--ORG--NAME/refs/main. The model may be partly cached.
std::filesystem::path hub_snapshot_or(const std::filesystem::path& given);

// The snapshot folder of the model `name` at a branch, tag or commit. It need not exist.
std::filesystem::path hub_snapshot(const std::filesystem::path& name, const std::string& revision);

// The hub name of the model in a snapshot folder; empty: `folder` is not a snapshot folder.
std::string hub_name_of(const std::filesystem::path& folder);

// A clause on why there are no weights for `given`, which is not a folder, and how to get them.
std::string explain_missing_weights(const std::filesystem::path& given);

}  // namespace mpzero::io
