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

// The settings that a checkpoint records for its run (io::TrainingProgress::settings_json), and a resumed run's changes
// to them. The model's config.json is recorded separately: see model_changes.hpp.
namespace mpzero {

// Keys of recorded_settings().
inline constexpr const char* kTrainData = "train_data";
inline constexpr const char* kValidationData = "validation_data";
inline constexpr const char* kValidationSequences = "validation_sequences";
inline constexpr const char* kLayout = "layout";

struct RunSetup;

// The tokens that a run trains and validates on.
struct DataIdentity {
  io::TokenIdentity train;                              // for a mixture: all its sources
  std::map<std::string, io::TokenIdentity> validation;  // by the set's name; "" for a file without a name
  std::vector<io::TokenIdentity> sources{};             // one per file of --train_data
};

// Identifies the run's token files, which rank 0 reads. Collective: an error is thrown on all ranks.
DataIdentity identify_data(const RunConfig& config, ProcessGroup& group);

// settings_record(), the data (if known), and layout_record() under kLayout, by key. `sources`: RunPosition::sources.
nlohmann::ordered_json recorded_settings(const RunSetup& setup, const std::vector<io::MixtureSource>& sources = {});

// The known settings of a checkpoint's run; a missing key is unknown. If no settings were recorded (DeepSpeed), those
// in the checkpoint's ds_config.json. Throws UserError, naming `checkpoint`, if they are not valid JSON.
nlohmann::json known_settings(const io::TrainingProgress& progress, const std::string& checkpoint);

// Formats a setting for messages, in at most about 100 characters; `value` is untrusted.
std::string show_setting(const nlohmann::json& value);

// Whether `value` identifies the tokens of a file.
bool is_data_identity(const nlohmann::json& value);

// Data identities with equal numbers of tokens and no common checksum compare equal.
bool same_setting(const nlohmann::json& before, const nlohmann::json& now);

// Describes each known setting of the checkpoint's run that has a different value in `now`, in the order of `now`:
// "beta2 0.95 -> 0.999". Settings missing from `now` come last. Excludes the training data and the layout. Each named
// validation set is a separate setting: "validation_data wiki".
std::vector<std::string> changed_settings(const nlohmann::json& known, nlohmann::ordered_json now);

// Describes changes of the layout, for keys in both records: "ranks 4 -> 2". They change results only by rounding.
std::vector<std::string> changed_layout(const nlohmann::json& known, const nlohmann::ordered_json& now);

// The recorded value of --recompute; std::nullopt: not recorded.
std::optional<std::string> recorded_recompute(const nlohmann::json& known);

// Keys of data that cannot be compared: both records have them, with equal numbers of tokens and no common checksum.
std::vector<std::string> uncompared_data(const nlohmann::json& known, const nlohmann::ordered_json& now);

// A source of the training data, as recorded in the settings.
struct RecordedSource {
  io::TokenIdentity identity;
  std::string file;
  io::MixtureSource at;
};

// The recorded sources of a mixture; empty for other runs. Throws UserError, naming `checkpoint`, for sources without
// valid positions.
std::vector<RecordedSource> recorded_sources(const nlohmann::json& settings, const std::string& checkpoint);

// The recorded training data; std::nullopt: unknown.
std::optional<io::TokenIdentity> train_data_of(const nlohmann::json& settings);

}  // namespace mpzero
