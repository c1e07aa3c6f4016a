#include "app/config/run_setup.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/config/model_changes.hpp"
#include "app/config/model_limits.hpp"
#include "app/config/prepare_data_command.hpp"
#include "app/config/zero_options.hpp"
#include "app/flags/options.hpp"
#include "app/flags/validation_data.hpp"
#include "app/lora/lora_settings.hpp"
#include "app/tokens/encoder_checks.hpp"
#include "app/tokens/token_checks.hpp"
#include "base/error.hpp"
#include "base/words.hpp"
#include "io/checkpoint_dir/catalog.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/data/data_loader.hpp"
#include "io/data/token_dataset.hpp"
#include "io/ds_config/ds_config.hpp"
#include "io/files/shipped_folders.hpp"
#include "io/hub/hub_cache.hpp"
#include "io/weights/initial_weights.hpp"

namespace mpzero {
namespace {

namespace fs = std::filesystem;

// Placeholder for --train_data if the flag is not set.
constexpr const char* kUnnamed = "(no --train_data)";

fs::path preset_path(const std::string& model_type) {
  std::vector<std::string> known, folders;
  for (const fs::path& folder : io::shipped_folders("models")) {
    if (fs::exists(folder / (model_type + ".json"))) return folder / (model_type + ".json");
    if (folders.empty() || folders.front() != folder.string()) folders.push_back(folder.string());
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) known.push_back(entry.path().stem().string());
  }
  if (known.empty()) {
    throw_user_error(
        "--model_type {}: found no presets in {}; run mpzero from its checkout, or pass a Hugging Face config.json as "
        "--model_config",
        model_type, fmt::join(folders, " or "));
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  const auto nearest = nearest_name(model_type, known);
  throw_user_error(
      "--model_type {} is not a preset in configs/models (available: {}); {}choose one, or pass a Hugging Face "
      "config.json as --model_config",
      model_type, fmt::join(known, ", "), nearest ? fmt::format("did you mean {}? Otherwise, ", *nearest) : "");
}

template <typename T>
void override_with(T& field, const std::optional<T>& value) {
  if (value) field = *value;
}

bool names_model(const CommandLine& command_line) {
  return command_line.gives("model_type") || !command_line.model_config.empty();
}

struct InitialModel {
  model::ModelConfig config;
  std::string source;
};

InitialModel read_initial_model(const io::InitialFolder& init, std::optional<int64_t> positions = {}) {
  if (!init.is_checkpoint) {
    const fs::path path = init.folder / "config.json";
    return {.config = model::ModelConfig::from_file(path, positions), .source = path.string()};
  }
  const std::string source = "the model configuration of " + init.folder.string();
  if (init.model_config_json.empty()) {
    throw_user_error("--init_from {}: the checkpoint has no model configuration; pass --model_config or --model_type.",
                     init.folder.string());
  }
  return {.config = model::ModelConfig::from_json(init.model_config_json, source, positions), .source = source};
}

// Applies only the override of max_position_embeddings. read_model() applies all other overrides.
InitialModel model_with_positions(const CommandLine& command_line, const io::InitialFolder& init) {
  const std::optional<int64_t> positions = command_line.model_overrides.max_position_embeddings;
  const auto named = [&](const fs::path& path) {
    return InitialModel{.config = model::ModelConfig::from_file(path, positions), .source = path.string()};
  };
  if (!command_line.model_config.empty()) return named(command_line.model_config);
  if (command_line.init_from.empty() || command_line.gives("model_type")) {
    return named(preset_path(command_line.model_type));
  }
  if (!init.is_gone && !fs::is_directory(command_line.init_from)) {
    throw_user_error("--init_from {}: {}", command_line.init_from, io::explain_missing_weights(command_line.init_from));
  }
  return read_initial_model(init, positions);
}

model::ModelConfig read_model(const CommandLine& command_line, const io::InitialFolder& init) {
  auto [model, source] = model_with_positions(command_line, init);
  const ModelOverrides& overrides = command_line.model_overrides;
  // All other overrides would apply to both encoder and decoder layers.
  if (ModelOverrides others = overrides; model.t5) {
    others.dropout_rate.reset();
    if (others != ModelOverrides{}) {
      throw_user_error("{}: T5 supports only the override --dropout_rate; edit config.json instead", source);
    }
  }
  override_with(model.vocab_size, overrides.vocab_size);
  override_with(model.hidden_size, overrides.hidden_size);
  override_with(model.intermediate_size, overrides.intermediate_size);
  override_with(model.num_hidden_layers, overrides.num_hidden_layers);
  override_with(model.num_attention_heads, overrides.num_attention_heads);
  override_with(model.num_key_value_heads, overrides.num_key_value_heads);
  override_with(model.head_dim, overrides.head_dim);
  override_with(model.rms_norm_eps, overrides.rms_norm_eps);
  override_with(model.rope_theta, overrides.rope_theta);
  if (overrides.dropout_rate) {
    if (!model.t5)
      throw_user_error("--dropout_rate {}: {} has no dropout; omit the flag", *overrides.dropout_rate,
                       model.model_type);
    model.t5->dropout_rate = *overrides.dropout_rate;
  }
  model.validate(source);
  return model;
}

// Throws UserError if the model differs from the config.json of --init_from. The weights would load without an error
// even if their meaning differs (rope_theta, heads).
void check_init_model(const CommandLine& command_line, const io::InitialFolder& init, const model::ModelConfig& model) {
  const bool has_model = init.is_checkpoint ? !init.model_config_json.empty() : fs::exists(init.folder / "config.json");
  // If the weights no longer exist, check_resumable() compares the model.
  if (command_line.init_from.empty() || init.is_gone || !names_model(command_line) || !has_model) return;
  std::vector<std::string> differences;
  for (const ModelChange& change : model_changes(read_initial_model(init).config, model)) {
    if (change.rule == ChangeRule::kFree) continue;
    differences.push_back(fmt::format("{} {} vs. {}", change.key, change.before, change.now));
  }
  if (differences.empty()) return;
  const bool by_type = command_line.model_config.empty();
  const std::string flag = by_type ? "model_type" : "model_config";
  throw_user_error(
      "--init_from {}: {} differs from --{} {}: {}; omit --{} to use the folder's model, or override the keys with "
      "flags such as --rope_theta.",
      command_line.init_from, init.is_checkpoint ? "the checkpoint's model" : "its config.json", flag,
      by_type ? command_line.model_type : command_line.model_config, fmt::join(differences, ", "), flag);
}

// Returns true if the file exists. Throws UserError if the file is missing and `data_files` is kMustExist. `given`:
// flag and value, "--validation_data wiki=wiki.h5".
bool has_data_file(const std::string& path, const std::string& given, const CommandLine& command_line,
                   DataFiles data_files, RunSetup& setup) {
  if (fs::exists(path)) return true;
  const std::string command = prepare_data_command(command_line, path);
  if (data_files == DataFiles::kMustExist) {
    throw_user_error("{} does not exist; create it with: {}", given, command);
  }
  if (setup.missing_data.empty()) setup.prepare_command = command;
  setup.missing_data.push_back(given);
  return false;
}

void check_has_checksums(const io::TokenDataset& data, std::vector<std::string>& warnings) {
  if (data.has_checksums()) return;
  warnings.push_back(fmt::format("{} has no checksums, so corruption cannot be detected; add them with: {}",
                                 data.path().string(), rewrite_data_command(data.path().string())));
}

void append(std::vector<std::string>& all, std::vector<std::string> more) {
  std::ranges::move(more, std::back_inserter(all));
}

// Returns the token ids and tokenizer that the model expects.
ExpectedTokens expected_tokens(const CommandLine& line, const io::InitialFolder& init, const RunSetup& setup) {
  const std::vector<std::string>& allowed = line.allow_changed;
  ExpectedTokens expected{.model = "the model's config.json",
                          .eos_token_ids = setup.model.eos_token_ids,
                          .bos_token_id = setup.model.bos_token_id,
                          .vocab_size = setup.model.vocab_size,
                          .weights = init.folder.string(),
                          .tokenizer_hash = init.tokenizer_hash,
                          .may_differ = std::ranges::find(allowed, kTokenizerKey) != allowed.end()};
  expected.eos_token_ids.insert(expected.eos_token_ids.end(), init.eos_token_ids.begin(), init.eos_token_ids.end());
  return expected;
}

// Opens a token file and checks its vocabulary, pairs and documents against the run.
io::TokenDataset open_data(const std::string& path, const RunSetup& setup, std::vector<std::string>& warnings) {
  io::TokenDataset data(path, setup.config.seq_length, setup.config.document_mask);
  data.check_vocabulary(setup.model.vocab_size);
  check_pairs(data, setup.config, setup.model);
  // transformers scales by the length of the longest document so far, which would depend on the data order.
  if (data.masks_documents() && setup.config.seq_length > setup.model.rope_changes_after()) {
    throw_user_error(
        "{}: the document mask does not support --seq_length {} with RoPE scaling that changes beyond {} tokens; "
        "reduce --seq_length, or pass --document_mask false",
        path, setup.config.seq_length, setup.model.rope_changes_after());
  }
  check_has_checksums(data, warnings);
  return data;
}

// Returns the maximum number of documents per sequence, from a sample of sequences across the file.
int64_t documents_per_window(const io::TokenDataset& data) {
  constexpr int64_t kSampled = 4096;
  const int64_t step = std::max<int64_t>(1, data.num_windows() / kSampled);
  size_t most = 1;
  for (int64_t window = 0; window < data.num_windows(); window += step) {
    std::vector<int32_t> ends;
    data.append_document_ends(window, 0, ends);
    most = std::max(most, ends.size());
  }
  return static_cast<int64_t>(most);
}

// Opens a validation file and returns its tokenization. Errors include the name of the set, if any.
io::Tokenization open_validation_data(const ValidationFile& file, RunSetup& setup) {
  try {
    const io::TokenDataset data = open_data(file.path, setup, setup.warnings);
    setup.validation.push_back({.file = file, .sequences = data.num_windows()});
    return data.tokenization();
  } catch (const UserError& error) {
    if (file.name.empty()) throw;
    throw UserError(fmt::format("--validation_data {}: {}", show(file), error.what()), error.scope());
  }
}

// A new model has no weights that depend on the ids in its config.json, so it uses the tokenizer's ids.
void adopt_special_ids(const TokenFile& file, ExpectedTokens& expected, RunSetup& setup) {
  const io::Tokenization& tokens = file.tokens;
  std::vector<std::string> adopted;
  std::vector<int64_t>& eos = setup.model.eos_token_ids;
  if (tokens.eos_token_id && !eos.empty() && std::ranges::find(eos, *tokens.eos_token_id) == eos.end()) {
    adopted.push_back(fmt::format("eos_token_id {} (config.json: {})", *tokens.eos_token_id, fmt::join(eos, ", ")));
    expected.eos_token_ids = eos = {*tokens.eos_token_id};
  }
  std::optional<int64_t>& bos = setup.model.bos_token_id;
  if (tokens.add_bos.value_or(false) && tokens.bos_token_id && bos && *bos != *tokens.bos_token_id) {
    adopted.push_back(fmt::format("bos_token_id {} (config.json: {})", *tokens.bos_token_id, *bos));
    expected.bos_token_id = bos = tokens.bos_token_id;
  }
  if (adopted.empty()) return;
  setup.warnings.push_back(fmt::format("{} {}: a new model uses the special token ids of the data's tokenizer: {}.",
                                       file.flag, file.path, fmt::join(adopted, ", ")));
}

// Opens the training data. Returns the first file; std::nullopt if a file is missing.
std::optional<TokenFile> set_up_train_data(const CommandLine& line, DataFiles data_files, ExpectedTokens& expected,
                                           RunSetup& setup) {
  RunConfig& config = setup.config;
  std::vector<TrainFile> files = train_files(config.train_data);
  std::optional<TokenFile> first, chat;
  bool is_complete = true;
  for (TrainFile& file : files) {
    if (!has_data_file(file.path, "--train_data " + file.path, line, data_files, setup)) {
      is_complete = false;
      continue;
    }
    const io::TokenDataset data = open_data(file.path, setup, setup.warnings);
    const TokenFile opened{.flag = "--train_data", .path = file.path, .tokens = data.tokenization()};
    if (!first && expected.weights.empty()) adopt_special_ids(opened, expected, setup);
    append(setup.warnings, check_tokens(opened, expected));
    if (first) {
      check_one_tokenizer(opened, *first);
      append(setup.warnings, check_same_tokenizer(opened, *first, /*may_differ=*/true));
    }
    if (!first) first = opened;
    if (const std::string& used = opened.tokens.chat_template; !used.empty()) {
      if (!chat) chat = opened;
      if (chat->tokens.chat_template != used) {
        setup.warnings.push_back(
            fmt::format("--train_data: {} and {} were prepared with different chat templates; exports and "
                        "app/generate.py use the first template.",
                        chat->path, opened.path));
      }
    }
    file.num_windows = data.num_windows();
    if (file.weight == 0) file.weight = static_cast<double>(file.num_windows);
    setup.train_windows += data.num_windows();
    setup.train_tokens += data.num_tokens();
    if (data.masks_documents()) config.documents = std::max(config.documents, documents_per_window(data));
    config.has_loss_mask |= data.has_loss_mask();
  }
  if (is_complete) {
    setup.train_files = std::move(files);
    return first;
  }
  setup.train_windows = setup.train_tokens = 0;
  return std::nullopt;
}

// Sets the values that depend on the size of the training data.
void use_train_data(const TokenFile& first, RunSetup& setup) {
  RunConfig& config = setup.config;
  apply_epochs(config, setup.train_windows, setup.warnings);
  if (config.train_batch_size > setup.train_windows) {
    setup.warnings.push_back(
        fmt::format("train_batch_size {} exceeds the {} of {}, so each step repeats some sequences.",
                    config.train_batch_size, counted(setup.train_windows, "sequence"), config.train_data));
  }
  setup.data_order = fmt::format("{} sequences of {} tokens, tokenizer {}, {}", setup.train_windows, config.seq_length,
                                 first.tokens.tokenizer, config.shuffle ? "shuffled" : "in the file's order");
  if (setup.train_files.size() > 1) setup.data_order += fmt::format(", of {} files", setup.train_files.size());
}

// Checks that the token files match the model and each other, and sets values that depend on their sizes.
void set_up_data(const CommandLine& line, const io::InitialFolder& init, DataFiles data_files, RunSetup& setup) {
  ExpectedTokens expected = expected_tokens(line, init, setup);
  const std::optional<TokenFile> train_file = set_up_train_data(line, data_files, expected, setup);
  for (const ValidationFile& file : setup.config.validation_data) {
    const std::string given = "--validation_data " + show(file);
    if (!has_data_file(file.path, given, line, data_files, setup)) continue;
    const TokenFile opened{
        .flag = "--validation_data", .path = show(file), .tokens = open_validation_data(file, setup)};
    append(setup.warnings, train_file ? check_same_tokenizer(opened, *train_file, expected.may_differ)
                                      : check_tokens(opened, expected));
  }
  if (train_file) use_train_data(*train_file, setup);
}

// Returns the checkpoints that the run may resume from, in order of preference; empty for a new run.
std::vector<fs::path> checkpoints_of_run(const CommandLine& line) {
  const std::string& named = line.resume_from_checkpoint;
  if (named == "none" || (named.empty() && line.overwrite)) return {};
  const fs::path folder = named.empty() ? line.checkpoint_dir : named;
  if (io::looks_like_checkpoint(folder)) return {folder};
  return io::resume_candidates(folder, /*model_type=*/"").folders;
}

// Returns the run's initial folder if --init_from is this folder, its parent, or its Hugging Face name. For adapters,
// returns the folder of the base.
std::optional<io::InitialFolder> folder_that_run_began_with(const CommandLine& line) {
  const std::string given = absolute_init_from(line.init_from);
  for (const fs::path& folder : checkpoints_of_run(line)) {
    std::unique_ptr<io::StoredCheckpoint> checkpoint;
    try {
      checkpoint = io::open_checkpoint(folder);
    } catch (const Damaged&) {  // resume_run() reports damage and tries the next checkpoint
      continue;
    }
    const io::RunRecord& run = checkpoint->run();
    const std::string& model = checkpoint->progress().model_config_json;
    const auto is_given = [&](const fs::path& recorded) {
      return recorded == given || (io::is_hub_name(line.init_from) && io::hub_name_of(recorded) == line.init_from);
    };
    const auto is_below = [&](const fs::path& recorded) { return recorded.parent_path() == given; };
    const bool adapters = is_given(run.init_adapters) || is_below(run.init_adapters);
    const fs::path recorded = adapters ? run.init_adapters : run.init_from;
    if (model.empty() || !(is_given(recorded) || is_below(recorded))) return std::nullopt;
    io::InitialFolder found{.folder = recorded, .is_checkpoint = true, .is_gone = true, .model_config_json = model};
    if (!adapters) {
      found.is_latest = !is_given(recorded);
      return found;
    }
    found.folder = line.base_model.empty() ? fs::path(run.init_from) : io::weights_folder(line.base_model);
    found.adapters = recorded;
    found.adapters_latest = !is_given(recorded);
    found.adapter_settings = io::adapters_of(*checkpoint).value();
    return found;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> describe_validation(const RunSetup& setup) {
  const RunConfig& config = setup.config;
  const std::string when = config.validation_freq == 0   ? "never"
                           : config.validation_freq == 1 ? "every step"
                                                         : fmt::format("every {} steps", config.validation_freq);
  std::vector<std::string> lines;
  for (const auto& [file, sequences] : setup.validation) {
    const int64_t read = io::validation_windows(config.validation_sequences, sequences);
    lines.push_back(fmt::format("{}{}: {} {} of {} tokens in {}", file.name.empty() ? "" : file.name + ", ", when,
                                read < sequences ? fmt::format("the first {} of", read) : "all",
                                counted(sequences, "sequence"), config.seq_length, file.path));
  }
  return lines;
}

std::vector<std::string> describe_mixture(const RunSetup& setup, int64_t steps) {
  std::vector<std::string> lines;
  if (setup.train_files.size() < 2) return lines;
  double weights = 0;
  for (const TrainFile& file : setup.train_files) weights += file.weight;
  const double sequences = static_cast<double>(steps) * static_cast<double>(setup.config.train_batch_size);
  for (const TrainFile& file : setup.train_files) {
    const double share = file.weight / weights;
    lines.push_back(fmt::format("{}: {:.3g}% of the sequences, {:.3g} epochs in {}", file.path, 100 * share,
                                sequences * share / static_cast<double>(file.num_windows), counted(steps, "step")));
  }
  return lines;
}

io::InitialFolder find_init_from(const CommandLine& command_line) {
  if (command_line.init_from.empty()) {
    if (command_line.base_model.empty()) return {};
    throw_user_error("--base_model {} requires --init_from; pass adapters or the base model as --init_from",
                     command_line.base_model);
  }
  io::InitialFolder found = io::find_initial_folder(command_line.init_from, command_line.base_model);
  const bool exists = io::has_initial_weights(found.folder);
  if (!exists) found = folder_that_run_began_with(command_line).value_or(found);
  if (!command_line.base_model.empty() && found.adapters.empty()) {
    throw_user_error(
        "--base_model {}: --init_from {} contains no adapters that need a base model; omit one of these flags",
        command_line.base_model, command_line.init_from);
  }
  if (exists && !found.problem.empty()) {
    // A resumed run does not need the tokenizer's files.
    if (checkpoints_of_run(command_line).empty()) throw UserError(found.problem);
    found.warnings.push_back(found.problem + ".");
  }
  return found;
}

std::string absolute_init_from(const std::string& init_from) {
  if (init_from.empty()) return "";
  std::error_code error;
  // weakly_canonical() does not make a relative path absolute if no component exists.
  fs::path folder = fs::absolute(init_from, error);
  if (!error) folder = fs::weakly_canonical(folder, error);
  if (!folder.has_filename()) folder = folder.parent_path();  // "weights/"
  // JSON manifests cannot store invalid UTF-8.
  const nlohmann::json text = error ? init_from : folder.string();
  return nlohmann::json::parse(text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void warn_of_device(RunSetup& setup) {
  if (setup.device != "cpu" || !setup.config.zero.release_gradients.value_or(false)) return;
  setup.warnings.push_back(
      fmt::format("{}: zero_optimization.offload_optimizer.release_gradients has no effect on the CPU, where gradients "
                  "are already in host memory.",
                  setup.config.ds_config_path));
}

int64_t stage_2_bytes(const RunSetup& setup) {
  if (setup.config.zero.stage < 3 || setup.layout.ranks_per_node == 1) return 0;
  return num_parameters(setup.model) * (setup.config.dtype == "bf16" ? 2 : 4);
}

RunSetup set_up_run(const CommandLine& command_line, int world_size, DataFiles data_files) {
  return set_up_run(command_line, find_init_from(command_line), world_size, data_files);
}

RunSetup set_up_run(const CommandLine& command_line, const io::InitialFolder& init, int world_size,
                    DataFiles data_files) {
  const std::string& file = command_line.deepspeed_config;
  return set_up_run(command_line, init, file.empty() ? io::DsConfig{} : io::read_ds_config(file), world_size,
                    data_files);
}

RunSetup set_up_run(const CommandLine& given, const io::InitialFolder& init, const io::DsConfig& ds_config,
                    int world_size, DataFiles data_files) {
  CommandLine command_line = given;
  command_line.init_from = init.folder.string();
  if (data_files == DataFiles::kMayBeUnnamed && command_line.train_data.empty()) command_line.train_data = kUnnamed;
  RunSetup setup;
  setup.model = read_model(command_line, init);
  check_init_model(command_line, init, setup.model);
  if (!init.adapters.empty()) setup.model.lora = init.adapter_settings;
  check_sequence_ranks(ds_config.sequence_parallel_size.value, ds_config.path, world_size, setup.model);
  setup.layout = {.nodes = 1,
                  .ranks_per_node = world_size,
                  .sequence_ranks = static_cast<int>(ds_config.sequence_parallel_size.value)};
  setup.init_from_latest = init.is_latest;
  setup.init_adapters_latest = init.adapters_latest;
  setup.init_base_hash = init.base_hash;
  append(setup.warnings, init.warnings);
  setup.names_model = names_model(command_line);
  setup.config = resolve(command_line, ds_config, setup.layout.data_parallel_size(),
                         ModelDims{.hidden_size = setup.model.hidden_size}, setup.warnings);
  setup.config.init_adapters = init.adapters.string();
  const RunConfig& config = setup.config;
  const std::string source = ds_config.given() ? ds_config.path : "the command line";
  if (ds_config.lora.present && !config.lora.r && !setup.model.lora) {
    throw_user_error("{}: lora.r is missing; set lora.r, or remove the lora section to train all weights", source);
  }
  set_up_lora(config, source, given.init_from, setup.model);
  check_split_sequences(config, source, setup.model);
  check_sizes(config, setup.model, source);
  check_encoder(config, setup.model);
  check_fp8_products(config, setup.model, source, setup.warnings);
  check_recompute(config, setup.model);
  check_seq_length(config, setup.model);
  set_up_data(command_line, init, data_files, setup);
  check_no_decay(config, setup.model, setup.warnings);
  check_frozen_parameters(config, setup.model, source);
  if (config.lora.coded()) {
    check_coded_base(config, data_files != DataFiles::kMayBeUnnamed && checkpoints_of_run(command_line).empty());
  }
  return setup;
}

}  // namespace mpzero
