# shellcheck shell=bash
# Common code of all scripts in this folder. The caller sets MPZERO_ROOT, the checkout, before sourcing anything.

# Disable POSIX mode of bash and the GNU programs: in this mode, `wait` forgets a status and options must come first.
set +o posix
unset POSIXLY_CORRECT

# Most programs fall back to C for a missing locale, but every bash process prints a warning.
if [[ -n $(locale charmap 2>&1 >/dev/null) ]]; then
  unset LC_ALL LANGUAGE "${!LC_@}"
  LANG=$(locale -a 2>/dev/null | grep -ix 'c.utf-\?8' | head -n 1) || true
  export LANG=${LANG:-C}
fi

MPZERO_ROOT=${MPZERO_ROOT:?set it to the checkout before sourcing scripts/common.sh}
MPZERO_BUILD=${BUILD_DIR:-$MPZERO_ROOT/build} # an absolute path
MPZERO_VENV=$MPZERO_ROOT/.venv

# Succeeds if this tree was created by `cmake --install`, with built programs in bin/.
installed() { [[ -f $MPZERO_ROOT/installation ]]; }
if installed; then
  MPZERO_BUILD=$MPZERO_ROOT
  # The environment of the installation, else the environment of the build.
  [[ -d $MPZERO_VENV ]] || IFS= read -r MPZERO_VENV <"$MPZERO_ROOT/installation" || true
fi

# Exit status of a script after a user error, as in mpzero (base/error.hpp).
readonly MPZERO_USER_ERROR=2

# Exit status of a program that SIGUSR1 ended, i.e. before it handled signals, or that was not started because of a stop.
readonly MPZERO_ENDED_BY_SIGUSR1=138

