# shellcheck shell=bash
# What every script of this folder builds on. The caller sets MPZERO_ROOT, the checkout, before it sources anything.

# The environment may ask bash and the GNU programs for POSIX's rules, which are others: `wait` forgets a status, options come first.
set +o posix
unset POSIXLY_CORRECT

# A locale that is not installed is that of C for most programs, but each bash warns of it, among what programs say.
if [[ -n $(locale charmap 2>&1 >/dev/null) ]]; then
  unset LC_ALL LANGUAGE "${!LC_@}"
  LANG=$(locale -a 2>/dev/null | grep -ix 'c.utf-\?8' | head -n 1) || true
  export LANG=${LANG:-C}
fi

MPZERO_ROOT=${MPZERO_ROOT:?set it to the checkout before sourcing scripts/common.sh}
MPZERO_BUILD=${BUILD_DIR:-$MPZERO_ROOT/build} # a complete path
MPZERO_VENV=$MPZERO_ROOT/.venv

# Whether this is a tree that `cmake --install` made, with the programs in bin/ and nothing to build.
installed() { [[ -f $MPZERO_ROOT/installation ]]; }
if installed; then
  MPZERO_BUILD=$MPZERO_ROOT
  # Its own environment, else the one that mpzero was built with.
  [[ -d $MPZERO_VENV ]] || IFS= read -r MPZERO_VENV <"$MPZERO_ROOT/installation" || true
fi

# A user's mistake ends a script with the exit status that mpzero itself uses for it (base/error.hpp).
readonly MPZERO_USER_ERROR=2

