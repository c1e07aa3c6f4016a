#!/usr/bin/env bash
# Trains on one host from a fresh checkout: installs packages, builds, prepares data, trains and plots the loss.
#
#   ./train-singlenode.sh [HOST] [--build-only] [--] [FLAGS OF mpzero train]
#
# --build-only: install and build only.
# With GPUs, runs one rank per GPU. Without GPUs, trains a small Qwen3 on a bundled text, with one rank per NUMA domain. On a single domain,
# the small Qwen3 uses two ranks, and other models use one rank unless NPROC is set.
# HOST: run on this Slurm node through srun; the checkout must be on a shared file system. SRUN_ARGS: additional options for srun, e.g.
# SRUN_ARGS="--partition=gpu --gpus-per-node=4".
# Relative paths in variables and flags refer to the current folder.
# Ctrl-C, SIGTERM, SIGHUP or SIGUSR1: save and exit with status 75. A second Ctrl-C exits immediately, with status 130 if no checkpoint was
# saved. The same command resumes from the last checkpoint.
set -euo pipefail

# Settings of the run. Environment variables override these values: MAX_STEPS=50 ./train-singlenode.sh
DATASET=${DATASET:-}                         # folder, file or Hugging Face name; empty: the bundled text
DATASET_CONFIG_NAME=${DATASET_CONFIG_NAME:-} # configuration of a Hugging Face dataset, e.g. "en" for allenai/c4
LOCAL_DATASET=${LOCAL_DATASET:-}             # true: DATASET is a path; false: a Hugging Face name; empty: a path if it exists
MAX_DOCUMENTS=${MAX_DOCUMENTS:-}             # maximum number of documents to prepare; empty: all
PREPARE_ARGS=${PREPARE_ARGS:-}               # additional flags for app/prepare_data.py, e.g. "--text_column body"
TOKENIZER=${TOKENIZER:-}                     # Hugging Face name, folder or "bytes"; empty: the model's
MODEL_TYPE=${MODEL_TYPE:-}                   # preset in configs/models/; empty: the model of --init_from, else qwen3_0_6b (CPU: qwen3_tiny)
MODEL_CONFIG=${MODEL_CONFIG:-}               # a config.json instead of MODEL_TYPE; requires TOKENIZER
DS_CONFIG=${DS_CONFIG:-}                     # empty: configs/ds_config.json, or configs/ds_config_tiny.json for qwen3_tiny
SEQ_LENGTH=${SEQ_LENGTH:-}                   # tokens per sequence; empty: the default of mpzero train, or 256 for qwen3_tiny
MAX_STEPS=${MAX_STEPS:-}                     # optimizer steps; empty: the default of mpzero train, or 600 for qwen3_tiny
CHECKPOINT_FREQ=${CHECKPOINT_FREQ:-}         # steps between checkpoints; 0: only at the end; empty: the default of mpzero train
CHECKPOINT_DIR=${CHECKPOINT_DIR:-}           # empty: checkpoints, or checkpoints/first_run for qwen3_tiny
DATA_DIR=${DATA_DIR:-}                       # folder for prepared data; empty: data
LOG_DIR=${LOG_DIR:-}                         # folder for the log; empty: logs
TRAIN_DATA=${TRAIN_DATA:-}                   # existing token file instead of DATASET, as in --train_data
VALIDATION_DATA=${VALIDATION_DATA:-}         # existing token file, as in --validation_data
VALIDATION_FREQ=${VALIDATION_FREQ:-}         # steps between validations; 0: none; empty: the default of mpzero train
METRICS_FILE=${METRICS_FILE:-}               # empty: metrics.jsonl in CHECKPOINT_DIR
NPROC=${NPROC:-}                             # number of ranks; empty: one per GPU or, without GPUs, per NUMA domain
CUDA_VERSION=${CUDA_VERSION:-}               # 12.9 prepends /usr/local/cuda-12.9/bin to PATH, for tools such as nsys
SINK=${SINK:-}                               # tensorboard, wandb or mlflow: forward metrics while training; empty: none
SINK_ARGS=${SINK_ARGS:-}                     # additional flags for app/follow.py, e.g. "--project llama"

