#include "app/checkpoint/resume_checks.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/checkpoint/resume_position.hpp"
#include "app/checkpoint/resume_schedule.hpp"
#include "app/config/model_changes.hpp"
#include "app/config/recorded_settings.hpp"
#include "app/config/settings_table.hpp"
#include "app/lora/lora_settings.hpp"
#include "app/tokens/token_checks.hpp"
#include "base/error.hpp"
#include "base/words.hpp"
#include "io/peft/peft_config.hpp"

namespace mpzero {
namespace {

bool is_allowed(const std::string& key, const RunConfig& config) {
  return std::find(config.allow_changed.begin(), config.allow_changed.end(), key) != config.allow_changed.end();
}

// Returns std::nullopt if the checkpoint has no config.json.
std::optional<std::vector<ModelChange>> model_changes_since(const io::StoredCheckpoint& checkpoint,
                                                            const RunSetup& setup) {
  const std::string& text = checkpoint.progress().model_config_json;
  if (text.empty()) return std::nullopt;
  const std::string source = "the model configuration of " + checkpoint.folder().string();
  return model_changes(model::ModelConfig::from_json(text, source), setup.model);
}

void check_same_model(const std::string& folder, const std::vector<ModelChange>& changes) {
  std::vector<std::string> descriptions;
  for (const ModelChange& change : changes) {
    if (change.rule != ChangeRule::kRefused) continue;
    descriptions.push_back(fmt::format("{} was {} but is now {}", change.key, change.before, change.now));
  }
  if (descriptions.empty()) return;
  throw_user_error(
      "{} is a checkpoint of a different model: {}; pass the --model_type or --model_config that was used to train it",
      folder, fmt::join(descriptions, ", "));
}

void check_meant(const std::string& folder, const std::vector<ModelChange>& changes, const RunConfig& config) {
  std::vector<std::string> keys, before, now;
  for (const ModelChange& change : changes) {
    if (change.rule != ChangeRule::kOnPurpose || is_allowed(change.key, config)) continue;
    keys.push_back(change.key);
    before.push_back(change.key + " " + change.before);
    now.push_back(change.now);
  }
  if (keys.empty()) return;
  throw_user_error(
      "{} was trained with {}, but this run has {}; use the same value, or pass --allow_changed {} if the change is "
      "intended",
      folder, fmt::join(before, " and "), fmt::join(now, " and "), fmt::join(keys, ","));
}

void check_optimizer(const std::string& folder, const nlohmann::json& known) {
  if (!known.contains("optimizer") || known["optimizer"] == "AdamW") return;
  throw_user_error(
      "{} was trained with the optimizer {:.100}, whose states AdamW cannot use; export the weights with zero_to_fp32 "
      "and pass them as --init_from",
      folder, known["optimizer"].dump());
}

std::vector<std::string> shown_model_changes(const std::vector<ModelChange>& changes) {
  std::vector<std::string> descriptions;
  for (const ModelChange& change : changes) {
    const char* how = change.rule == ChangeRule::kOnPurpose ? " (--allow_changed)" : "";
    descriptions.push_back(fmt::format("{} {} -> {}{}", change.key, change.before, change.now, how));
  }
  return descriptions;
}

// Ignores files without a tokenizer hash, unless they use the built-in tokenizer.
void add_tokenizer_change(const nlohmann::json& known, const RunSetup& setup, std::vector<ModelChange>& changes) {
  const auto before = train_data_of(known);
  if (!before || !setup.data) return;
  const io::Tokenization& now = setup.data->train.tokenization;
  if (!are_of_other_tokenizers(before->tokenization, now)) return;
  changes.push_back({.key = kTokenizerKey,
                     .before = show_tokenizer(before->tokenization),
                     .now = fmt::format("{} in --train_data {}", show_tokenizer(now), setup.config.train_data),
                     .rule = ChangeRule::kOnPurpose});
}

// Reports keys of --allow_changed that have not changed, e.g. when the same command is run again.
void note_unchanged(const std::vector<ModelChange>& changes, const RunConfig& config, Continuation& run) {
  for (const std::string& key : config.allow_changed) {
    if (key == kTokenizerKey) continue;  // may refer to the tokenizer of --init_from instead
    const auto is_key = [&](const ModelChange& change) { return change.key == key; };
    if (std::any_of(changes.begin(), changes.end(), is_key)) continue;
    run.changes.push_back(
        fmt::format("--allow_changed {} has no effect: the value is the same as in the checkpoint", key));
  }
}

std::string show_data(const std::string& order, const std::optional<io::TokenIdentity>& identity) {
  return identity ? fmt::format("{}, {}", order, io::show(*identity)) : order;
}

// Skips changes that position_after() reports: a change of only seq_length or `shuffle`, and changed sources of a
// mixture.
void compare_data(const io::StoredCheckpoint& checkpoint, const nlohmann::json& known, const RunSetup& setup,
                  Continuation& run) {
  if (!run.position.sources.empty()) return;
  const io::TrainingProgress& progress = checkpoint.progress();
  const std::optional<io::TokenIdentity> before = train_data_of(known);
  const io::TokenIdentity& now = setup.data->train;
  const bool is_same = before && io::same_tokens(*before, now).value_or(false);
  const bool is_other = before && !io::same_tokens(*before, now).value_or(true);
  if (is_same && known.contains("seq_length") && known.contains("shuffle")) return;
  const bool same_order = progress.data_order.empty() || progress.data_order == setup.data_order;
  if (same_order && !is_other) return;
  const std::string data_before = show_data(progress.data_order, before);
  const std::string data_now = show_data(setup.data_order, now);
  if (!is_same) {
    run.differences.insert(run.differences.begin(),
                           is_other ? fmt::format("{} {} -> {}", kTrainData, io::show(*before), io::show(now))
                                    : fmt::format("{} {} -> {}", kTrainData, data_before, data_now));
  }
  run.warnings.push_back(
      fmt::format("the training data differs from that of {} (before: {}; now: {}): the run continues at sequence "
                  "{} of the new order and may repeat sequences; for a new run, use a different --checkpoint_dir.",
                  checkpoint.folder().string(), data_before, data_now, run.position.sequences_seen));
}

void compare_with_deepspeeds(const io::StoredCheckpoint& checkpoint, const RunConfig& config, Continuation& run);

void compare_schedule(const io::StoredCheckpoint& checkpoint, const RunConfig& config, Continuation& run) {
  if (!checkpoint.made_by_mpzero()) return compare_with_deepspeeds(checkpoint, config, run);
  const io::TrainingProgress& progress = checkpoint.progress();
  const double lr = config.schedule.lr(progress.step);
  if (progress.step == 0 || std::isnan(progress.lr) || same_lr(lr, progress.lr)) return;
  run.warnings.push_back(fmt::format(
      "the schedule differs from that of {}: step {} had learning rate {:.6g}, but this run's schedule has "
      "{:.6g}; to keep the old schedule, use the same learning rate and total_num_steps (default: --max_steps).",
      checkpoint.folder().string(), progress.step, progress.lr, lr));
}

// If train_batch_size is not set, it depends on micro-batch size, accumulation and the number of ranks.
void note_batch(const nlohmann::json& known, const RunConfig& config, Continuation& run) {
  const auto before = known.find("train_batch_size");
  if (before == known.end() || !before->is_number_integer() || *before == config.train_batch_size) return;
  if (config.origins.of("train_batch_size").kind != Origin::Kind::kComputed) return;
  const auto old_size = before->get<int64_t>();
  const std::optional<std::string> flags = flags_for_batch(config, old_size);
  run.warnings.push_back(
      fmt::format("the global batch size (micro-batch x accumulation x ranks) changes from {} to {}; {}", old_size,
                  counted(config.train_batch_size, "sequence"),
                  flags ? fmt::format("pass {} to keep the old size.", *flags)
                        : fmt::format("to keep the old size, use a number of ranks that divides {}.", old_size)));
}

// DeepSpeed records the number of sequences but not their order, so the run skips the same number of sequences.
void note_deepspeeds_order(const io::StoredCheckpoint& checkpoint, const RunConfig& config, Continuation& run) {
  const io::TrainingProgress& progress = checkpoint.progress();
  if (config.shuffle) {
    run.warnings.push_back(
        fmt::format("{} was saved by DeepSpeed, which does not record the data order: the run continues at sequence {} "
                    "of mpzero's order and may repeat sequences.",
                    checkpoint.folder().string(), progress.sequences_seen));
  }
}

void compare_with_deepspeeds(const io::StoredCheckpoint& checkpoint, const RunConfig& config, Continuation& run) {
  const io::TrainingProgress& progress = checkpoint.progress();
  const double lr = config.schedule.lr(progress.step + 1);
  if (!checkpoint.next_lr() || same_lr(lr, *checkpoint.next_lr())) return;
  run.warnings.push_back(
      fmt::format("the schedule differs from that of {}: step {} would have had learning rate {:.6g}, but this "
                  "run's schedule has {:.6g}; to keep the old schedule, use the same scheduler and total_num_steps.",
                  checkpoint.folder().string(), progress.step + 1, *checkpoint.next_lr(), lr));
}

void follow_schedule(const io::StoredCheckpoint& checkpoint, ResumedSchedule schedule, Continuation& run) {
  if (!schedule.is_explained) compare_schedule(checkpoint, run.config, run);
  run.config.resumed_schedule = schedule.schedule;
  if (!schedule.line.empty()) run.changes.push_back(std::move(schedule.line));
  if (!schedule.warning.empty()) run.warnings.push_back(std::move(schedule.warning));
}

// Returns the keys of settings that are unknown until the data is prepared.
std::vector<const char*> undecided_settings(const RunSetup& setup) {
  std::vector<const char*> keys;
  if (!setup.data) keys = {kTrainData, kValidationData};
  if (setup.knows_length()) return keys;
  keys.insert(keys.end(), {"max_steps", "num_decay_steps"});
  if (setup.config.schedule_ends_at_max_steps) keys.push_back("total_num_steps");
  if (setup.config.warmup_ratio) keys.push_back("warmup_num_steps");
  return keys;
}

// The checkpoint's number of validation sequences overrides --validation_batches, which depends on the layout.
void follow_validation(const io::StoredCheckpoint& checkpoint, const nlohmann::json& known, Continuation& run) {
  RunConfig& config = run.config;
  if (config.validation_data.empty()) return;
  const std::string folder = checkpoint.folder().string();
  const auto recorded = known.find(kValidationSequences), data = known.find(kValidationData);
  if (recorded == known.end() && data != known.end() && !data->is_null()) {
    run.changes.push_back(fmt::format(
        "{} does not record the validation size (saved by an older mpzero version): validation losses may not be "
        "comparable",
        folder));
  }
  if (recorded == known.end() || !recorded->is_number_integer() || *recorded < 0) return;
  if (!config.validation_batches || *recorded == config.validation_sequences) return;
  run.changes.push_back(
      fmt::format("Validation uses {}, as in {}; --validation_batches {} would select {} with this layout",
                  counted(recorded->get<int64_t>(), "sequence"), folder, *config.validation_batches,
                  counted(config.validation_sequences, "sequence")));
  config.validation_sequences = recorded->get<int64_t>();
}

void note_unknown(const io::StoredCheckpoint& checkpoint, bool model_is_known, const nlohmann::json& known,
                  Continuation& run) {
  const std::string folder = checkpoint.folder().string();
  if (!model_is_known) {
    run.warnings.push_back(
        fmt::format("{} does not record a model configuration, so heads, rope_theta, rope_scaling and rms_norm_eps "
                    "were not compared.",
                    folder));
  }
  if (checkpoint.made_by_mpzero() && !train_data_of(known)) {
    run.changes.push_back(fmt::format(
        "{} does not record its settings (saved by an older mpzero version), so only ds_config.json was compared",
        folder));
  }
}

// Excludes dropout, which may change and is reported separately.
void check_same_adapters(std::optional<LoraConfig> saved, std::optional<LoraConfig> now, const std::string& folder) {
  if (!saved && !now) return;
  if (!saved) {
    throw_user_error("{} has no adapters, but this run has --lora_r {}; start a new run with --init_from {}", folder,
                     now->r, folder);
  }
  const LoraConfig wanted = *saved;
  if (now) saved->dropout = now->dropout;
  if (saved == now) return;
  throw_user_error(
      "{} has adapters with {}, but this run has {}; pass --lora_r {} --lora_alpha {} --lora_target_modules {}{}{}",
      folder, describe_lora(wanted), now ? describe_lora(*now) : "none", wanted.r, wanted.alpha,
      fmt::join(wanted.targets, ","), wanted.rslora ? " --use_rslora" : "",
      wanted.dropout > 0 ? fmt::format(" --lora_dropout {}", wanted.dropout) : "");
}

}  // namespace

void check_resumable(const io::StoredCheckpoint& checkpoint, const RunSetup& setup,
                     const std::vector<UnitSpec>& units) {
  const std::string folder = checkpoint.folder().string();
  check_same_adapters(io::adapters_of(checkpoint), setup.model.lora, folder);
  io::check_same_parameters(checkpoint.parameters(), units, checkpoint.folder());
  const nlohmann::json known = known_settings(checkpoint.progress(), folder);
  std::vector<ModelChange> changes = model_changes_since(checkpoint, setup).value_or(std::vector<ModelChange>{});
  check_same_model(folder, changes);
  add_tokenizer_change(known, setup, changes);
  check_meant(folder, changes, setup.config);
  check_optimizer(folder, known);
  if (setup.config.lora.coded() && checkpoint.run().init_from_hash.empty()) {
    throw_user_error(
        "the base model of {} has random weights, which --load_in_8bit and --load_in_4bit do not support; omit {}",
        folder, setup.config.lora.load_in_4bit ? "--load_in_4bit" : "--load_in_8bit");
  }
  if (checkpoint.made_by_mpzero() && checkpoint.progress().seed != setup.config.seed) {
    throw_user_error(
        "{} was trained with --seed {}, but this run has --seed {}, which would change the data order; use the same "
        "seed",
        folder, checkpoint.progress().seed, setup.config.seed);
  }
}

Continuation continue_run(const io::StoredCheckpoint& checkpoint, const RunSetup& setup) {
  const auto of_model = model_changes_since(checkpoint, setup);
  nlohmann::json known = known_settings(checkpoint.progress(), checkpoint.folder().string());
  const ResumedPosition resumed = position_after(checkpoint, setup, known);
  Continuation run{
      .config = setup.config, .position = resumed.position, .changes = {}, .warnings = {}, .differences = {}};
  // Epochs are counted with the run's first batch size, so that the run's length does not depend on the current batch
  // size.
  const nlohmann::json batch = known.value(kEpochBatch, known.value("train_batch_size", nlohmann::json()));
  if (batch.is_number_integer() && batch.get<int64_t>() > 0) run.config.epoch_batch = batch.get<int64_t>();
  std::vector<std::string> given_before;  // already reported by set_up_run()
  if (setup.train_windows > 0) apply_epochs(run.config, setup.train_windows, given_before, run.position);
  follow_validation(checkpoint, known, run);
  RunSetup continued = setup;
  continued.config = run.config;
  nlohmann::ordered_json now = recorded_settings(continued);
  note_unknown(checkpoint, of_model.has_value(), known, run);
  std::optional<ResumedSchedule> schedule;
  if (setup.knows_length()) schedule = schedule_after(checkpoint, run.config, known);
  std::vector<const char*> unknown_or_same = undecided_settings(setup);
  // The run follows the checkpoint's schedule to its end, which --max_steps does not change.
  const bool keeps_end = schedule && schedule->schedule && schedule->schedule->held_from();
  if (keeps_end && run.config.schedule_ends_at_max_steps) unknown_or_same.push_back("total_num_steps");
  for (const char* key : unknown_or_same) {
    known.erase(key);
    now.erase(key);
  }
  std::vector<ModelChange> changes = of_model.value_or(std::vector<ModelChange>{});
  add_tokenizer_change(known, setup, changes);
  run.differences = shown_model_changes(changes);
  if (of_model) note_unchanged(*of_model, setup.config, run);
  for (std::string& change : changed_settings(known, now)) run.differences.push_back(std::move(change));
  if (!resumed.change.empty()) run.differences.push_back(resumed.change);
  run.recompute = recorded_recompute(known);
  std::vector<std::string> all = run.differences;
  for (std::string& change : changed_layout(known, now)) all.push_back(std::move(change));
  if (!all.empty()) run.changes.push_back(fmt::format("Changed since the checkpoint: {}", fmt::join(all, ", ")));
  if (const auto keys = uncompared_data(known, now); !keys.empty()) {
    run.changes.push_back(fmt::format(
        "Could not compare the tokens of {} with those of {}: the token counts are equal, but the two datasets have "
        "no checksum in common",
        fmt::join(keys, " and "), checkpoint.folder().string()));
  }
  note_batch(known, run.config, run);
  if (!resumed.line.empty()) run.changes.push_back(resumed.line);
  if (!resumed.warning.empty()) run.warnings.push_back(resumed.warning);
  if (!checkpoint.made_by_mpzero()) {
    note_deepspeeds_order(checkpoint, setup.config, run);
  } else if (setup.data) {
    compare_data(checkpoint, known, setup, run);
  }
  if (schedule) follow_schedule(checkpoint, *std::move(schedule), run);
  return run;
}

void check_unfinished(const io::StoredCheckpoint& checkpoint, const RunSetup& setup, const Continuation& run) {
  const int64_t step = run.position.step;
  const bool is_finished = setup.knows_length() && step >= run.config.max_steps;
  if (!is_finished || run.differences.empty()) return;
  throw_user_error(
      "{} is at or past the last step, {}, but settings or data changed ({}), so the run would end without training; "
      "raise {} to train with the changes",
      checkpoint.folder().string(), run.config.max_steps, fmt::join(run.differences, ", "),
      run.config.num_train_epochs ? "--num_train_epochs"
      : run.config.sequences      ? "--epochs"
                                  : fmt::format("--max_steps above {}", step));
}

}  // namespace mpzero
