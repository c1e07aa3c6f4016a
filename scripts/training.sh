# shellcheck shell=bash
# Converts the user's variables and flags to mpzero's command line, prepares the data, and prints the closing message.
#
# MPZERO_EXTRA_FLAGS: the user's flags for the script, set by the caller. A flag replaces the variable with the same meaning, so that no
# flag is passed to mpzero twice.
MPZERO_EXTRA_FLAGS=()
# The prompt that the model completes in the closing message.
readonly MPZERO_PROMPT="The prince looked at"

# flag_value NAME: the value of --NAME among the extra flags; fails if missing.
flag_value() {
  local i
  for ((i = 0; i < ${#MPZERO_EXTRA_FLAGS[@]}; ++i)); do
    case ${MPZERO_EXTRA_FLAGS[i]} in
      --"$1"=*) printf '%s\n' "${MPZERO_EXTRA_FLAGS[i]#*=}" && return ;;
      --"$1") printf '%s\n' "${MPZERO_EXTRA_FLAGS[i + 1]:-}" && return ;;
    esac
  done
  return 1
}

# gives_any NAME...: succeeds if the extra flags contain at least one of these flags.
gives_any() {
  local name
  for name in "$@"; do
    ! flag_value "$name" >/dev/null || return 0
  done
  return 1
}

# means_true WORD: parses a boolean like mpzero (parse_boolean in app/flags/flag.cpp).
means_true() { [[ ${1,,} =~ ^(true|t|yes|y|1)$ ]]; }

# has_switch NAME: succeeds if --NAME, with or without a value, is among the extra flags and is true.
has_switch() {
  local i next
  for ((i = 0; i < ${#MPZERO_EXTRA_FLAGS[@]}; ++i)); do
    next=${MPZERO_EXTRA_FLAGS[i + 1]:---}
    case ${MPZERO_EXTRA_FLAGS[i]} in
      --"$1"=*) if means_true "${MPZERO_EXTRA_FLAGS[i]#*=}"; then return 0; fi ;;
      --"$1") if [[ $next == --* ]] || means_true "$next"; then return 0; fi ;;
    esac
  done
  return 1
}

# drop_flag NAME: removes --NAME and its value, if any, from the extra flags.
drop_flag() {
  local i
  local -a kept=()
  for ((i = 0; i < ${#MPZERO_EXTRA_FLAGS[@]}; ++i)); do
    case ${MPZERO_EXTRA_FLAGS[i]} in
      --"$1"=*) ;;
      --"$1") [[ ${MPZERO_EXTRA_FLAGS[i + 1]:---} == --* ]] || i=$((i + 1)) ;;
      *) kept+=("${MPZERO_EXTRA_FLAGS[i]}") ;;
    esac
  done
  MPZERO_EXTRA_FLAGS=("${kept[@]}")
}

# Succeeds if the user selected the CPU explicitly.
on_cpu() { [[ $(flag_value device) == cpu ]]; }

# setting VARIABLE FLAG DEFAULT: sets the variable to the flag's value if passed, or to the default if the variable is empty.
setting() {
  local value
  if value=$(flag_value "$2"); then
    printf -v "$1" '%s' "$value"
  elif [[ -z ${!1:-} ]]; then
    printf -v "$1" '%s' "$3"
  fi
}

# warn_replaced VARIABLE FLAG...: warns that the first passed flag replaces a variable that the user has set.
warn_replaced() {
  local variable=$1 name value
  [[ -n ${!variable:-} ]] || return 0
  for name in "${@:2}"; do
    value=$(flag_value "$name") || continue
    warn "$variable=${!variable} has no effect: --$name $value overrides it."
    return
  done
}

# Succeeds if flags determine the steps at which checkpoints are saved.
saves_by_flags() { gives_any save_steps || [[ $(flag_value save_strategy || echo steps) != steps ]]; }

default_tokenizer() {
  [[ $MODEL_IS_FROM_WEIGHTS == false ]] || return 0
  case $MODEL_TYPE in
    qwen3_tiny) echo bytes ;;
    qwen3_*) echo Qwen/Qwen3-0.6B ;;
    qwen2_5_*) echo Qwen/Qwen2.5-0.5B ;;
    llama_3_1_*) echo meta-llama/Llama-3.1-8B ;;
    llama_3_*) echo meta-llama/Meta-Llama-3-8B ;;
    mistral_*) echo mistralai/Mistral-7B-v0.3 ;;
    *) ;; # app/check.py reports the missing tokenizer
  esac
}