# printable TEXT: one line without control characters. The text may come from a file that other users can write to.
printable() {
  local LC_ALL=C
  local text=${*//[$'\n\t']/ }
  # In UTF-8: control characters above ASCII, and characters that change the text direction.
  text=${text//$'\xc2'[$'\x80'-$'\x9f']/?}
  text=${text//$'\xe2\x80'[$'\xaa'-$'\xae']/?}
  text=${text//$'\xe2\x81'[$'\xa6'-$'\xa9']/?}
  printf '%s\n' "${text//[[:cntrl:]]/?}"
}

# Continue if the log cannot be written, e.g. on a full disk.
say() { printf 'mpzero: %s\n' "$(printable "$*")" || true; }
warn() { printf 'mpzero: warning: %s\n' "$(printable "$*")" >&2 || true; }
die() {
  printf 'mpzero: error: %s\n' "$(printable "$*")" >&2 || true
  exit "$MPZERO_USER_ERROR"
}

# watch_log LOG: shows the last line of a log and the elapsed seconds on the terminal, until it is stopped or this script has ended.
watch_log() {
  local line begin=$SECONDS columns
  trap 'exit 0' TERM
  columns=$(positive_number_or "$(tput cols 2>/dev/null)" 80)
  while kill -0 $$ 2>/dev/null; do
    line=$(printable "$(tail -c 1000 "$1" 2>/dev/null | tr '\r' '\n' | grep -v '^[[:space:]]*$' | tail -n 1)")
    line="$((SECONDS - begin)) s  $line"
    printf '\r\033[K%s' "${line:0:columns-1}" >&2
    sleep 1 &
    wait $!
  done
}

# run_watched LOG COMMAND...: runs a long command with its output in the log. On a terminal, shows the last line of the log.
run_watched() {
  local log=$1 watcher="" code=0
  shift
  : >"$log"
  if [[ -t 2 ]]; then
    watch_log "$log" &
    watcher=$!
  fi
  "$@" >>"$log" 2>&1 || code=$?
  if [[ -n $watcher ]]; then
    kill "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
    printf '\r\033[K' >&2
  fi
  return "$code"
}

# wait_for_child PID: returns the exit status of a child of this shell, despite trapped signals. bash loses the child's
# status (5.2 returns -1) if a trapped signal interrupts `wait` while the child exits, so `wait` is called after the child has exited. Until
# then, this shell reads from a silent process that ends with the child, because `read` runs traps. (A trap with a command substitution at
# the timeout of `read -t` ends bash 5.2 with SIGABRT.) Changes $!.
wait_for_child() {
  local watcher code again nothing
  while kill -0 "$1" 2>/dev/null; do
    exec {watcher}< <(exec tail --pid="$1" --sleep-interval=0.1 --follow /dev/null </dev/null 2>/dev/null)
    # `read` ends with the child or on a signal; a status above 128 means a trap.
    until code=0 && { read -r -u "$watcher" nothing || code=$?; ((code == 1)); }; do :; done
    exec {watcher}<&-
  done
  # A signal may also interrupt this `wait`, so call it until two results are equal.
  while :; do
    code=0
    again=0
    wait "$1" 2>/dev/null || code=$?
    wait "$1" 2>/dev/null || again=$?
    ((code != again)) || return "$code"
  done
}

# counted COUNT NOUN: "1 node", "2 nodes".
counted() { printf '%s %s%s\n' "$1" "$2" "$( (($1 == 1)) || echo s)"; }

# seconds_since_boot: unlike bash's SECONDS, independent of clock changes.
seconds_since_boot() {
  local seconds
  read -r seconds _ </proc/uptime
  printf '%s\n' "${seconds%%.*}"
}

# Validate external text before bash arithmetic: (( )) runs commands in text such as "a[$(id)]", and reads 08 as octal.

# positive_number_or TEXT DEFAULT: TEXT if it is a positive integer, else DEFAULT.
positive_number_or() {
  if [[ ${1:-} =~ ^[1-9][0-9]{0,14}$ ]]; then printf '%s\n' "$1"; else printf '%s\n' "$2"; fi
}

# require_number VARIABLE LEAST: exits unless the variable is unset, empty or an integer of at least LEAST.
require_number() {
  local value=${!1:-}
  [[ -n $value ]] || return 0
  { [[ $value =~ ^[0-9]{1,15}$ ]] && ((10#$value >= $2)); } ||
    die "$1=$value must be an integer of at least $2 with at most 15 digits; fix or unset it."
  printf -v "$1" '%d' "$((10#$value))"
}

# read_words VARIABLE: fills MPZERO_WORDS with the words in the variable. Words with blanks must be in single or double quotes. Within
# quotes, a backslash is literal and a newline is refused. Words are never expanded or executed.
read_words() {
  MPZERO_WORDS=()
  [[ -n ${!1:-} ]] || return 0
  mapfile -d '' -t MPZERO_WORDS < <(xargs --no-run-if-empty printf '%s\0' <<<"${!1}" 2>/dev/null)
  wait $! || die "$1=${!1} has an unclosed quote; put words that contain spaces in single quotes, or in double quotes if they also contain a single quote."
}

# quoted_words WORD...: quotes words for read_words and a shell.
quoted_words() {
  local word
  local -a words=()
  for word in "$@"; do
    if [[ ! $word =~ ^[A-Za-z0-9_./:,=@%+-]+$ ]]; then word="'${word//\'/\'\\\'\'}'"; fi
    words+=("$word")
  done
  printf '%s\n' "${words[*]}"
}

# A path for messages: relative to the checkout if the path is inside it.
shown_path() { printf '%s\n' "${1#"$MPZERO_ROOT"/}"; }

# A program that uses lock, build_programs or prepare_data defines two functions:
#   run_long COMMAND... runs a command that may take minutes; a Slurm job can be stopped meanwhile (scripts/stops.sh)
#   end_with STATUS exits after a failed step that has printed its reason; a Slurm job may be requeued
#   (scripts/requeue.sh)

# lock FILE WHAT: waits for and acquires the lock of a file, across all hosts that share the folder. The kernel releases it when the script
# ends. A script acquires only one lock at a time. Without file locks (Lustre mounted without "flock"), it warns and continues.
lock() {
  local file=$1 what=$2 code=0 holder
  # Writing to the file below would overwrite the target of a link or block on a pipe.
  if [[ -L $file || (-e $file && ! -f $file) ]]; then
    die "$(shown_path "$file") is not a regular file, so it cannot be locked; remove it."
  fi
  { exec {MPZERO_LOCK}>>"$file"; } 2>/dev/null || die "$(shown_path "$file") cannot be written; fix the permissions of its folder."
  flock --nonblock --conflict-exit-code 75 "$MPZERO_LOCK" 2>/dev/null || code=$?
  if ((code == 75)); then
    read -r -n 200 holder <"$file" || true
    say "Waiting for ${holder:-another process}, which has locked $(shown_path "$file") to $what."
    code=0
    run_long flock "$MPZERO_LOCK" || code=$?
  fi
  ((code <= 128)) || end_with "$code"
  ((code == 0)) || warn "$(shown_path "$file") cannot be locked: do not run two jobs that $what at the same time."
  # An interrupted script may have removed the file (discard_folders).
  if [[ ! $file -ef /dev/fd/$MPZERO_LOCK ]]; then
    unlock
    mkdir -p "${file%/*}"
    lock "$@"
    return
  fi
  printf 'process %s on %s%s\n' "$$" "$(hostname -s)" "${SLURM_JOB_ID:+ (job $SLURM_JOB_ID)}" >"$file"
}
unlock() { exec {MPZERO_LOCK}>&-; }

# mpi_default NAME VALUE: exports an Open MPI variable unless the user has set it. MPZERO_MPI_DEFAULTS lists these variables, so that mpzero
# reports only the user's variables if MPI initialization fails.
mpi_default() {
  [[ -z ${!1:-} ]] || return 0
  export "$1=$2" "MPZERO_MPI_DEFAULTS=${MPZERO_MPI_DEFAULTS:+$MPZERO_MPI_DEFAULTS }$1"
}
