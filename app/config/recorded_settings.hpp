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

// What a checkpoint records of the settings of its run (io::TrainingProgress::settings_json), and what a run that goes
// on from it has changed. In addition to the model, whose config.json is recorded by itself: see model_changes.hpp.
namespace mpzero {

// Keys of recorded_settings().
inline constexpr const char* kTrainData = "train_data";
inline constexpr const char* kValidationData = "validation_data";
inline constexpr const char* kValidationSequences = "validation_sequences";
inline constexpr const char* kLayout = "layout";

struct RunSetup;

// The tokens that a run trains and validates on.
struct DataIdentity {
  io::TokenIdentity train;                              // of a mixture: of all its sources
  std::map<std::string, io::TokenIdentity> validation;  // by the set's name; of a file without a name ""
  std::vector<io::TokenIdentity> sources{};             // of each file of --train_data
};

// Of the run's token files, read by rank 0. Collective: an error is thrown on all ranks.
DataIdentity identify_data(const RunConfig& config, ProcessGroup& group);

// The settings of the table and those of the data, by key, without the latter where the data is not known; and
// layout_record() under kLayout. `sources`: RunPosition::sources.
nlohmann::ordered_json recorded_settings(const RunSetup& setup, const std::vector<io::MixtureSource>& sources = {});

// What is known of the settings of a checkpoint's run; a key that is missing is not known. Where they were not
// recorded, as by DeepSpeed, that is what the checkpoint's ds_config.json says. Throws UserError, naming `checkpoint`,
// where they are no JSON.
nlohmann::json known_settings(const io::TrainingProgress& progress, const std::string& checkpoint);

// A setting for a user, of at most about 100 characters; `value` may come from any file.
std::string show_setting(const nlohmann::json& value);

// Whether it identifies the tokens of a file.
bool is_data_identity(const nlohmann::json& value);

// Identities of as many tokens without a checksum in common count as the same.
bool same_setting(const nlohmann::json& before, const nlohmann::json& now);

// One text for each setting that is known of the checkpoint's run and has another value now, in the order of `now`:
// "beta2 0.95 -> 0.999". Settings that `now` lacks come last. Neither the training data nor the layout is among them. A
// validation set with a name is a setting of its own: "validation_data wiki".
std::vector<std::string> changed_settings(const nlohmann::json& known, nlohmann::ordered_json now);

// The same of the layout, of what both records have: "ranks 4 -> 2". It does not decide the numbers.
std::vector<std::string> changed_layout(const nlohmann::json& known, const nlohmann::ordered_json& now);

// What the run of such settings recomputed; std::nullopt: not recorded.
std::optional<std::string> recorded_recompute(const nlohmann::json& known);

// Which of the data, by key, both know, with as many tokens and without a checksum in common: whether they are the same
// is not known.
std::vector<std::string> uncompared_data(const nlohmann::json& known, const nlohmann::ordered_json& now);

// A source of the training data, as settings have it.
struct RecordedSource {
  io::TokenIdentity identity;
  std::string file;
  io::MixtureSource at;
};

// Of settings of a run on a mixture; else empty. Throws UserError, naming `checkpoint`, for sources without positions.
std::vector<RecordedSource> recorded_sources(const nlohmann::json& settings, const std::string& checkpoint);

// The training data of settings, where they know it.
std::optional<io::TokenIdentity> train_data_of(const nlohmann::json& settings);

}  // namespace mpzero