MPZERO_ROOT=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
[[ -n ${MPZERO_USER_FOLDER:-} ]] || MPZERO_USER_FOLDER=$PWD
cd "$MPZERO_ROOT"
for part in common variables paths install build environment training dry_run machine allocation follow; do
  # shellcheck source=/dev/null
  source "scripts/$part.sh"
done

run_long() { "$@"; }
end_with() { exit "$1"; }

# run_on_host HOST ARGUMENT...: runs this script with these arguments on a Slurm node. Slurm allocates the whole node, but only the GPUs
# that srun requests.
run_on_host() {
  local host=$1 cpus="" resources=""
  shift
  if [[ -e $(users_path "$host") ]] && ! sinfo --noheader --nodes="$host" 2>/dev/null | grep -q .; then
    die "'$host' is a file or folder, not a Slurm node; set DATASET=$(printf %q "$host") to train on it."
  fi
  command -v srun >/dev/null || die "cannot run on '$host' because srun is not installed on this host; run ./train-singlenode.sh on '$host'."
  read -r cpus resources < <(sinfo --noheader --nodes="$host" --format='%c %G' 2>/dev/null) || true
  [[ -n $cpus ]] || die "Slurm has no node '$host'; 'sinfo -N' lists the nodes."
  local -a user_arguments
  read_words SRUN_ARGS
  user_arguments=("${MPZERO_WORDS[@]}")
  if slurm_binds_cores; then user_arguments+=(--cpu-bind=none); fi
  # srun accepts only one of --mem, --mem-per-cpu and --mem-per-gpu.
  [[ ${SRUN_ARGS:-} =~ --mem(-per|=|\ ) ]] || user_arguments+=(--mem=0)
  if [[ ! ${SRUN_ARGS:-} =~ --gres|--gpus|-G ]] && (($(gpus_in "$resources") > 0)); then
    user_arguments+=("--gpus-per-node=$(gpus_in "$resources")")
  fi
  # Within the user's own job, srun starts a step of that job.
  if [[ -n ${SLURM_JOB_ID:-} ]]; then build_slurm_environment; else forget_ranks; fi
  export "${MPZERO_VARIABLES[@]}" MPZERO_USER_FOLDER
  # srun forwards SIGUSR1 to the script on the node, which forwards it to its ranks. srun runs in its own session, because it would prompt
  # the user on Ctrl-C.
  catch_signals
  setsid srun --nodelist="$host" --nodes=1 --ntasks=1 --cpus-per-task="$cpus" --exclusive --distribution=block --mpi=none \
    "${user_arguments[@]}" "$MPZERO_ROOT/singlenode/train-singlenode.sh" "$@" &
  wait_for_ranks $!
  # The script on the node has already converted the ranks' exit status.
  if ((status != 0 && status != 75 && signals > 1)); then status=130; fi
  exit "$status"
}