# exported_tokenizer FILE: the tokenizer that an export of mpzero recorded in its config.json.
exported_tokenizer() { sed -n 's/.*"mpzero_tokenizer": *"\([^"]*\)".*/\1/p' "$1" 2>/dev/null | head -n 1; }

# recorded_tokenizer FOLDER: the tokenizer that a checkpoint records, if mpzero is built.
recorded_tokenizer() {
  [[ -d $1 && -x $MPZERO_BUILD/bin/mpzero ]] || return 0
  (without_launcher timeout "$MPZERO_FOLDER_SECONDS" "$MPZERO_BUILD/bin/mpzero" generate "$1" --describe </dev/null 2>/dev/null || true) |
    sed -n 's/.*"tokenizer":"\([^"]*\)".*/\1/p'
}

# choose_settings GPUS MODEL: sets defaults for the model, the files and the first run, a small Qwen3 that trains for two minutes on a CPU.
# Empty settings are not passed to mpzero, which uses its own defaults.
choose_settings() {
  local gpus=$1
  warn_replaced MAX_STEPS num_train_epochs epochs
  if saves_by_flags; then warn_replaced CHECKPOINT_FREQ save_steps save_strategy; fi
  INIT_FROM=$(flag_value init_from || true)
  # Weights determine the model, unless the user selects one, which mpzero then compares with the config.json of the weights.
  MODEL_IS_FROM_WEIGHTS=false
  if [[ -n ${MODEL_CONFIG:=$(flag_value model_config || true)} ]]; then
    [[ ! -d $MODEL_CONFIG ]] || MODEL_CONFIG=${MODEL_CONFIG%/}/config.json
    setting MODEL_TYPE model_type "$(basename "$(dirname "$(readlink -m "$MODEL_CONFIG")")")"
  elif [[ -n $INIT_FROM && -z ${MODEL_TYPE:-} ]] && ! gives_any model_type; then
    MODEL_IS_FROM_WEIGHTS=true
    MODEL_TYPE=$(basename "$(readlink -m "$INIT_FROM")")
  else
    setting MODEL_TYPE model_type "$2"
  fi
  setting DATASET dataset ""
  setting DATASET_CONFIG_NAME dataset_config_name ""
  setting LOCAL_DATASET local_dataset ""
  setting TOKENIZER tokenizer ""
  if [[ -z $TOKENIZER ]]; then
    if [[ -f $INIT_FROM/tokenizer.json || -f $INIT_FROM/vocab.json && -f $INIT_FROM/merges.txt || ! -e $INIT_FROM && $INIT_FROM =~ $MPZERO_HUB_NAME ]]; then
      TOKENIZER=$INIT_FROM
    elif [[ -n $INIT_FROM ]] && TOKENIZER=$(exported_tokenizer "$INIT_FROM/config.json") && [[ -n $TOKENIZER ]]; then
      :
    elif TOKENIZER=$(recorded_tokenizer "$INIT_FROM") && [[ -n $TOKENIZER ]]; then
      :
    elif [[ -z $DATASET ]]; then
      TOKENIZER=bytes
    else
      TOKENIZER=$(default_tokenizer)
    fi
  fi
  DS_CONFIG_YIELDS=""
  if [[ -z ${DS_CONFIG:-} ]] && ! gives_any deepspeed_config; then DS_CONFIG_YIELDS=true; fi
  if [[ $MODEL_TYPE == qwen3_tiny ]]; then
    setting DS_CONFIG deepspeed_config configs/ds_config_tiny.json
    setting SEQ_LENGTH seq_length 256
    setting MAX_STEPS max_steps 600
    setting CHECKPOINT_DIR checkpoint_dir checkpoints/first_run
  else
    setting DS_CONFIG deepspeed_config configs/ds_config.json
    setting SEQ_LENGTH seq_length ""
    setting MAX_STEPS max_steps ""
    setting CHECKPOINT_DIR checkpoint_dir checkpoints
  fi
  setting CHECKPOINT_FREQ checkpoint_freq ""
  setting VALIDATION_FREQ validation_freq ""
  setting METRICS_FILE metrics_file "$CHECKPOINT_DIR/metrics.jsonl"
  # Without --device, mpzero would fall back to the CPU if the GPUs do not respond.
  MPZERO_DEVICE=$( ((gpus == 0)) || echo cuda)
  setting TRAIN_DATA train_data ""
  setting VALIDATION_DATA validation_data ""
  check_settings
}

