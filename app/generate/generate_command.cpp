#include "app/generate/generate_command.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "app/generate/byte_text.hpp"
#include "app/generate/generate_options.hpp"
#include "app/generate/generation.hpp"
#include "app/generate/model_weights.hpp"
#include "app/generate/stored_model.hpp"
#include "app/machine/host_limits.hpp"
#include "app/memory/gpu_memory.hpp"
#include "base/command_line/arguments.hpp"
#include "base/error.hpp"
#include "base/gpu_kernels.hpp"
#include "base/output.hpp"
#include "base/words.hpp"
#include "model/inference/cached_t5.hpp"

namespace mpzero {
namespace {

constexpr int64_t kDefaultTokens = 200;
constexpr int64_t kMillion = 1'000'000;
// With fewer parameters per thread, synchronization dominates: a model with 0.9 million parameters generates 900
// tokens/s with one thread and 250 with two (on two busy cores).
constexpr int64_t kParametersOfThread = 4 * kMillion;

void warn(const std::string& warning) { print_warning(warning); }

at::Device find_device(const std::string& wanted) {
  if (wanted == "cpu") return at::kCPU;
  const bool seen = c10::cuda::device_count() > 0;
  if (seen && built_with_gpu_kernels()) return {at::kCUDA, 0};
  if (wanted == "auto") return at::kCPU;
  if (seen) throw_no_gpu_kernels();
  throw_user_error("--device cuda: CUDA found no GPU; use a node with a GPU (see `nvidia-smi`), or --device cpu.");
}

at::ScalarType find_type(const std::string& dtype, at::Device device) {
  if (dtype.empty()) return device.is_cuda() ? at::kBFloat16 : at::kFloat;
  return dtype == "bf16" ? at::kBFloat16 : at::kFloat;
}

// Limits the number of threads for small models, unless OMP_NUM_THREADS is set.
void limit_threads(const model::ModelConfig& config) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  int64_t useful = std::max<int64_t>(1, num_parameters(config) / kParametersOfThread);
  // Limit of the container or the job.
  if (const int allowed = allowed_cores(); allowed > 0) useful = std::min<int64_t>(useful, allowed);
  if (useful < at::get_num_threads()) at::set_num_threads(static_cast<int>(useful));
}

// The prompt and the limits on the completion.
struct Task {
  std::vector<int64_t> prompt;
  bool as_text = false;
  int64_t max_tokens = 0;
  int64_t ids = 0;  // upper limit (exclusive) of sampled ids
  std::vector<int64_t> end_of_text;
};

void require_bytes(const GenerateOptions& options, const StoredModel& model) {
  const std::string& tokenizer = options.tokenizer.empty() ? model.tokenizer : options.tokenizer;
  if (tokenizer.empty()) {
    throw_user_error(
        "{} does not record a tokenizer; pass --tokenizer bytes if the model was trained on bytes, otherwise use "
        "app/generate.py --tokenizer FOLDER or --prompt_tokens.",
        model.name);
  }
  if (tokenizer != "bytes") {
    throw_user_error(
        "the tokenizer of {} is {}, but mpzero generate supports only bytes; use app/generate.py with the same flags, "
        "or --prompt_tokens.",
        model.name, tokenizer);
  }
  if (!options.tokenizer.empty() && !model.tokenizer.empty() && model.tokenizer != "bytes") {
    throw_user_error("--tokenizer bytes: the tokenizer of {} is {}; omit the flag.", model.name, model.tokenizer);
  }
  if (model.config.vocab_size < kByteIds) {
    throw_user_error("the bytes tokenizer has {} ids, but the vocabulary of {} has {}; use --prompt_tokens.", kByteIds,
                     model.name, model.config.vocab_size);
  }
}

int64_t tokens_to_generate(const GenerateOptions& options, const StoredModel& model, size_t prompt) {
  const int64_t room = model.config.positions() - static_cast<int64_t>(prompt);
  if (room < 1) {
    throw_user_error("the prompt has {}, but {} has {} positions; shorten the prompt.",
                     counted(static_cast<int64_t>(prompt), "token"), model.name, model.config.positions());
  }
  if (!options.max_tokens) return std::min(kDefaultTokens, room);
  if (*options.max_tokens <= room) return *options.max_tokens;
  throw_user_error(
      "--max_tokens {}: with a prompt of {}, the {} positions of {} allow at most {}; reduce --max_tokens, "
      "or shorten the prompt.",
      *options.max_tokens, counted(static_cast<int64_t>(prompt), "token"), model.config.positions(), model.name,
      counted(room, "new token"));
}

Task task_of(const GenerateOptions& options, const StoredModel& model) {
  Task task;
  task.ids = model.config.vocab_size;
  task.end_of_text = model.config.eos_token_ids;
  if (options.prompt) {
    require_bytes(options, model);
    task.as_text = true;
    task.prompt = byte_ids(*options.prompt);
    // Larger ids only pad the vocabulary and are untrained.
    task.ids = kByteIds;
    task.end_of_text.push_back(kEndOfText);
  } else {
    task.prompt = *options.prompt_tokens;
    for (const int64_t id : task.prompt) {
      if (id < model.config.vocab_size) continue;
      throw_user_error(
          "--prompt_tokens: id {} is outside the vocabulary of {}, which has {} ids; use the model's tokenizer.", id,
          model.name, model.config.vocab_size);
    }
  }
  // Source sequences end with this id.
  if (model.config.t5 && options.prompt) task.prompt.push_back(kEndOfText);
  task.max_tokens = tokens_to_generate(options, model, task.prompt.size());
  return task;
}

void write(const std::string& text) {
  write_output(Output::kStdout, text);
  check_stdout();
}

std::string speed(const Generated& done, size_t prompt) {
  std::string text =
      fmt::format("{}{}; prompt of {}: {:.2f} s", counted(done.tokens, "token"), done.ended ? ", then end of text" : "",
                  counted(static_cast<int64_t>(prompt), "token"), done.prompt_seconds);
  // prompt_seconds includes the first token.
  const int64_t steps = done.tokens - (done.ended ? 0 : 1);
  if (steps > 0 && done.seconds > 0) {
    text += fmt::format(", then {:.1f} tokens/s", static_cast<double>(steps) / done.seconds);
  }
  return text;
}

struct Loaded {
  StoredModel model;
  Task task;
  ModelWeights weights;
};

Loaded load(const GenerateOptions& options, const ModelRequest& request, at::Device device, at::ScalarType type) {
  std::optional<Loaded> loaded;
  read_model(
      request,
      [&](const StoredModel& model, const ParameterSource& source) {
        Task task = task_of(options, model);
        ProgressBar bar("Reading weights (millions)", num_parameters(model.config) / kMillion,
                        ::isatty(STDERR_FILENO) != 0);
        ModelWeights weights =
            read_weights(model.config, source, device, type, [&](int64_t done) { bar.update(done / kMillion); });
        bar.clear();
        loaded = Loaded{.model = model, .task = std::move(task), .weights = std::move(weights)};
      },
      warn);
  return std::move(*loaded);
}

std::unique_ptr<model::CachedModel> with_cache(Loaded& loaded) {
  const model::ModelConfig& config = loaded.model.config;
  if (config.t5) return std::make_unique<model::CachedT5>(config, std::move(loaded.weights));
  const int64_t length = static_cast<int64_t>(loaded.task.prompt.size()) + loaded.task.max_tokens;
  return std::make_unique<model::CachedDecoder>(config, std::move(loaded.weights), length);
}

int describe(const ModelRequest& request) {
  read_model(
      request,
      [](const StoredModel& model, const ParameterSource&) {
        using json = nlohmann::ordered_json;
        const json facts = {{"model", model.name},
                            {"model_type", model.config.model_type},
                            {"parameters", num_parameters(model.config)},
                            {"vocab_size", model.config.vocab_size},
                            {"positions", model.config.positions()},
                            {"tokenizer", model.tokenizer},
                            {"eos_token_ids", model.config.eos_token_ids},
                            {"bos_token_id", model.config.bos_token_id ? json(*model.config.bos_token_id) : json()},
                            {"chat_template", model.chat_template},
                            {"add_bos", model.add_bos ? json(*model.add_bos) : json()}};
        write(facts.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
      },
      warn);
  return EXIT_SUCCESS;
}

int run(const GenerateOptions& options) {
  const ModelRequest request{.folder = options.folder,
                             .tag = options.tag,
                             .base_model = options.base_model,
                             .model_config = options.model_config,
                             .untrained = options.untrained};
  if (options.describe) return describe(request);
  const at::Device device = find_device(options.device);
  const at::ScalarType type = find_type(options.dtype, device);
  // Makes the output deterministic for a given seed.
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  configure_gpu_allocator();
  Loaded loaded = load(options, request, device, type);
  const Task& task = loaded.task;
  limit_threads(loaded.model.config);
  const std::unique_ptr<model::CachedModel> model = with_cache(loaded);
  Sampler sampler(options.temperature, options.top_k, options.seed);
  Utf8Stream text;
  const auto show = [&](int64_t id) {
    write(task.as_text ? text.add(static_cast<uint8_t>(id)) : fmt::format("{}\n", id));
  };
  // The output of T5 does not continue the prompt.
  if (task.as_text && !loaded.model.config.t5) std::for_each(task.prompt.begin(), task.prompt.end(), show);
  const Generated done =
      generate(*model, device, task.prompt,
               {.max_tokens = task.max_tokens, .ids = task.ids, .end_of_text = task.end_of_text}, sampler, show);
  if (task.as_text) write(text.finish() + "\n");
  const std::string statistics =
      format_printable("mpzero: {}: {}\n", printable_argument(loaded.model.name), speed(done, task.prompt.size()));
  if (options.statistics_last) {
    write(statistics);
  } else {
    write_output(Output::kStderr, statistics);
  }
  return EXIT_SUCCESS;
}

}  // namespace

int generate_command(const std::vector<std::string>& arguments) {
  if (std::ranges::any_of(arguments, asks_for_help)) {
    write_output(Output::kStdout, generate_help());
    return EXIT_SUCCESS;
  }
  constexpr const char* kNoHostMemory =
      "the model does not fit in host memory; use --dtype bf16, or a host with more memory.";
  try {
    return run(parse_generate_options(arguments));
  } catch (const std::bad_alloc&) {
    throw UserError(kNoHostMemory);
  } catch (const c10::Error& error) {
    if (is_out_of_gpu_memory(error)) {
      throw_user_error(
          "the model does not fit in free GPU memory; use --device cpu, or stop other processes on the GPU (see "
          "`nvidia-smi`).");
    }
    // PyTorch's host allocator throws no specific error class.
    if (std::string_view(error.what()).find("can't allocate memory") != std::string_view::npos) {
      throw UserError(kNoHostMemory);
    }
    throw Failure(error.what_without_backtrace());
  }
}

}  // namespace mpzero