# read_arguments ARGUMENT...: sets host, build_only and MPZERO_EXTRA_FLAGS. mpzero's flags start at the first unknown flag.
read_arguments() {
  host="" build_only=false
  if [[ " $* " =~ \ (-h|--help)\  ]]; then
    explain_script "${BASH_SOURCE[0]}"
    exit 0
  fi
  while (($# > 0)); do
    case $1 in
      help)
        explain_script "${BASH_SOURCE[0]}"
        exit 0
        ;;
      version | --version | train | doctor | checkpoint | plan | generate | top | failure)
        die "'$1' is an mpzero command, not a command of this script; run $(command_path "$MPZERO_ROOT/build/bin/mpzero") $1$(
          [[ -x $MPZERO_ROOT/build/bin/mpzero ]] || printf ' (built by ./train-singlenode.sh --build-only)'
        )"
        ;;
      --build-only) build_only=true ;;
      --)
        shift
        break
        ;;
      -*) break ;;
      *)
        [[ -z $host ]] || die "'$host' and '$1' both look like Slurm nodes; pass only one, followed by the flags of mpzero train."
        host=$1
        ;;
    esac
    shift
  done
  MPZERO_EXTRA_FLAGS=("$@")
  [[ " $* " != *" --build-only "* ]] || die "--build-only is a flag of this script; pass it before the flags of mpzero train."
  [[ $build_only == false || $# == 0 ]] || die "'$*' has no effect with --build-only; remove it."
}

# expect_folders FOLDER...: sets new_folders to the folders that do not exist, and to their parents that do not exist.
expect_folders() {
  local folder
  new_folders=()
  for folder in "$@"; do
    while [[ -n $folder && ! -e $folder ]]; do
      new_folders+=("$folder")
      [[ $folder == */* ]] || break
      folder=${folder%/*}
    done
  done
}

# discard_folders: removes new_folders that are empty except for this script's lock.
discard_folders() {
  local lock=$DATA_FOLDER/prepare.lock
  if [[ $(ls -A -- "$DATA_FOLDER" 2>/dev/null) == prepare.lock && $(<"$lock") == "process $$ on "* ]]; then rm -f -- "$lock"; fi
  rmdir -- "${new_folders[@]}" 2>/dev/null || true
}

# catch_signals: must be called before mpirun or srun starts. Forwards the first signal as SIGUSR1, on which mpzero saves and exits (SIGTERM
# or SIGINT would make mpirun kill its ranks). A second signal ends the run immediately. `signals` counts the signals.
catch_signals() {
  read -r own_name <"/proc/$$/comm"
  signals=0
  ranks_pid=""
  trap 'stop_ranks ""' INT TERM USR1 USR2
  # When the terminal is closed, both the shell and the kernel send SIGHUP.
  trap '((signals > 0)) || stop_ranks SIGHUP' HUP
}

# stop_ranks SIGNAL: contains no command substitution, which bash 5.2 leaves empty if another signal arrives. Two SIGHUPs are counted as
# one, even if the second interrupts this function.
stop_ranks() {
  if [[ $1 == SIGHUP ]]; then signals=$((signals > 0 ? signals : 1)); else signals=$((signals + 1)); fi
  [[ -z $ranks_pid ]] || signal_ranks
  # Erase the ^C that the terminal has echoed after the progress bar.
  [[ ! -t 1 ]] || printf '\r\033[K'
  ((signals > 1)) || printf 'mpzero: Stopping: saving completed steps, if any; interrupt again to stop immediately.\n' || true
}

signal_ranks() {
  local signal=USR1
  ((signals == 1)) || signal=TERM
  kill "-$signal" "$ranks_pid" 2>/dev/null || true
}

# wait_for_ranks PID: waits for mpirun or srun and sets `status` to its exit status. catch_signals must be called before its start.
wait_for_ranks() {
  local name=$own_name
  status=0
  # Until the new process runs its program, bash discards signals to it.
  while [[ ${name:-$own_name} == "$own_name" ]] && kill -0 "$1" 2>/dev/null; do
    { read -r name <"/proc/$1/comm" || name=""; } 2>/dev/null
  done
  ranks_pid=$1
  # A signal may have arrived before ranks_pid was set.
  ((signals == 0)) || signal_ranks
  wait_for_child "$ranks_pid" || status=$?
  trap - INT TERM HUP USR1 USR2
}

# final_status BEFORE: the exit status of the script (docs/stopping-and-failures.md), given `status` of mpirun or srun and `signals`.
# BEFORE: saved_state at the start. A run may have saved a checkpoint before a second signal made mpirun kill its ranks.
final_status() {
  status=$(status_of_start "$status")
  if ((status == 0 || status == 75 || status == MPZERO_USER_ERROR)); then
    echo "$status"
  elif ((signals == 0)); then
    echo $((status > 128 ? 1 : status))
  elif ((status == MPZERO_ENDED_BY_SIGUSR1 || signals == 1 && status == 130)); then # 130: Ctrl-C before setsid
    echo 75
  elif ((signals == 1 && status <= 128)); then
    echo "$status"
  elif saved_since "$1"; then
    echo 75
  else
    echo 130
  fi
}

# signal_name NUMBER: "SIGKILL" for 9.
signal_name() { printf 'SIG%s\n' "$(kill -l "$1" 2>/dev/null || echo "NAL $1")"; }

# without_notice: forwards mpirun's stderr without the five lines in which Open MPI 5 reports a rank's exit status after mpzero's own
# message.
without_notice() {
  sed --unbuffered '/^--*$/{
    N
    /\nprterun detected that one or more processes exited/!{
      P
      D
    }
    :notice
    N
    s/.*\n//
    /^--*$/!b notice
    d
  }'
}

# keep_log LOG: appends stdin to the log without the progress bar, i.e. only the part of each line after the bar's last erasure
# (base/output.cpp). If the disk is full, lines are lost and the run continues.
keep_log() {
  local line lost=0 mark
  trap '' INT TERM HUP USR1 USR2
  while IFS= read -r line || [[ -n $line ]]; do
    line=${line##*$'\r\e[K'}
    [[ $line != *$'\e[?7l'* ]] || continue
    mark=""
    ((lost == 0)) || mark="mpzero: lines missing because the log could not be written: $lost"$'\n'
    if printf '%s%s\n' "$mark" "$line" >>"$1"; then lost=0; else lost=$((lost + 1)); fi
  done 2>/dev/null
}

# start_ranks RANKS GPUS CORES: runs mpzero under mpirun and sets `status` to mpirun's exit status. mpirun's stdout and stderr are also
# written to the log. On a terminal, they are one stream, so that lines and the progress bar stay in order. mpirun runs in its own session,
# so that only this script receives Ctrl-C. After the first line, this shell must not run command substitutions: Ctrl-C would end them.
start_ranks() {
  local first_line
  local -a command=(mpirun --bind-to none -n "$1")
  (($1 <= $(visible_cpus))) || command+=(--oversubscribe)
  if [[ -t 1 && -t 2 ]]; then
    # Set MPZERO_TERMINAL only for the ranks, because the output of other programs may not be a terminal.
    command+=(env "MPZERO_TERMINAL=$(positive_number_or "$(tput cols 2>/dev/null)" 80)")
    # shellcheck disable=SC2016 # the ranks' shell expands it
    command+=(bash -c 'exec "$@" 2>&1' mpzero)
  fi
  command+=("$MPZERO_BUILD/bin/mpzero" train "${MPZERO_FLAGS[@]}")
  first_line=$(say "Training $MODEL_TYPE with $(counted "$1" rank) on $( (($2 > 0)) && counted "$2" GPU || echo "the CPU ($(counted "$3" core))"); log: $MPZERO_LOG.")
  catch_signals
  printf '%s\n' "$first_line" || true
  if ((signals > 0)); then
    status=$MPZERO_ENDED_BY_SIGUSR1
    return
  fi

  # Ignore SIGPIPE, so that a reader that exits, as in `| head`, does not end the run.
  trap '' PIPE
  # Ignore signals in the loggers, because Slurm may signal all processes of a step, as does the kernel when the terminal is closed.
  exec 5> >(keep_log "$MPZERO_LOG")
  local log_pid=$!
  exec 3> >(trap '' INT TERM HUP USR1 USR2 && exec tee -p /dev/fd/5)
  local tee_pid=$!
  exec 4> >(trap '' INT TERM HUP USR1 USR2 && exec 3>&- && without_notice 5>&- | tee -p /dev/fd/5 >&2)
  local filter_pid=$!
  # Remove Slurm's variables; otherwise, mpirun would query Slurm for its hosts.
  without_launcher setsid "${command[@]}" </dev/null >&3 2>&4 3>&- 4>&- 5>&- &
  local mpirun_pid=$!
  exec 3>&- 4>&- 5>&-
  wait_for_ranks "$mpirun_pid"
  wait "$tee_pid" "$filter_pid" "$log_pid" 2>/dev/null || true
}

read_arguments "$@"
resolve_paths

if [[ -n $host ]]; then
  if [[ $build_only == true ]]; then run_on_host "$host" --build-only; fi
  run_on_host "$host" -- "${MPZERO_EXTRA_FLAGS[@]}"
fi
warn_of_mistyped
select_cuda
gpus=$(count_gpus)
cores=$(cores_here)
[[ $build_only == true ]] || choose_settings "$gpus" "$( ((gpus > 0)) && echo qwen3_0_6b || echo qwen3_tiny)"
ranks=$(ranks_per_node "$gpus" "$cores")

if installed; then
  [[ $build_only == false ]] || die "$MPZERO_ROOT is an installed tree, which cannot be built; use --build-only in the checkout."
  require_installation
  require_sink
elif built_by_another; then
  [[ $build_only == false ]] || die "$MPZERO_ROOT is not writable by $(id -un), but the build needs write access; have its owner run this script with --build-only."
  require_build_of_another "$gpus"
  require_sink
else
  mkdir -p logs 2>/dev/null || die "cannot create $MPZERO_ROOT/logs, which the build needs; run this script as a user who can write to the checkout."
  lock logs/setup.lock "build"
  install_packages "${MPZERO_BUILD_PACKAGES[@]}"
  libraries=$(libraries_for "$gpus") || exit
  sync_environment "$libraries"
  [[ $build_only == true ]] || require_sink
  build_programs off "$gpus" mpzero zero_to_fp32
  unlock
fi
if [[ $build_only == true ]]; then
  say "Built mpzero and zero_to_fp32 in $(shown_path "$MPZERO_BUILD/bin")."
  exit 0
fi

LOG_DIR=${LOG_DIR:-logs}
complete_defaults
name_data
training_flags
set_rank_environment "$ranks" "$cores" "$gpus"
# Disable TCP, which ranks on one host do not need: Open MPI 5 prints a line per rank if it cannot use an interface.
mpi_default OMPI_MCA_btl ^tcp
require_machine "$ranks" "$gpus"
check_run "$ranks" 1
make_folder LOG_DIR "$LOG_DIR"
export MPZERO_LOG_DIR=${MPZERO_LOG_DIR:-$LOG_DIR}
expect_folders "$DATA_FOLDER" "$CHECKPOINT_DIR"
trap discard_folders EXIT
make_folder CHECKPOINT_DIR "$CHECKPOINT_DIR"
prepare_data
trap - EXIT
MPZERO_LOG=$LOG_DIR/$(model_file_name)-$(date +%Y%m%d-%H%M%S).out
before=$(saved_state)
expect_start "$(hostname -s).$$"
start_follower > >(trap '' INT TERM HUP USR1 USR2 && exec tee -a "$MPZERO_LOG") 2>&1
start_ranks "$ranks" "$gpus" "$cores"
stop_follower "$( ((status == 0)) && echo 60 || echo 5)"
status=$(judged_status "$status" 0)
ended=$status
status=$(final_status "$before")
if ((status == MPZERO_USER_ERROR)); then discard_folders; fi
if ((status != 0)); then
  without=""
  if flag_value resume_from_checkpoint >/dev/null || has_switch overwrite; then without=", without --overwrite and --resume_from_checkpoint,"; fi
  next="no checkpoint exists yet, so the same command starts over"
  if tag=$(latest_tag); then next="the same command$without resumes from $CHECKPOINT_DIR/$tag"; fi
  if ((status == 75)); then
    say "Interrupted; $next."
  elif ((status == 130)); then
    say "Interrupted before a checkpoint was saved; $next."
  elif ((ended > 128)); then
    say "$(signal_name $((ended - 128))) killed a rank$( ((ended != 137)) || echo "; check dmesg for out-of-memory errors"); $next; log: $MPZERO_LOG."
  else
    say "mpzero train exited with status $status; log: $MPZERO_LOG."
  fi
  exit "$status"
fi
closing_message || true