# ask_requeue PYTHON EVENT ARGUMENT...: runs scripts/requeue and acts on its answer. Returns if the run starts, else exits. Fails
# without an answer.
ask_requeue() {
  local python=$1 answer
  shift
  # The program writes messages to this shell's stdout and stderr, and its answer to descriptor 3.
  { answer=$("$python" "$MPZERO_ROOT/scripts/requeue" "$@" 3>&1 >&4 4>&-) || true; } 4>&1
  case $answer in
    "start asked") ;;
    "start own")
      drop_flag resume_from_checkpoint
      drop_flag overwrite
      ;;
    *)
      [[ $answer =~ ^exit\ ([0-9]{1,3})$ ]] || return 1
      exit "${BASH_REMATCH[1]}"
      ;;
  esac
}

MPZERO_FOLDER_SECONDS=300 # timeout if the file system of the checkpoint folder does not respond

# judged_status STATUS SECONDS: the exit status of a run, given the launcher's exit status STATUS and the ranks' failure reports
# (app/failure.py). Reports the failure. Unless the run was stopped, waits up to SECONDS for reports from other hosts.
judged_status() {
  local judged="" wait=$2
  [[ -z ${MPZERO_STOP:-} ]] || wait=0
  if (($1 != 0 && $1 != MPZERO_USER_ERROR)); then
    # Use the output instead of the exit status, because Python itself may exit with 2.
    judged=$(timeout --foreground --kill-after=10 "$MPZERO_FOLDER_SECONDS" "$MPZERO_VENV/bin/python" "$MPZERO_ROOT/app/failure.py" \
      --status "$1" --launch "${MPZERO_LAUNCH:-}" --wait "$wait" -- "$CHECKPOINT_DIR") || true
  fi
  if [[ ! $judged =~ ^(1|$MPZERO_USER_ERROR|$1)$ ]]; then judged=$1; fi
  echo "$judged"
}

