# shellcheck shell=bash
# Resolves the user's paths. A relative path refers to the folder from which the user started the script or submitted the job, but the
# scripts run in the checkout.
#
# MPZERO_USER_FOLDER is the user's folder. A script on another node receives it from the script that starts it (run_on_host).

# Flags of mpzero train (unit FILE or DIR in app/flags) and variables of the scripts that contain a path.
MPZERO_PATH_FLAGS=(
  base_model checkpoint_dir deepspeed_config init_from metrics_file metrics_sd_dir model_config profile_dir resume_from_checkpoint train_data validation_data
)
MPZERO_PATH_VARIABLES=(DS_CONFIG CHECKPOINT_DIR DATA_DIR LOG_DIR MODEL_CONFIG METRICS_FILE)

# Matches "Qwen/Qwen3-0.6B". Unlike is_hub_name() in io/hub, does not restrict punctuation within names.
readonly MPZERO_HUB_NAME='^[[:alnum:]_][[:alnum:]_.-]*/[[:alnum:]_][[:alnum:]_.-]*$'

# Succeeds if the user's folder is the checkout, in which the scripts run.
user_is_in_checkout() { [[ $MPZERO_USER_FOLDER -ef $MPZERO_ROOT ]]; }

# users_path PATH: a path given by the user, made absolute.
users_path() {
  local path=$1
  while [[ $path == ./* ]]; do path=${path#./}; done
  if [[ $path == /* || -z $1 ]]; then printf '%s\n' "$1"; else printf '%s\n' "${MPZERO_USER_FOLDER%/}/$path"; fi
}

# data_paths VALUE: a token file, or a list of FILE, NAME=FILE or FILE:WEIGHT, with absolute paths. The name of an existing file is not
# split.
data_paths() {
  local item complete="" file
  local -a items
  file=$(users_path "$1")
  if [[ -e $file ]]; then
    printf '%s\n' "$file"
    return
  fi
  IFS=, read -ra items <<<"$1,"
  for item in "${items[@]}"; do
    item=${item#"${item%%[! ]*}"}
    item=${item%"${item##*[! ]}"}
    if [[ $item == *=* && ${item%%=*} != */* ]]; then
      item=${item%%=*}=$(users_path "${item#*=}")
    else
      item=$(users_path "$item")
    fi
    complete+=${complete:+,}$item
  done
  printf '%s\n' "$complete"
}

# named_path NAME: the absolute path if the file or folder exists, else the unchanged Hugging Face name.
named_path() {
  local path
  path=$(users_path "$1")
  if [[ -n $1 && -e $path ]]; then printf '%s\n' "$path"; else printf '%s\n' "$1"; fi
}

# resolve_paths: makes paths in variables and extra flags absolute, unless the user's folder is the checkout.
resolve_paths() {
  local variable i name value
  if user_is_in_checkout; then return 0; fi
  for variable in "${MPZERO_PATH_VARIABLES[@]}"; do
    [[ -z ${!variable:-} ]] || printf -v "$variable" '%s' "$(users_path "${!variable}")"
  done
  for variable in TRAIN_DATA VALIDATION_DATA; do
    [[ -z ${!variable:-} ]] || printf -v "$variable" '%s' "$(data_paths "${!variable}")"
  done
  TOKENIZER=$(named_path "${TOKENIZER:-}")
  DATASET=$(data_set_path "${DATASET:-}" "${LOCAL_DATASET:-$(flag_value local_dataset || true)}") || exit
  for ((i = 0; i < ${#MPZERO_EXTRA_FLAGS[@]}; ++i)); do
    name=${MPZERO_EXTRA_FLAGS[i]#--}
    if [[ $name == *=* ]]; then
      value=${name#*=} name=${name%%=*}
      MPZERO_EXTRA_FLAGS[i]=--$name=$(path_of_flag "$name" "$value") || exit
    elif ((i + 1 < ${#MPZERO_EXTRA_FLAGS[@]})) && [[ ${MPZERO_EXTRA_FLAGS[i]} == --* ]]; then
      MPZERO_EXTRA_FLAGS[i + 1]=$(path_of_flag "$name" "${MPZERO_EXTRA_FLAGS[i + 1]}") || exit
    fi
  done
}

# path_of_flag NAME VALUE: the value of a flag, absolute if it is a path.
path_of_flag() {
  if [[ $1 == dataset ]]; then
    data_set_path "$2" "${LOCAL_DATASET:-$(flag_value local_dataset || true)}"
  elif [[ $1 == tokenizer || $1 =~ ^(init_from|base_model)$ && $2 =~ $MPZERO_HUB_NAME ]]; then
    if [[ $1 != tokenizer && ! -e $(users_path "$2") && -e $MPZERO_ROOT/$2 ]]; then
      die "--$1 $2 is in $MPZERO_ROOT, not in the current folder ($MPZERO_USER_FOLDER); use --$1 $(printf %q "$MPZERO_ROOT/$2")."
    fi
    named_path "$2"
  elif [[ $1 == train_data || $1 == validation_data ]]; then
    data_paths "$2"
  elif [[ " ${MPZERO_PATH_FLAGS[*]} " == *" $1 "* && ! "$1 ${2,,}" =~ ^(resume_from_checkpoint (none|true|false)|metrics_file none)$ ]]; then
    users_path "$2"
  else
    printf '%s\n' "$2"
  fi
}

# data_set_path DATASET LOCAL: the absolute path of a local dataset, or the unchanged Hugging Face name. LOCAL: LOCAL_DATASET.
data_set_path() {
  if [[ -z $1 || $2 == false ]]; then
    printf '%s\n' "$1"
  elif [[ $2 == true ]]; then
    users_path "$1"
  elif [[ ! -e $(users_path "$1") && -e $MPZERO_ROOT/$1 ]]; then
    die "DATASET=$1 is in $MPZERO_ROOT, not in the current folder ($MPZERO_USER_FOLDER); use DATASET=$(printf %q "$MPZERO_ROOT/$1"), or LOCAL_DATASET=false for a Hugging Face name."
  else
    named_path "$1"
  fi
}

# complete_defaults: makes default paths, which are in the checkout, absolute, unless the user's folder is the checkout.
complete_defaults() {
  local variable
  if user_is_in_checkout; then return 0; fi
  for variable in CHECKPOINT_DIR DATA_DIR LOG_DIR METRICS_FILE; do
    [[ -z ${!variable:-} || ${!variable} == /* ]] || printf -v "$variable" '%s' "$MPZERO_ROOT/${!variable}"
  done
}

# command_path PATH: a path in the checkout for commands in the user's folder, quoted for the shell.
command_path() { if user_is_in_checkout; then printf '%q\n' "$(shown_path "$1")"; else printf '%q\n' "$1"; fi; }
