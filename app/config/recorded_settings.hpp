#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/config/run_config.hpp"
#include "base/process_group.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/data/token_identity.hpp"

// Settings recorded in a checkpoint (io::TrainingProgress::settings_json), and their comparison with the settings of a
// resumed run. The model's config.json is compared separately: see model_changes.hpp.
namespace mpzero {

// Keys of recorded_settings().
inline constexpr const char* kTrainData = "train_data";
inline constexpr const char* kValidationData = "validation_data";
inline constexpr const char* kValidationSequences = "validation_sequences";
inline constexpr const char* kLayout = "layout";

struct RunSetup;

// Identities of a run's training and validation tokens.
struct DataIdentity {
  io::TokenIdentity train;                              // for a mixture, the combination of all sources
  std::map<std::string, io::TokenIdentity> validation;  // keyed by name; "" for a file without a name
  std::vector<io::TokenIdentity> sources{};             // one per file of --train_data
};

// Computes the identities of the run's token files on rank 0. Collective. If rank 0 fails, throws on all ranks.
DataIdentity identify_data(const RunConfig& config, ProcessGroup& group);

// Returns settings_record(), the data identities (if known) and, under the key kLayout, layout_record(). `sources`:
// RunPosition::sources.
nlohmann::ordered_json recorded_settings(const RunSetup& setup, const std::vector<io::MixtureSource>& sources = {});

// Returns the recorded settings of a checkpoint's run, or, for DeepSpeed's checkpoints, the settings in ds_config.json.
// Throws UserError with the path `checkpoint` if the JSON is invalid.
nlohmann::json known_settings(const io::TrainingProgress& progress, const std::string& checkpoint);

// Formats an untrusted setting for messages, truncated to about 100 characters.
std::string show_setting(const nlohmann::json& value);

// Returns true if `value` is the JSON form of an io::TokenIdentity.
bool is_data_identity(const nlohmann::json& value);

// Returns true if two settings are equal. Data identities with equal numbers of tokens but no common checksum are
// considered equal.
bool same_setting(const nlohmann::json& before, const nlohmann::json& now);

// Describes each setting in `known` that differs in `now`: "beta2 0.95 -> 0.999". Uses the order of `now`; settings
// that are missing from `now` are last. Excludes the training data and the layout. Each named validation set is a
// separate setting: "validation_data wiki".
std::vector<std::string> changed_settings(const nlohmann::json& known, nlohmann::ordered_json now);

// Describes layout changes, e.g. "ranks 4 -> 2", for keys that are in both records. Layout changes alter results only
// by rounding errors.
std::vector<std::string> changed_layout(const nlohmann::json& known, const nlohmann::ordered_json& now);

// Returns the recorded value of --recompute; std::nullopt if not recorded.
std::optional<std::string> recorded_recompute(const nlohmann::json& known);

// Returns the data keys that cannot be compared, because the token counts are equal and the two records have no
// checksum in common.
std::vector<std::string> uncompared_data(const nlohmann::json& known, const nlohmann::ordered_json& now);

// A training data source, as recorded in a checkpoint's settings.
struct RecordedSource {
  io::TokenIdentity identity;
  std::string file;
  io::MixtureSource at;
};

// Returns the recorded sources of a mixture; empty if the run had no mixture. Throws UserError with the path
// `checkpoint` if a source has no valid position.
std::vector<RecordedSource> recorded_sources(const nlohmann::json& settings, const std::string& checkpoint);

// Returns the identity of the recorded training data; std::nullopt if unknown.
std::optional<io::TokenIdentity> train_data_of(const nlohmann::json& settings);

}  // namespace mpzero
