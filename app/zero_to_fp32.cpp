#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/command_line/command_flags.hpp"
#include "base/error.hpp"
#include "base/output.hpp"
#include "base/parameter_spec.hpp"
#include "base/text/byte_size.hpp"
#include "io/adapters/checkpoint_with_base.hpp"
#include "io/adapters/peft_files.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/files/atomic_file.hpp"
#include "io/hub/hub_cache.hpp"
#include "io/peft/peft_config.hpp"
#include "io/weights/initial_weights.hpp"
#include "io/weights/tokenizer_files.hpp"
#include "io/weights/weights_export.hpp"
#include "model/architecture/architectures.hpp"
#include "model/architecture/config.hpp"

namespace {

using mpzero::throw_user_error;
using mpzero::io::WeightsFormat;
using mpzero::io::WeightType;

constexpr int64_t kMebibyte = 1 << 20;
// A smaller number without a unit was probably meant in gigabytes.
constexpr double kFewestBareBytes = 1000;
constexpr int64_t kMaxConfigBytes = 1 << 20;

// Parses "5GB" (powers of 1000, as in transformers), "5GiB" (powers of 1024) or a number of bytes.
int64_t parse_size(const std::string& text) {
  struct Suffix {
    std::string_view name;
    int64_t bytes;
  };
  constexpr Suffix kSuffixes[] = {{"kb", 1'000},    {"mb", 1'000'000}, {"gb", 1'000'000'000}, {"tb", 1'000'000'000'000},
                                  {"kib", 1 << 10}, {"mib", 1 << 20},  {"gib", 1 << 30},      {"b", 1},
                                  {"", 1}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  unit.erase(0, std::min(unit.find_first_not_of(' '), unit.size()));
  std::transform(unit.begin(), unit.end(), unit.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const Suffix& suffix : kSuffixes) {
    const double bytes = number * static_cast<double>(suffix.bytes);
    if (error == std::errc{} && unit.empty() && suffix.name.empty() && bytes < kFewestBareBytes) {
      throw_user_error("--max_shard_size {} means {} bytes; add a unit, e.g. {}GB", text, text, text);
    }
    if (error == std::errc{} && unit == suffix.name && bytes >= 1 && bytes < 1e18) return static_cast<int64_t>(bytes);
  }
  throw_user_error("--max_shard_size {} is not a valid size; use e.g. 5GB, 500MB or a number of bytes", text);
}

// Output format of adapters; std::nullopt: full weights.
enum class AdapterFormat : uint8_t { kPeft, kMerged };

std::optional<AdapterFormat> adapter_format_of(const std::string& format) {
  if (format == "peft") return AdapterFormat::kPeft;
  if (format == "merged") return AdapterFormat::kMerged;
  return std::nullopt;
}

WeightsFormat parse_format(const std::string& text) {
  if (text.empty() || adapter_format_of(text)) return WeightsFormat::kSafetensors;
  if (text == "safetensors") return WeightsFormat::kSafetensors;
  if (text == "hdf5") return WeightsFormat::kHdf5;
  if (text == "pt") return WeightsFormat::kTorch;
  throw_user_error("--format must be one of safetensors, pt, hdf5, peft, merged, not \"{}\"", text);
}

WeightType parse_dtype(const std::string& text) {
  if (text == "fp32" || text == "float32") return WeightType::kFloat32;
  if (text == "bf16" || text == "bfloat16") return WeightType::kBFloat16;
  throw_user_error("--dtype must be fp32 or bf16, not \"{}\"", text);
}

struct Options {
  std::string checkpoint_dir;
  std::string output_dir;
  std::string tag;
  std::optional<int64_t> max_shard_bytes;
  std::string given_format;  // empty: depends on the checkpoint
  WeightsFormat format = WeightsFormat::kSafetensors;
  WeightType type = WeightType::kFloat32;
  std::string base_model;    // base of adapters: folder or Hugging Face name; empty: the run's base
  std::string model_config;  // a file
  std::string tokenizer;     // folder; empty: the run's tokenizer
};

std::vector<mpzero::CommandFlag> known_flags(Options& o) {
  using mpzero::FlagValue;
  const FlagValue size{
      .read = [&o](const std::string&, const std::string& text) { o.max_shard_bytes = parse_size(text); },
      .default_text = "5GB"};
  const FlagValue type{.read = [&o](const std::string&, const std::string& text) { o.type = parse_dtype(text); },
                       .default_text = "fp32"};
  const FlagValue ignored{.read = [](const auto&, const auto&) {}, .takes = mpzero::Takes::kNothing};
  return {
      {"tag", mpzero::text(o.tag), "TAG", "tag of the checkpoint, e.g. qwen3_0_6b-500steps (default: latest)", "t"},
      {"max_shard_size", size, "SIZE", "maximum size of each file"},
      {"format", mpzero::text(o.given_format), "FORMAT",
       "output format: safetensors, pt (for torch.load) or hdf5; for adapters: peft or merged (default: safetensors; "
       "adapters: peft)"},
      {"base_model", mpzero::text(o.base_model), "FOLDER", "base model for --format merged (default: the run's)"},
      {"dtype", type, "TYPE", "data type of the weights: fp32 or bf16"},
      {"model_config", mpzero::text(o.model_config), "FILE",
       "config.json of the model, or a folder that contains it (default: from the checkpoint)"},
      {"tokenizer", mpzero::text(o.tokenizer), "FOLDER",
       "folder with tokenizer.json and generation_config.json to copy to the output (default: the run's)"},
      {"safe_serialization", ignored, "", "ignored; accepted for compatibility with DeepSpeed's zero_to_fp32.py"},
  };
}

std::string help() {
  Options defaults;
  return "Usage: zero_to_fp32 CHECKPOINT_DIR OUTPUT_DIR [FLAGS]\n"
         "\n"
         "Converts an mpzero or DeepSpeed checkpoint to weights for transformers.\n"
         "\n" +
         mpzero::describe_flags(known_flags(defaults),
                                {{"CHECKPOINT_DIR", "folder of checkpoints (with `latest`), or a single checkpoint"},
                                 {"OUTPUT_DIR", "folder for the weights"}});
}

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  const std::vector<std::string> folders =
      mpzero::read_flags_of("zero_to_fp32", arguments, known_flags(options), /*most=*/2);
  if (folders.size() < 2) {
    throw_user_error("{} is missing; see zero_to_fp32 --help", folders.empty() ? "CHECKPOINT_DIR" : "OUTPUT_DIR");
  }
  options.checkpoint_dir = folders[0];
  options.output_dir = folders[1];
  // Older versions of DeepSpeed's script wrote a single file.
  for (const char* suffix : {".bin", ".pt", ".pth", ".safetensors"}) {
    if (!options.output_dir.ends_with(suffix) || std::filesystem::is_directory(options.output_dir)) continue;
    throw_user_error("OUTPUT_DIR {} looks like a file name, but zero_to_fp32 writes several files; pass a folder",
                     options.output_dir);
  }
  options.format = parse_format(options.given_format);
  options.model_config = mpzero::model::config_file(options.model_config).string();
  options.base_model = mpzero::io::weights_folder(options.base_model).string();
  options.tokenizer = mpzero::io::hub_snapshot_or(options.tokenizer).string();
  if (options.format == WeightsFormat::kHdf5 && options.type != WeightType::kFloat32) {
    throw_user_error("--format hdf5 does not support --dtype bf16; choose --format safetensors or pt");
  }
  return options;
}

void warn(const std::string& warning) { mpzero::print_err("zero_to_fp32: warning: {}\n", warning); }

// Returns text such as "config.json, model-00001-of-00030.safetensors, model-00002-of-00030.safetensors and 29 more".
std::string show_names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 6;
  const size_t shown = names.size() > kShown ? kShown / 2 : names.size();
  std::string text = fmt::to_string(fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  return shown == names.size() ? text : fmt::format("{} and {} more", text, names.size() - shown);
}

// Returns an empty string for unsupported architectures, since a DeepSpeed checkpoint may contain any model.
std::string causal_lm_class(std::string_view model_type) {
  for (const mpzero::model::Architecture& architecture : mpzero::model::architectures()) {
    if (architecture.model_type == model_type) return std::string(architecture.causal_lm_class);
  }
  return "";
}

// Copies the tokenizer's files from `folder` to the output. If `folder` is empty, prints how to add a tokenizer.
void add_tokenizer(const mpzero::io::StoredCheckpoint& checkpoint, const Options& options,
                   const std::filesystem::path& folder) {
  using namespace mpzero;
  const bool given = !options.tokenizer.empty();
  if (folder.empty()) {
    const std::string name = io::recorded_tokenizer(checkpoint);
    if (name == io::kBytesTokenizer) {
      mpzero::print_out("The tokenizer 'bytes' has no files; config.json records its name for mpzero generate.\n");
      return;
    }
    mpzero::print_out(
        "The output contains no tokenizer: {}; to add the tokenizer and generation_config.json, pass --tokenizer "
        "FOLDER.\n",
        name.empty() ? "the checkpoint does not record the tokenizer"
                     : fmt::format("the run's tokenizer {} is not available locally", name));
    return;
  }
  const std::vector<std::string> copied = io::copy_tokenizer(folder, options.output_dir, /*replaces=*/given);
  if (!copied.empty()) mpzero::print_out("Files copied from {}: {}\n", folder.string(), fmt::join(copied, ", "));
}

// Returns EOS ids in addition to those in config.json. An existing generation_config.json in the output is kept unless
// --tokenizer is set. `tokenizer`: folder; may be empty.
std::vector<int64_t> more_eos_ids(const mpzero::io::StoredCheckpoint& checkpoint, const Options& options,
                                  const std::filesystem::path& tokenizer) {
  namespace io = mpzero::io;
  const bool given = !options.tokenizer.empty();
  std::vector<int64_t> ids = io::more_eos_ids(checkpoint, given ? "" : tokenizer, warn);
  const std::string& folder = given ? options.tokenizer : options.output_dir;
  const std::vector<int64_t> others = io::generation_eos_ids(folder, io::vocab_size_of(checkpoint), warn);
  ids.insert(ids.end(), others.begin(), others.end());
  return ids;
}

void convert(const mpzero::io::StoredCheckpoint& checkpoint, const Options& options) {
  using namespace mpzero;
  if (!options.tokenizer.empty()) io::check_tokenizer(options.tokenizer);
  for (const std::string& warning : checkpoint.warnings()) warn(warning);
  io::ExportOptions to_do;
  to_do.format = options.format;
  to_do.type = options.type;
  if (options.max_shard_bytes) to_do.max_shard_bytes = *options.max_shard_bytes;
  if (!options.model_config.empty())
    to_do.model_config_json = io::read_text_file(options.model_config, kMaxConfigBytes);
  const std::filesystem::path tokenizer =
      options.tokenizer.empty() ? io::tokenizer_folder(checkpoint, warn) : std::filesystem::path(options.tokenizer);
  to_do.eos_token_ids = more_eos_ids(checkpoint, options, tokenizer);
  const io::Tokenization tokens = io::recorded_tokenization(checkpoint);
  if (tokens.add_bos.value_or(false)) to_do.bos_token_id = tokens.bos_token_id;
  if (tokenizer.empty() && io::recorded_tokenizer(checkpoint) == io::kBytesTokenizer) {
    to_do.tokenizer = io::kBytesTokenizer;
  }
  std::optional<std::string> unknown_type;
  to_do.causal_lm_class = [&](const std::string& model_type) {
    std::string name = causal_lm_class(model_type);
    if (name.empty()) unknown_type = model_type;
    return name;
  };
  const std::string config = io::exported_config(checkpoint, to_do);
  const bool has_config = !config.empty();
  if (unknown_type) {
    warn(
        fmt::format("config.json has no key \"architectures\": mpzero does not know the class of model_type \"{}\"; if "
                    "a program requires the key, add it to the file passed as --model_config",
                    *unknown_type));
  }
  int64_t numel = 0;
  for (const ParameterSpec& parameter : checkpoint.parameters()) numel += parameter.numel();
  const int64_t bytes = numel * io::bytes_of(options.type);
  const char* dtype = options.type == WeightType::kFloat32 ? "fp32" : "bf16";
  io::Exported exported;
  {
    ProgressBar bar(fmt::format("Writing {} weights (MiB)", dtype), bytes / kMebibyte);
    to_do.on_written = [&](int64_t done, int64_t) { bar.update(done / kMebibyte); };
    exported = io::export_weights(checkpoint, options.output_dir, to_do);
  }
  const size_t files = exported.files.size() - (has_config ? 1 : 0);
  mpzero::print_out("Wrote step {} of {}: {} parameters, {} in {} file{}, to {}\n", checkpoint.progress().step,
                    checkpoint.folder().string(), numel, bytes_text(bytes), files, files == 1 ? "" : "s",
                    options.output_dir);
  if (!exported.replaced.empty()) {
    mpzero::print_out("Replaced the previous export: {}\n", show_names(exported.replaced));
  }
  if (options.format != WeightsFormat::kHdf5) {
    add_tokenizer(checkpoint, options, tokenizer);
    if (!tokens.chat_template.empty()) {
      io::write_text_file(std::filesystem::path(options.output_dir) / io::kChatTemplateName, tokens.chat_template);
      mpzero::print_out("Wrote {}, the chat template of the training data\n", io::kChatTemplateName);
    }
    io::agree_with_config(options.output_dir, config, /*creates=*/tokens.end_of_turn_token_id.has_value());
  }
  if (!has_config) {
    mpzero::print_out(
        "The output has no config.json, since DeepSpeed's checkpoints do not contain one; to add it, pass "
        "--model_config FILE.\n");
  } else if (options.format != WeightsFormat::kHdf5) {
    mpzero::print_out("Load the model with transformers.{}.from_pretrained(\"{}\")\n",
                      mpzero::has_parameter(checkpoint.parameters(), mpzero::kSharedEmbedding) ? "AutoModelForSeq2SeqLM"
                                                                                               : "AutoModelForCausalLM",
                      options.output_dir);
  }
}

// Exports adapters for PEFT, or merges them into their base.
void convert_adapters(const mpzero::io::StoredCheckpoint& checkpoint, const Options& options) {
  using namespace mpzero;
  if (!options.given_format.empty() && !adapter_format_of(options.given_format)) {
    throw_user_error("--format {} is not supported for the adapters in {}; use peft, or merged for full weights",
                     options.given_format, checkpoint.folder().string());
  }
  const std::string& base = options.base_model.empty() ? checkpoint.run().init_from : options.base_model;
  if (std::error_code missing; std::filesystem::equivalent(base, options.output_dir, missing)) {
    throw_user_error(
        "OUTPUT_DIR {} contains the base model of the adapters, which the export would overwrite; use a different "
        "folder",
        options.output_dir);
  }
  if (options.given_format == "merged") {
    if (!options.base_model.empty() && checkpoint.run().init_from_hash.empty()) {
      throw_user_error("--base_model {}: {} already contains the base model of its adapters; omit --base_model",
                       options.base_model, checkpoint.folder().string());
    }
    SingleProcess alone;
    convert(io::MergedCheckpoint(checkpoint, options.base_model, alone), options);
    const nlohmann::json settings = nlohmann::json::parse(checkpoint.progress().settings_json, nullptr, false);
    if (!settings.is_object() || !settings.contains("base_codes")) return;
    mpzero::print_out(
        "The adapters, trained on a base model quantized to {}, were merged into the unquantized base model {}\n",
        settings["base_codes"].dump(), base);
    return;
  }
  if (!options.model_config.empty() || !options.tokenizer.empty() || !options.base_model.empty() ||
      options.max_shard_bytes) {
    throw_user_error(
        "--format peft writes only the adapters, to a single file; omit --model_config, --tokenizer, --base_model and "
        "--max_shard_size");
  }
  const io::Exported exported = io::export_adapters(checkpoint, options.output_dir, options.type);
  mpzero::print_out("Wrote the adapters of step {} of {} to {}: {}\n", checkpoint.progress().step,
                    checkpoint.folder().string(), options.output_dir, fmt::join(exported.files, ", "));
  if (!exported.replaced.empty()) {
    mpzero::print_out("Replaced the previous export: {}\n", show_names(exported.replaced));
  }
  if (checkpoint.run().init_from.empty()) {
    warn(fmt::format(
        "the base model of these adapters has random weights, which only {} contains; --format merged exports full "
        "weights",
        checkpoint.folder().string()));
    return;
  }
  mpzero::print_out("Load the adapters with peft.PeftModel.from_pretrained(base_model, \"{}\")\n", options.output_dir);
}

void convert_checkpoint(const mpzero::io::StoredCheckpoint& checkpoint, const Options& options) {
  if (mpzero::io::adapters_of(checkpoint)) return convert_adapters(checkpoint, options);
  if (adapter_format_of(options.given_format) || !options.base_model.empty()) {
    throw_user_error("{} contains no adapters; omit --base_model and --format {}", checkpoint.folder().string(),
                     options.given_format.empty() ? "peft" : options.given_format);
  }
  convert(checkpoint, options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (std::ranges::any_of(arguments, mpzero::asks_for_help)) {
      mpzero::write_output(mpzero::Output::kStdout, help());
      return 0;
    }
    const Options options = parse_options(arguments);
    mpzero::io::read_checkpoint(
        [&] { return mpzero::io::find_checkpoint(options.checkpoint_dir, options.tag); },
        [&](const mpzero::io::StoredCheckpoint& checkpoint) { convert_checkpoint(checkpoint, options); },
        [](const std::string& what) { mpzero::print_err("zero_to_fp32: {}\n", what); });
    mpzero::check_stdout();
    return 0;
  } catch (const mpzero::UserError& error) {
    mpzero::print_err("zero_to_fp32: error: {}\n", error.what());
    return mpzero::kUserErrorExitCode;
  } catch (const std::exception& error) {
    mpzero::print_err("zero_to_fp32: error: {}\n", error.what());
    return mpzero::kFailureExitCode;
  }
}
