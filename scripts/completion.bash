# shellcheck shell=bash disable=SC2207
# docs/flag_table.py writes this file. `source scripts/completion.bash` completes the commands and flags of mpzero.
_mpzero() {
  local word=${COMP_WORDS[COMP_CWORD]}
  local commands='train doctor checkpoint plan generate top failure help version'
  [[ $1 == *.sh ]] || case $COMP_CWORD,${COMP_WORDS[1]} in
    2,checkpoint) commands='ls verify show diff prune' ;&
    1,* | 2,help)
      COMPREPLY=($(compgen -W "$commands" -- "$word"))
      return
      ;;
  esac
  local names='--adam_beta1 --adam_beta2 --adam_epsilon --allow_changed --async_save --base_model --beta1 --beta2 --bf16 --checkpoint_dir --checkpoint_format --checkpoint_freq --dataset --dataset_config_name --deepspeed_config --deepspeed_config_yields --deterministic --device --document_mask --dropout_rate --dry_run --ec2_notices --epochs --fp8 --freeze_parameters --grace_period --grad_clip --gradient_accumulation_steps --gradient_checkpointing --head_dim --hidden_size --init_from --intermediate_size --keep_last --learning_rate --load_in_4bit --load_in_8bit --local_dataset --logging_freq --logging_steps --lora_alpha --lora_dropout --lora_r --lora_target_modules --lr_gamma --lr_scheduler_type --max_grad_norm --max_position_embeddings --max_steps --metrics_address --metrics_file --metrics_port --metrics_sd_dir --model_config --model_type --network --no_decay --nproc_per_node --num_attention_heads --num_decay_steps --num_hidden_layers --num_key_value_heads --num_train_epochs --overwrite --per_device_train_batch_size --profile_dir --profile_ranks --profile_steps --quantized_gradient_bits --recompute --resume_from_checkpoint --resume_strict --rms_norm_eps --rope_theta --save_final --save_steps --save_strategy --save_total_limit --schedule_on_resume --seed --seq_length --shuffle --source_length --stuck_after --tokenizer --train_batch_size --train_data --train_micro_batch_size_per_gpu --use_rslora --validation_batches --validation_data --validation_freq --validation_sequences --vocab_size --wall_clock_breakdown --warmup_ratio --warmup_steps --weight_decay --world_size'
  if [[ $1 == *.sh ]]; then names+=' --build-only'; else case ${COMP_WORDS[1]} in
    doctor) names='--bandwidth --checkpoint_dir --device --json --network --patience --quick' ;;
    checkpoint) names='--dry_run --keep_last --run' ;;
    plan) names+=' --calibrate --calibration --compare --device --disk_rate --gpu --host_gigabits --host_memory --instance --instances --json --largest_model --max_seq_length --network_factor --network_rate --nodes --price --prices --straggler_factor --tokens' ;;
    generate) names='--base_model --describe --device --dtype --max_tokens --model_config --prompt --prompt_tokens --seed --statistics_last --tag --temperature --tokenizer --top_k --untrained' ;;
    top | failure | help | version) names='' ;;
  esac; fi
  case ${COMP_WORDS[COMP_CWORD - 1]} in
    --bf16 | --gradient_checkpointing | --deterministic | --local_dataset | --shuffle | --deepspeed_config_yields | --use_rslora | --load_in_8bit | --load_in_4bit | --wall_clock_breakdown | --ec2_notices | --dry_run | --save_final | --async_save | --overwrite | --resume_strict) COMPREPLY=($(compgen -W 'true false' -- "$word")) ;;
    --fp8) COMPREPLY=($(compgen -W 'none tensorwise rowwise' -- "$word")) ;;
    --recompute) COMPREPLY=($(compgen -W 'none selective attention full tiled host_attention host auto' -- "$word")) ;;
    --document_mask) COMPREPLY=($(compgen -W 'auto true false' -- "$word")) ;;
    --quantized_gradient_bits) COMPREPLY=($(compgen -W '8 4' -- "$word")) ;;
    --lr_scheduler_type) COMPREPLY=($(compgen -W 'linear cosine constant constant_with_warmup warmup_stable_decay step_lr' -- "$word")) ;;
    --schedule_on_resume) COMPREPLY=($(compgen -W 'keep rewarm extend' -- "$word")) ;;
    --device) COMPREPLY=($(compgen -W 'auto cuda cpu' -- "$word")) ;;
    --network) COMPREPLY=($(compgen -W 'auto efa socket' -- "$word")) ;;
    --profile_ranks) COMPREPLY=($(compgen -W '0 all' -- "$word")) ;;
    --save_strategy) COMPREPLY=($(compgen -W 'no steps epoch' -- "$word")) ;;
    --checkpoint_format) COMPREPLY=($(compgen -W 'hdf5 deepspeed' -- "$word")) ;;
    --model_type) COMPREPLY=($(compgen -W 'llama_3_1_70b llama_3_1_8b llama_3_8b mistral_7b qwen2_5_0_5b qwen2_5_7b qwen3_0_6b qwen3_1_7b qwen3_4b qwen3_8b qwen3_tiny' -- "$word")) ;;
    *) [[ $word != -* ]] || COMPREPLY=($(compgen -W "$names" -- "$word")) ;;
  esac
}
complete -o default -F _mpzero mpzero ./train-singlenode.sh train-singlenode.sh
