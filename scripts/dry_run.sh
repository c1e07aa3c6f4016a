# shellcheck shell=bash
# Finds errors in flags, model, ds_config, data and checkpoint before long steps. `mpzero train --dry_run` runs in one process, needs no
# GPU and takes seconds.

# check_run RANKS NODES: exits with mpzero's message if the run would be refused, or with mpzero's output if the user passed
# --dry_run. Must be called after training_flags.
check_run() {
  local ranks=$1 nodes=$2 code=0 said
  # --dry_run=false
  if gives_any dry_run && ! has_switch dry_run; then drop_flag dry_run && training_flags; fi
  local -a command=("$MPZERO_BUILD/bin/mpzero" train "${MPZERO_FLAGS[@]}")
  has_switch dry_run || command+=(--dry_run)
  gives_any world_size || command+=(--world_size "$((ranks * nodes))")
  # Without GPUs, the ranks run on CPUs, which mpzero cannot detect on a login node.
  [[ -n ${MPZERO_DEVICE:-} ]] || gives_any device || command+=(--device cpu)
  gives_any nproc_per_node || command+=(--nproc_per_node "$ranks")
  # For Hugging Face names, only the data preparation can determine the vocabulary.
  if ! gives_any tokenizer && [[ $TOKENIZER == bytes || -e $TOKENIZER ]]; then command+=(--tokenizer "$TOKENIZER"); fi
  if has_switch dry_run; then
    [[ -z $DATA_FOLDER ]] || export MPZERO_PREPARES_FROM=${DATASET:-$MPZERO_ROOT/assets/tiny_corpus}
    (without_launcher "${command[@]}" </dev/null) || code=$?
    exit "$code"
  fi
  # Discard the output of a successful check: the run prints its settings and the same warnings.
  said=$(without_launcher "${command[@]}" 2>&1) || code=$?
  ((code == 0)) || { printf '%s\n' "$said" >&2 && end_with "$code"; }
}

# check_settings: lists all problems and exits if flags, variables or the files in them are invalid.
check_settings() {
  local variable
  local -a variables=()
  for variable in "${MPZERO_VARIABLES[@]}" INIT_FROM MODEL_IS_FROM_WEIGHTS; do variables+=("$variable=${!variable:-}"); done
  env "${variables[@]}" "$(command -v python3 || echo "$MPZERO_VENV/bin/python")" -E -s "$MPZERO_ROOT/app/check.py" "${MPZERO_EXTRA_FLAGS[@]}" || exit
}
