#include "app/flags/trainer_hints.hpp"

#include <array>
#include <utility>

namespace mpzero {
namespace {

constexpr auto kHints = std::to_array<std::pair<const char*, const char*>>({
    {"fp16", "mpzero trains in bf16 or, with --bf16 false, in fp32; leave it out"},
    {"fp16_full_eval", "validation has the type of training; leave it out"},
    {"bf16_full_eval", "validation has the type of training; leave it out"},
    {"report_to",
     "app/follow.py passes the metrics of a run on to TensorBoard, Weights & Biases or MLflow; leave it out"},
    {"logging_dir", "app/follow.py --logdir writes TensorBoard's files; leave it out"},
    {"run_name", "a run is named after its model and id; leave it out"},
    {"logging_strategy", "--logging_steps says how often a line is written; leave it out"},
    {"logging_first_step", "--logging_steps says how often a line is written; leave it out"},
    {"disable_tqdm", "the progress bar is for terminals only; leave it out"},
    {"lr_scheduler_kwargs", "--warmup_steps and --num_decay_steps are the settings of schedules"},
    {"eval_strategy", "--validation_freq STEPS says how often --validation_data is used, 0 never"},
    {"evaluation_strategy", "--validation_freq STEPS says how often --validation_data is used, 0 never"},
    {"eval_steps", "the same is --validation_freq"},
    {"do_eval", "--validation_data FILE asks for validation; leave it out"},
    {"do_train", "mpzero train does so; leave it out"},
    {"max_eval_samples", "the same is --validation_sequences"},
    {"eval_iters", "--validation_sequences says how many sequences a validation reads"},
    {"per_device_eval_batch_size", "validation has the micro-batch of training; leave it out"},
    {"output_dir", "the same is --checkpoint_dir"},
    {"overwrite_output_dir", "--overwrite moves the old run aside and starts a new one"},
    {"optim", "the optimizer is AdamW; leave it out"},
    {"deepspeed", "the same is --deepspeed_config"},
    {"fsdp", "\"zero_optimization\" of --deepspeed_config chooses the shards"},
    {"ddp_timeout", "the same is --stuck_after"},
    {"dataloader_num_workers", "token files are read ahead without workers; leave it out"},
    {"dataloader_drop_last", "sequences that fill no batch begin the next epoch; leave it out"},
    {"remove_unused_columns", "a token file has no columns; leave it out"},
    {"group_by_length", "all sequences have --seq_length tokens; leave it out"},
    {"data_seed", "--seed is that of the weights and of the data"},
    {"max_seq_length", "the same is --seq_length"},
    {"block_size", "the same is --seq_length"},
    {"model_name_or_path", "--init_from FOLDER starts from weights, --model_type or --model_config trains new ones"},
    {"config_name", "the same is --model_config"},
    {"tokenizer_name", "the same is --tokenizer"},
    {"dataset_name", "the same is --dataset"},
    {"train_file", "app/prepare_data.py makes --train_data of text files"},
    {"validation_file", "app/prepare_data.py makes --validation_data of text files"},
    {"torch_dtype", "--bf16 true or false chooses the type"},
    {"attn_implementation", "the fastest attention of the device is chosen; leave it out"},
    {"use_cpu", "the same is --device cpu"},
    {"no_cuda", "the same is --device cpu"},
    {"full_determinism", "the same is --deterministic"},
    {"gradient_checkpointing_kwargs", "--recompute chooses what is computed again"},
    {"auto_find_batch_size", "--dry_run shows the memory of a batch; give --per_device_train_batch_size"},
    {"save_safetensors", "zero_to_fp32 writes safetensors from a checkpoint; leave it out"},
    {"save_only_model", "zero_to_fp32 writes the weights of a checkpoint; leave it out"},
    {"load_best_model_at_end",
     "zero_to_fp32 -t TAG writes the weights of the checkpoint that you choose; leave it out"},
    {"metric_for_best_model", "zero_to_fp32 -t TAG writes the weights of the checkpoint that you choose; leave it out"},
    {"push_to_hub", "hf upload does so with what zero_to_fp32 writes; leave it out"},
    {"hub_model_id", "hf upload does so with what zero_to_fp32 writes; leave it out"},
    {"ignore_data_skip", "a resumed run reads the next sequences at once; leave it out"},
    {"label_smoothing_factor", "the loss is the cross entropy without smoothing; leave it out"},
    {"neftune_noise_alpha", "mpzero adds no noise to embeddings; leave it out"},
    {"torch_compile", "the kernels are compiled already; leave it out"},
});

}  // namespace

std::optional<std::string> trainer_hint(const std::string& name) {
  for (const auto& [flag, hint] : kHints) {
    if (name == flag) return hint;
  }
  return std::nullopt;
}

}  // namespace mpzero