# model_file_name: MODEL_TYPE as a prefix of file names, without slashes and leading periods.
model_file_name() {
  local name
  name=$(printf %s "$MODEL_TYPE" | tr -c 'A-Za-z0-9._-' _ | head -c 100)
  name=${name#"${name%%[!.]*}"}
  printf '%s\n' "${name:-model}"
}

# The folder in data/ for this dataset and tokenizer, with a hash that makes the name unique.
data_folder() {
  local arguments="${PREPARATION[*]}" key name
  key="$DATASET|$DATASET_CONFIG_NAME|$TOKENIZER|${MAX_DOCUMENTS:-}${arguments:+|$arguments}"
  name=$(printf '%s' "$(basename "$DATASET")${DATASET_CONFIG_NAME:+-$DATASET_CONFIG_NAME}-$(basename "$TOKENIZER")" | tr -c 'A-Za-z0-9._-' '_')
  printf '%s/%s-%s\n' "${DATA_DIR:-data}" "$name" "$(printf '%s' "$key" | sha256sum | cut -c 1-8)"
}

# read_prepare_args: fills PREPARATION and MPZERO_EXISTING, the handling of existing token files. A requeued job does not recreate token
# files.
read_prepare_args() {
  local word
  PREPARATION=()
  MPZERO_EXISTING=--if_missing
  read_words PREPARE_ARGS
  for word in "${MPZERO_WORDS[@]}"; do
    if [[ $word != --overwrite ]]; then
      PREPARATION+=("$word")
    elif [[ ${SLURM_RESTART_COUNT:-0} == 0 ]]; then
      MPZERO_EXISTING=--overwrite
    fi
  done
}

# prepare ARGUMENT...: runs prepare_data.py with messages that refer to the variables of this script.
prepare() {
  local again
  again="PREPARE_ARGS=$(printf %q "$(quoted_words "${PREPARATION[@]}" --overwrite)")"
  MPZERO_HOW_TO_OVERWRITE=$again MPZERO_HOW_TO_PASS_FLAGS="PREPARE_ARGS=\"--text_column body\"" \
    run_long "$MPZERO_VENV/bin/python" "$MPZERO_ROOT/app/prepare_data.py" --tokenizer "$TOKENIZER" "$MPZERO_EXISTING" "$@"
}

# lock_data FOLDER: acquires the lock of a dataset, so that only one job prepares it.
lock_data() {
  local reason
  reason=$(mkdir -p "$1" 2>&1) || die "The data folder $1 cannot be created (${reason##*: }); set DATA_DIR to a writable folder."
  [[ -w $1 ]] || die "The data folder $1 is not writable by $(id -un); set DATA_DIR to a writable folder."
  lock "$1/prepare.lock" "prepare this dataset"
}

# name_data: unless the user has set TRAIN_DATA, sets TRAIN_DATA, VALIDATION_DATA and DATA_FOLDER, in which prepare_data creates the files.
name_data() {
  DATA_FOLDER=""
  [[ -z $TRAIN_DATA ]] || return 0
  read_prepare_args
  if [[ -z $DATASET ]]; then
    DATA_FOLDER=${DATA_DIR:-data}/tiny_corpus-$(printf '%s' "$(basename "$TOKENIZER")" | tr -c 'A-Za-z0-9._-' '_')
  else
    DATA_FOLDER=$(data_folder)
  fi
  TRAIN_DATA=$DATA_FOLDER/train.h5
  VALIDATION_DATA=$DATA_FOLDER/validation.h5
}

# prepare_data: creates the missing token files that name_data has set.
prepare_data() {
  [[ -n $DATA_FOLDER ]] || return 0
  if [[ -z $DATASET ]]; then
    local text=$MPZERO_ROOT/assets/tiny_corpus
    say "DATASET is not set: training on the bundled text in assets/tiny_corpus."
    local variable
    for variable in DATASET_CONFIG_NAME LOCAL_DATASET MAX_DOCUMENTS PREPARE_ARGS; do
      [[ -z ${!variable:-} || "$variable ${#PREPARATION[@]}" == "PREPARE_ARGS 0" ]] ||
        warn "$variable=${!variable} has no effect: DATASET is not set."
    done
    lock_data "$DATA_FOLDER"
    prepare "$text/train.txt" "$TRAIN_DATA" || end_with $?
    prepare "$text/validation.txt" "$VALIDATION_DATA" || end_with $?
  else
    local -a arguments=(--validation_output "$VALIDATION_DATA")
    # Also pass DATASET_CONFIG_NAME for a local folder: prepare_data.py uses it, or warns that it has no effect.
    [[ -z $DATASET_CONFIG_NAME ]] || arguments+=(--dataset_config_name "$DATASET_CONFIG_NAME")
    [[ -z $LOCAL_DATASET ]] || arguments+=(--local_dataset "$LOCAL_DATASET")
    [[ -z ${MAX_DOCUMENTS:-} ]] || arguments+=(--max_documents "$MAX_DOCUMENTS")
    arguments+=("${PREPARATION[@]}")
    lock_data "$DATA_FOLDER"
    prepare "${arguments[@]}" "$DATASET" "$TRAIN_DATA" || end_with $?
    # prepare_data.py warns and writes no validation file if the dataset has too few documents.
    if [[ ! -e $VALIDATION_DATA ]]; then VALIDATION_DATA="" && training_flags; fi
  fi
  unlock
}

# make_folder VARIABLE FOLDER: creates an output folder of the run. VARIABLE: the variable to report in an error.
make_folder() {
  local reason
  reason=$(mkdir -p "$2" 2>&1) || die "$1=$2 cannot be created (${reason##*: }); choose a different folder or fix its permissions."
  [[ -w $2 ]] || die "$1=$2 is not writable by $(id -un); choose a different folder or fix its permissions."
}

# training_flags: fills MPZERO_FLAGS with the flags for mpzero: the settings, then the extra flags.
training_flags() {
  MPZERO_FLAGS=()
  local pair name value
  local -a pairs=(
    "deepspeed_config $DS_CONFIG" "deepspeed_config_yields $DS_CONFIG_YIELDS" "train_data $TRAIN_DATA" "validation_data $VALIDATION_DATA"
    "seq_length $SEQ_LENGTH" "validation_freq $VALIDATION_FREQ"
    "checkpoint_dir $CHECKPOINT_DIR" "metrics_file $METRICS_FILE"
    "device $MPZERO_DEVICE" "network ${NETWORK:-}" "grace_period ${GRACE_PERIOD:-}" "stuck_after ${STUCK_AFTER:-}"
  )
  if [[ -n $MODEL_CONFIG ]]; then
    pairs+=("model_config $MODEL_CONFIG")
  elif [[ $MODEL_IS_FROM_WEIGHTS == false ]]; then
    pairs+=("model_type $MODEL_TYPE")
  fi
  if ! gives_any epochs num_train_epochs; then pairs+=("max_steps $MAX_STEPS"); fi
  if ! saves_by_flags; then pairs+=("checkpoint_freq $CHECKPOINT_FREQ"); fi
  for pair in "${pairs[@]}"; do
    name=${pair%% *} value=${pair#* }
    if [[ -n $value ]] && ! flag_value "$name" >/dev/null; then MPZERO_FLAGS+=("--$name" "$value"); fi
  done
  MPZERO_FLAGS+=("${MPZERO_EXTRA_FLAGS[@]}")
}

require_programs() {
  local from
  from=$(moved_from)
  [[ -z $from ]] ||
    die "$MPZERO_BUILD was copied or moved from $from, and its programs still use the libraries there; run './train-singlenode.sh --build-only' in $MPZERO_ROOT to rebuild it."
  [[ -x $MPZERO_BUILD/bin/mpzero ]] ||
    die "$(shown_path "$MPZERO_BUILD/bin/mpzero") is not built; run './train-singlenode.sh --build-only' on a machine that shares this folder."
}

# saved_state: a string that changes when a checkpoint is saved; none: no checkpoint, or the folder does not respond.
saved_state() { timeout 10 stat --dereference --format='%Y.%y.%i' "$CHECKPOINT_DIR/latest" 2>/dev/null | tr ' ' _ || echo none; }

# saved_since STATE: succeeds if a checkpoint was saved after saved_state returned STATE.
saved_since() {
  local now
  now=$(saved_state)
  [[ $now != none && $now != "$1" ]]
}

# latest_tag: the name of the newest checkpoint from CHECKPOINT_DIR/latest. Fails if no checkpoint exists.
latest_tag() {
  local tag=""
  # bash warns about NUL bytes
  { tag=$(timeout 10 head -c 300 -- "$CHECKPOINT_DIR/latest"); } 2>/dev/null || true
  tag=${tag%%$'\n'*}
  [[ -n $tag && $tag != */* ]] && printable "$tag"
}

# sample FLAG...: prints a completion generated from the newest checkpoint, on the CPU because the model is small.
sample() {
  "$MPZERO_BUILD/bin/mpzero" generate "$CHECKPOINT_DIR" --prompt "$MPZERO_PROMPT" --max_tokens 200 --device cpu "$@"
}

# quoted_text TEXT: the text with a margin, wrapped between words at the terminal's width. (fold would split UTF-8 characters.)
quoted_text() {
  local line part width=10000
  if [[ -t 1 ]]; then width=$(($(positive_number_or "$(tput cols 2>/dev/null)" 80) - 4)); fi
  ((width >= 20)) || width=20
  while IFS= read -r line; do
    while ((${#line} > width)); do
      part=${line:0:width}
      [[ ! ${part% *} =~ [^\ ] ]] || part=${part% *}
      printf '  | %s\n' "$part"
      line=${line:${#part}}
      line=${line# }
    done
    printf '  | %s\n' "$line"
  done <<<"$1"
}

# show_samples: takes a few seconds to print sample completions of the small model from before and after training.
show_samples() {
  local before after
  [[ ${MODEL_TYPE:-} == qwen3_tiny && ${TOKENIZER:-} == bytes ]] || return 0
  if ! after=$(sample 2>/dev/null); then
    warn "could not generate the sample completion; run the command below to see the reason."
    return 0
  fi
  # --untrained fails for a run with --init_from.
  if before=$(sample --untrained 2>/dev/null); then
    printf '\nSample completion of "%s" before training:\n' "$MPZERO_PROMPT"
    quoted_text "$before"
    printf 'and after training:\n'
  else
    printf '\nSample completion of "%s":\n' "$MPZERO_PROMPT"
  fi
  quoted_text "$after"
}

# generate_command: the command to generate text with the model.
generate_command() {
  if [[ ${TOKENIZER:-} == bytes && -n $DATA_FOLDER ]]; then
    command_path "$MPZERO_BUILD/bin/mpzero" | sed 's/$/ generate/'
  else
    printf '%s %s\n' "$(command_path "$MPZERO_VENV/bin/python")" "$(command_path "$MPZERO_ROOT/app/generate.py")"
  fi
}

# closing_message: plots the loss, and prints the locations of the files, sample completions and the next commands.
closing_message() {
  local plot=$CHECKPOINT_DIR/loss.png report=$CHECKPOINT_DIR/report.html tag=""
  # Limit the time to five minutes, because the job still occupies its nodes.
  if [[ -s $METRICS_FILE ]] && ! timeout --foreground --kill-after=10 300 "$MPZERO_VENV/bin/python" "$MPZERO_ROOT/app/report.py" \
    "$METRICS_FILE" --output "$report" --png "$plot" >/dev/null; then
    warn "cannot create the loss plot and the report from $METRICS_FILE."
    plot="" report=""
  fi
  tag=$(latest_tag) || true
  printf '\n'
  [[ -z $plot || ! -f $plot ]] || printf 'Loss plot:   %s\n' "$plot"
  [[ -z $report || ! -f $report ]] || printf 'Report:      %s\n' "$report"
  printf 'Metrics:     %s\n' "$METRICS_FILE"
  [[ -z ${MPZERO_LOG:-} ]] || printf 'Log:         %s\n' "$MPZERO_LOG"
  if [[ -n $tag ]]; then
    printf 'Checkpoint:  %s\n' "$CHECKPOINT_DIR/$tag"
    show_samples
    if [[ " ${PREPARE_ARGS:-}" == *" --seq_length"* ]]; then # rows of packed examples
      printf '\nNext, chat with the model:\n  %s %s %q --chat "%s"\n' "$(command_path "$MPZERO_VENV/bin/python")" \
        "$(command_path "$MPZERO_ROOT/app/generate.py")" "$CHECKPOINT_DIR" "How are you?"
    else
      printf '\nNext, complete a prompt:\n  %s %q --prompt "%s"\n' "$(generate_command)" "$CHECKPOINT_DIR" "$MPZERO_PROMPT"
    fi
    local convert uv
    convert=$(command_path "$MPZERO_BUILD/bin/zero_to_fp32")
    if flag_value lora_r >/dev/null; then
      printf 'or export the adapters for PEFT, or the merged model for transformers:\n'
      printf '  %s %q %q\n' "$convert" "$CHECKPOINT_DIR" "$CHECKPOINT_DIR/adapters"
      printf '  %s %q %q --format merged\n' "$convert" "$CHECKPOINT_DIR" "$CHECKPOINT_DIR/merged"
    else
      printf 'or convert it to fp32 safetensors for transformers:\n'
      printf '  %s %q %q\n' "$convert" "$CHECKPOINT_DIR" "$CHECKPOINT_DIR/fp32"
    fi
    if ! installed && lacks_gpu_libraries && ! compgen -G "$MPZERO_VENV/lib/python3*/site-packages/transformers" >/dev/null; then
      printf 'To install transformers in %s, with the 2.2 GB of GPU libraries that torch imports:\n' "$(command_path "$MPZERO_VENV")"
      uv=$(find_uv || echo uv)
      printf '  (cd %q && %q sync --frozen --inexact && %q pip install transformers)\n' "$MPZERO_ROOT" "$uv" "$uv"
    fi
  fi
}
