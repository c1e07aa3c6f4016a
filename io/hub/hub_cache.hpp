#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace mpzero::io {

// Returns the path of the Hugging Face cache, which may not exist. Like huggingface_hub, checks HF_HUB_CACHE,
// HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub and ~/.cache/huggingface/hub.
std::filesystem::path hub_cache();

// Returns true if `text` has the form of a Hub name, for example "Qwen/Qwen3-0.6B".
bool is_hub_name(std::string_view text);

// Returns the snapshot folder models--ORG--NAME/snapshots/COMMIT if `given` is the name of a cached model and not an
// existing path. Otherwise, returns `given`. COMMIT is the content of refs/main. The snapshot may be incomplete.
std::filesystem::path hub_snapshot_or(const std::filesystem::path& given);

// Returns the snapshot folder of the model `name` at a branch, tag or commit. The folder might not exist.
std::filesystem::path hub_snapshot(const std::filesystem::path& name, const std::string& revision);

// Returns the Hub name of the model in a snapshot folder, or an empty string if `folder` is not a snapshot folder.
std::string hub_name_of(const std::filesystem::path& folder);

// Returns message text with the reason why the weights are missing and a download command. `given` must not be a
// folder.
std::string explain_missing_weights(const std::filesystem::path& given);

}  // namespace mpzero::io
