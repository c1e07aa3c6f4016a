#include "app/flags/unknown_flags.hpp"

#include <fmt/format.h>

#include <vector>

namespace mpzero {
namespace {

struct Meant {
  const char* name;                 // flag of `mpzero train`
  std::vector<const char*> others;  // equivalent names in other programs
};

const std::vector<Meant>& renamed() {
  static const std::vector<Meant> all = {
      {"checkpoint_dir", {"output_dir", "save_dir", "output", "out_dir", "checkpoint_path"}},
      {"dataset", {"dataset_name", "data", "dataset_path"}},
      {"deepspeed_config", {"deepspeed", "ds_config", "config"}},
      {"deterministic", {"full_determinism"}},
      {"init_from", {"model_name_or_path", "model", "model_name", "pretrained"}},
      {"learning_rate", {"lr"}},
      {"lr_scheduler_type", {"scheduler", "lr_scheduler", "schedule"}},
      {"max_steps", {"steps", "iters", "iterations", "max_iters", "num_steps", "train_iters"}},
      {"model_config", {"config_name"}},
      {"num_train_epochs", {"num_epochs"}},
      {"overwrite", {"overwrite_output_dir"}},
      {"recompute", {"activation_checkpointing"}},
      {"resume_from_checkpoint", {"resume", "resume_from", "load", "load_checkpoint"}},
      {"seed", {"data_seed"}},
      {"seq_length", {"sequence_length", "max_seq_length", "max_length", "block_size", "context_length", "seq_len"}},
      {"shuffle", {"train_sampling_strategy"}},
      {"stuck_after", {"ddp_timeout"}},
      {"tokenizer", {"tokenizer_name"}},
      {"train_micro_batch_size_per_gpu", {"batch_size", "micro_batch"}},
      {"validation_data", {"eval_data", "do_eval"}},
      {"validation_freq", {"eval_steps", "eval_interval", "eval_freq", "eval_strategy", "evaluation_strategy"}},
      {"validation_sequences", {"max_eval_samples", "eval_iters"}},
      {"warmup_steps", {"warmup", "warmup_iters", "num_warmup_steps"}},
  };
  return all;
}

struct Answer {
  std::vector<const char*> names;
  const char* what_to_do;
};

const std::vector<Answer>& trainers() {
  static const std::vector<Answer> all = {
      {{"fp16"}, "mpzero trains in bf16 or fp32 (--bf16 false); omit the flag"},
      {{"fp16_full_eval", "bf16_full_eval"}, "validation runs in the training precision; omit the flag"},
      {{"tf32"}, "matmuls run in bf16 or full fp32, never in TF32; omit the flag"},
      {{"report_to", "project", "wandb"},
       "app/follow.py forwards metrics to TensorBoard, Weights & Biases or MLflow; omit the flag"},
      {{"logging_dir"}, "app/follow.py --logdir sets TensorBoard's folder; omit the flag"},
      {{"trackio_bucket_id", "trackio_space_id", "trackio_static_space_id"},
       "app/follow.py forwards metrics to TensorBoard, Weights & Biases or MLflow; omit the flag"},
      {{"run_name"}, "a run's name consists of the model and an id; omit the flag"},
      {{"logging_strategy", "logging_first_step"}, "--logging_steps sets the logging interval; omit the flag"},
      {{"disable_tqdm"}, "the progress bar appears only on terminals; omit the flag"},
      {{"log_level", "log_level_replica", "log_on_each_node"}, "only rank 0 writes the log; omit the flag"},
      {{"logging_nan_inf_filter"}, "a non-finite loss is always reported; omit the flag"},
      {{"include_num_input_tokens_seen"}, "the metrics file always includes the number of tokens; omit the flag"},
      {{"skip_memory_metrics"}, "the metrics file always includes memory usage; omit the flag"},
      {{"debug"}, "a non-finite gradient always ends the run; omit the flag"},
      {{"lr_scheduler_kwargs"}, "--warmup_steps and --num_decay_steps configure schedules"},
      {{"use_cpu", "no_cuda"}, "use --device cpu"},
      {{"num_gpus", "gpus", "n_gpu"},
       "the launcher sets the number of ranks (NPROC=4 for mpzero's launch scripts, mpirun -n 4, or --nproc_per_node 4 "
       "for mpzero plan)"},
      {{"do_train"}, "mpzero train always trains; omit the flag"},
      {{"do_predict"}, "mpzero generate completes prompts with a checkpoint's model; omit the flag"},
      {{"eval_on_start", "eval_delay"}, "--validation_freq STEPS sets the validation interval; omit the flag"},
      {{"per_device_eval_batch_size", "eval_accumulation_steps", "batch_eval_metrics", "eval_do_concat_batches",
        "eval_use_gather_object", "include_for_metrics", "prediction_loss_only", "label_names"},
       "validation reports only the loss and uses the training micro-batch size; omit the flag"},
      {{"optim", "optim_args"}, "the optimizer is always AdamW; omit the flag"},
      {{"optim_target_modules"}, "AdamW updates all weights; omit the flag"},
      {{"fsdp", "fsdp_config", "parallelism_config", "accelerator_config"},
       "\"zero_optimization\" in --deepspeed_config configures sharding"},
      {{"ddp_backend", "ddp_broadcast_buffers", "ddp_bucket_cap_mb", "ddp_find_unused_parameters", "ddp_static_graph"},
       "\"zero_optimization\" in --deepspeed_config configures communication; omit the flag"},
      {{"average_tokens_across_devices"}, "the loss is always the mean over the tokens of all ranks; omit the flag"},
      {{"dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers",
        "dataloader_prefetch_factor", "dataloader_multiprocessing_context", "dataloader_in_order"},
       "token files are prefetched without worker processes; omit the flag"},
      {{"dataloader_drop_last"},
       "an epoch's remaining sequences are part of the next epoch's first batch; omit the flag"},
      {{"remove_unused_columns"}, "a token file has no columns; omit the flag"},
      {{"group_by_length", "length_column_name"}, "all sequences have --seq_length tokens; omit the flag"},
      {{"train_file"}, "app/prepare_data.py tokenizes text files for --train_data"},
      {{"validation_file"}, "app/prepare_data.py tokenizes text files for --validation_data"},
      {{"torch_dtype", "dtype", "precision", "mixed_precision"}, "set --bf16 to true or false"},
      {{"attn_implementation"}, "mpzero selects the attention kernel; omit the flag"},
      {{"gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"}, "use --recompute"},
      {{"activation_offloading", "enable_activation_offloading"}, "use --recompute host"},
      {{"auto_find_batch_size"},
       "use --dry_run to find a micro-batch size that fits, and set --per_device_train_batch_size"},
      {{"torch_empty_cache_steps"},
       "mpzero estimates GPU memory before the first step, so training needs no cache flushes; omit the flag"},
      {{"use_cache"}, "training uses no KV cache; omit the flag"},
      {{"save_safetensors"}, "zero_to_fp32 exports safetensors from a checkpoint; omit the flag"},
      {{"save_only_model"}, "zero_to_fp32 exports the weights of a checkpoint; omit the flag"},
      {{"save_on_each_node"}, "each rank writes its shard to the shared --checkpoint_dir; omit the flag"},
      {{"enable_jit_checkpoint"}, "a run that receives SIGTERM always saves a checkpoint and stops; omit the flag"},
      {{"restore_callback_states_from_checkpoint"}, "mpzero has no callbacks; omit the flag"},
      {{"load_best_model_at_end", "metric_for_best_model", "greater_is_better"},
       "mpzero does not track the best checkpoint; zero_to_fp32 -t TAG exports any checkpoint; omit the flag"},
      {{"push_to_hub", "hub_model_id", "hub_always_push", "hub_private_repo", "hub_revision", "hub_strategy",
        "hub_token"},
       "export the weights with zero_to_fp32 and publish them with hf upload; omit the flag"},
      {{"ignore_data_skip"}, "a resumed run continues with the next sequence and never skips data; omit the flag"},
      {{"label_smoothing_factor"}, "the loss is cross-entropy without label smoothing; omit the flag"},
      {{"neftune_noise_alpha"}, "mpzero adds no noise to embeddings; omit the flag"},
      {{"completion_only_loss", "assistant_only_loss"},
       "the loss covers only completions and the assistant's messages, as prepared by app/prepare_data.py; omit the "
       "flag"},
      {{"packing", "packing_strategy"}, "app/prepare_data.py packs examples (--packing); omit the flag"},
      {{"dataset_text_field", "text_column"}, "app/prepare_data.py --text_column selects the column; omit the flag"},
      {{"dataset_num_proc", "preprocessing_num_workers"}, "app/prepare_data.py uses all cores; omit the flag"},
      {{"use_peft"}, "--lora_r RANK trains adapters; omit the flag"},
      {{"use_dora"}, "mpzero supports only LoRA and rsLoRA (--use_rslora); omit the flag"},
      {{"bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "use_bnb_nested_quant", "bnb_4bit_compute_dtype"},
       "--load_in_4bit always uses NF4 with double quantization, and matmuls use the dtype selected by --bf16; "
       "omit the flag"},
      {{"modules_to_save"}, "only adapters are trained; omit the flag"},
      {{"torch_compile", "torch_compile_backend", "torch_compile_mode", "use_liger_kernel", "liger_kernel_config"},
       "the kernels are already compiled and fused; omit the flag"},
  };
  return all;
}

// Settings that are available only in ds_config.json.
const std::vector<Answer>& of_file() {
  static const std::vector<Answer> all = {
      {{"zero_stage", "stage", "zero"}, "\"zero_optimization\": {\"stage\": 3}"},
      {{"offload_optimizer", "cpu_offload"},
       "\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}}"},
      {{"sequence_parallel_size", "context_parallel_size", "cp_size", "sp_size"}, "\"sequence_parallel_size\": 2"},
      {{"offload_param"}, "\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"}}"},
  };
  return all;
}

// Unsupported features and their alternatives (docs/limits.md).
const std::vector<Answer>& missing() {
  static const std::vector<Answer> all = {
      {{"tensor_parallel_size", "tensor_model_parallel_size", "tensor_parallel", "tp_size", "tp", "autotp_size",
        "pipeline_parallel_size", "pipeline_model_parallel_size", "pipeline_parallel", "pp_size", "pp"},
       "split layers between GPUs (tensor or pipeline parallelism); use ZeRO stage 3, with offload if needed"},
      {{"num_experts", "num_local_experts", "num_experts_per_tok", "expert_parallel_size", "expert_model_parallel_size",
        "expert_parallel", "ep_size", "ep", "moe"},
       "support mixture-of-experts (MoE) models; use a dense model, or Megatron-LM"},
      {{"dpo", "grpo", "ppo", "kto", "orpo", "rlhf", "rl", "rpo_alpha", "loss_type", "ref_model",
        "precompute_ref_log_probs", "reward_model", "reward_funcs", "num_generations", "max_prompt_length",
        "max_completion_length"},
       "train on preferences or rewards (DPO, GRPO, PPO); use TRL with weights exported by zero_to_fp32"},
  };
  return all;
}

}  // namespace

std::string meant_name(const std::string& name) {
  for (const auto& [ours, others] : renamed()) {
    for (const char* other : others) {
      if (name == other) return ours;
    }
  }
  return name;
}

const std::map<std::string, std::string>& unknown_flags() {
  static const std::map<std::string, std::string> all = [] {
    std::map<std::string, std::string> sentences;
    for (const auto& [ours, others] : renamed()) {
      for (const char* name : others) {
        sentences[name] = fmt::format("--{} is not a known flag; did you mean --{}?", name, ours);
      }
    }
    for (const auto& [names, what_to_do] : trainers()) {
      for (const char* name : names) {
        sentences[name] =
            fmt::format("mpzero does not support --{}, a flag of Hugging Face training scripts: {}.", name, what_to_do);
      }
    }
    for (const auto& [names, setting] : of_file()) {
      for (const char* name : names) {
        sentences[name] = fmt::format("--{} is not a known flag; set {} in --deepspeed_config.", name, setting);
      }
    }
    for (const auto& [names, what] : missing()) {
      for (const char* name : names) {
        sentences[name] = fmt::format("--{}: mpzero does not {} (docs/limits.md).", name, what);
      }
    }
    return sentences;
  }();
  return all;
}

}  // namespace mpzero