# printable TEXT: in one line that no terminal takes for a command. What is said may come from a file that others write.
printable() {
  local LC_ALL=C
  local text=${*//[$'\n\t']/ }
  # In UTF-8: the control characters above ASCII, and those that turn the direction of what follows.
  text=${text//$'\xc2'[$'\x80'-$'\x9f']/?}
  text=${text//$'\xe2\x80'[$'\xaa'-$'\xae']/?}
  text=${text//$'\xe2\x81'[$'\xa6'-$'\xa9']/?}
  printf '%s\n' "${text//[[:cntrl:]]/?}"
}

# A log that cannot be written, as on a full disk, ends nothing.
say() { printf 'mpzero: %s\n' "$(printable "$*")" || true; }
warn() { printf 'mpzero: warning: %s\n' "$(printable "$*")" >&2 || true; }
die() {
  printf 'mpzero: error: %s\n' "$(printable "$*")" >&2 || true
  exit "$MPZERO_USER_ERROR"
}

# watch_log LOG: shows the last line of a log on the terminal, with the seconds since the begin, until it is told to end or this script is gone.
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

# run_watched LOG COMMAND...: a command whose output goes to the log, and which would be silent for long. On a terminal its last line is shown.
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

# wait_for_child PID: returns the exit status of a child of this shell, whatever trapped signals come meanwhile. A trapped signal that ends
# `wait` while a child ends makes bash lose the child's status (5.2 says -1), so `wait` comes once the child is gone. Until then this shell
# reads from a process that ends with the child and writes nothing: `read` runs traps. (Not `read -t`: a trap that runs a command
# substitution as the time is over ends bash 5.2 with SIGABRT.) $! is another after it.
wait_for_child() {
  local watcher code again nothing
  while kill -0 "$1" 2>/dev/null; do
    exec {watcher}< <(exec tail --pid="$1" --sleep-interval=0.1 --follow /dev/null </dev/null 2>/dev/null)
    # Its end is the child's, or that of a signal to the whole group; a status above 128 is a trap's.
    until code=0 && { read -r -u "$watcher" nothing || code=$?; ((code == 1)); }; do :; done
    exec {watcher}<&-
  done
  # A signal may end this `wait`, too, but what it waits for is known: two that agree say what that was.
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

# seconds_since_boot: bash's SECONDS jumps with the clock.
seconds_since_boot() {
  local seconds
  read -r seconds _ </proc/uptime
  printf '%s\n' "${seconds%%.*}"
}

# No text from outside may reach bash's arithmetic unchecked: (( )) runs the commands of a text such as "a[$(id)]", and takes 08 for
# an octal number.

# positive_number_or TEXT DEFAULT: TEXT where it is a whole number above zero, else DEFAULT.
positive_number_or() {
  if [[ ${1:-} =~ ^[1-9][0-9]{0,14}$ ]]; then printf '%s\n' "$1"; else printf '%s\n' "$2"; fi
}

# require_number VARIABLE LEAST: ends the script unless the variable is unset, empty or a whole number of at least LEAST.
require_number() {
  local value=${!1:-}
  [[ -n $value ]] || return 0
  { [[ $value =~ ^[0-9]{1,15}$ ]] && ((10#$value >= $2)); } ||
    die "$1=$value is not a whole number of at least $2 and at most 15 digits; fix or unset it."
  printf -v "$1" '%d' "$((10#$value))"
}

# read_words VARIABLE: fills MPZERO_WORDS with the words in the variable, in single or double quotes where they hold blanks. A backslash
# between double quotes, and a line's end between quotes, are refused or stay as they are. Nothing in the words is expanded or run.
read_words() {
  MPZERO_WORDS=()
  [[ -n ${!1:-} ]] || return 0
  mapfile -d '' -t MPZERO_WORDS < <(xargs --no-run-if-empty printf '%s\0' <<<"${!1}" 2>/dev/null)
  wait $! || die "$1=${!1} cannot be read as words: a quote has no end on its line; single quotes take any other character, and a word with a quote in it the other kind."
}

# quoted_words WORD...: as read_words and a shell read them.
quoted_words() {
  local word
  local -a words=()
  for word in "$@"; do
    if [[ ! $word =~ ^[A-Za-z0-9_./:,=@%+-]+$ ]]; then word="'${word//\'/\'\\\'\'}'"; fi
    words+=("$word")
  done
  printf '%s\n' "${words[*]}"
}

# A path as the user will want to read and type it: relative to the checkout where it lies inside.
shown_path() { printf '%s\n' "${1#"$MPZERO_ROOT"/}"; }

# A program that uses lock, build_programs or prepare_data defines two functions:
#   run_long COMMAND...   runs what may take minutes; a Slurm job can be stopped meanwhile (scripts/stops.sh)
#   end_with STATUS       ends it: a step failed and has said why; a Slurm job decides here whether it is requeued (scripts/requeue.sh)

# lock FILE WHAT: waits until no other process holds the lock of that file, on any machine that shares the folder; the kernel
# releases it when this process ends. A script holds one lock at a time. Where the file system has no locks (Lustre mounted
# without "flock") it goes on without one and says so.
lock() {
  local file=$1 what=$2 code=0 holder
  # Through a link the last line below would overwrite another file, and a pipe would wait for its reader.
  if [[ -L $file || (-e $file && ! -f $file) ]]; then
    die "$(shown_path "$file") is no regular file, as a lock must be: look at who has put it there, and remove it."
  fi
  { exec {MPZERO_LOCK}>>"$file"; } 2>/dev/null || die "$(shown_path "$file") cannot be written; fix the permissions of its folder."
  flock --nonblock --conflict-exit-code 75 "$MPZERO_LOCK" 2>/dev/null || code=$?
  if ((code == 75)); then
    read -r -n 200 holder <"$file" || true
    say "Waiting for ${holder:-another process}, which holds $(shown_path "$file") to $what."
    code=0
    run_long flock "$MPZERO_LOCK" || code=$?
  fi
  ((code <= 128)) || end_with "$code"
  ((code == 0)) || warn "$(shown_path "$file") cannot be locked: two jobs that $what at once would disturb each other."
  printf 'process %s on %s%s\n' "$$" "$(hostname -s)" "${SLURM_JOB_ID:+ (job $SLURM_JOB_ID)}" >"$file"
}
unlock() { exec {MPZERO_LOCK}>&-; }

# mpi_default NAME VALUE: exports a variable of Open MPI's that the user has not set. MPZERO_MPI_DEFAULTS names them for mpzero, which blames
# only the user's variables for an MPI that does not start.
mpi_default() {
  [[ -z ${!1:-} ]] || return 0
  export "$1=$2" "MPZERO_MPI_DEFAULTS=${MPZERO_MPI_DEFAULTS:+$MPZERO_MPI_DEFAULTS }$1"
}
