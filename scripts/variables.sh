# shellcheck shell=bash
# The variables that configure the scripts (docs/slurm.md, docs/eks.md).

MPZERO_VARIABLES=(
  DATASET DATASET_CONFIG_NAME LOCAL_DATASET MAX_DOCUMENTS PREPARE_ARGS TOKENIZER MODEL_TYPE MODEL_CONFIG DS_CONFIG SEQ_LENGTH MAX_STEPS
  CHECKPOINT_FREQ CHECKPOINT_DIR DATA_DIR LOG_DIR TRAIN_DATA VALIDATION_DATA VALIDATION_FREQ METRICS_FILE NPROC CUDA_VERSION SINK SINK_ARGS
  SRUN_ARGS MPZERO_GPU_ARCHITECTURES CXX CC CUDAHOSTCXX NETWORK CHECK_NODES MAX_RESTARTS STUCK_AFTER GRACE_PERIOD
  # for network_experiment.sbatch
  NETWORKS STAGES RANKS_PER_NODE WARM_UP ROW_MINUTES DEEPSPEED RESULTS_DIR
  # for pods
  MPZERO_WAIT MPZERO_PASS MPZERO_NODES MPZERO_GPUS MPZERO_EFA
)

# define_variables: sets each unset variable to the empty string.
define_variables() {
  local variable
  for variable in "${MPZERO_VARIABLES[@]}"; do printf -v "$variable" '%s' "${!variable:-}"; done
}

# explain_script SCRIPT: prints the script's comment and variables.
explain_script() {
  sed -n '2,/^set /{/^set \|^#SBATCH/d;s/^# \{0,1\}//;p}' "$1"
  printf '"mpzero train --help" lists the flags of mpzero train.\nVariables:\n'
  sed -n 's/^\([A-Z_]*\)=${\1:-[^}]*} *# /  \1: /p' "$1"
}

# mistyped_variables: one line "GIVEN MEANT" for each environment variable that is not in the list but differs from an entry only by one
# letter, two swapped letters, an underscore or case.
mistyped_variables() {
  compgen -e | awk -v list="${MPZERO_VARIABLES[*]}" '
    function plain(name) { name = toupper(name); gsub(/_/, "", name); return name }
    function close_to(a, b,   start, end) {
      if (plain(a) == plain(b)) return 1
      for (start = 1; start <= length(a) && substr(a, start, 1) == substr(b, start, 1); ++start);
      a = substr(a, start); b = substr(b, start)
      for (end = 0; end < length(a) && end < length(b) && substr(a, length(a) - end, 1) == substr(b, length(b) - end, 1); ++end);
      a = substr(a, 1, length(a) - end); b = substr(b, 1, length(b) - end)
      if (length(a) <= 1 && length(b) <= 1) return 1
      return length(a) == 2 && length(b) == 2 && substr(a, 1, 1) == substr(b, 2, 1) && substr(a, 2, 1) == substr(b, 1, 1)
    }
    BEGIN { count = split(list, known, " "); for (i = 1; i <= count; ++i) is_known[known[i]] }
    $0 in is_known { next }
    # Skip short names, which are similar to too many other names.
    { for (i = 1; i <= count; ++i) if (length(known[i]) > 4 && close_to($0, known[i])) { print $0, known[i]; next } }'
}

# warn_of_mistyped: prints one warning per mistyped variable.
warn_of_mistyped() {
  local given meant
  while read -r given meant; do
    warn "$given has no effect; did you mean $meant? ('unset $given' suppresses this warning)."
  done < <(mistyped_variables)
}
