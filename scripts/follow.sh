# shellcheck shell=bash
# SINK: app/follow.py passes the steps of the run on to TensorBoard, W&B or MLflow, on the node that runs the script. What becomes of it
# does not touch the run.

MPZERO_FOLLOWER="" # the process id of follow_run
MPZERO_FOLLOW_ARGUMENTS=()

# require_sink: ends the script where SINK is none, or its package is not installed.
require_sink() {
  local said
  if [[ -z ${SINK:-} ]]; then
    [[ -z ${SINK_ARGS:-} ]] || warn "SINK_ARGS=$SINK_ARGS has no effect: SINK is not set."
    return 0
  fi
  read_words SINK_ARGS
  MPZERO_FOLLOW_ARGUMENTS=("$METRICS_FILE" --sink "$SINK" "${MPZERO_WORDS[@]}")
  # Its usage comes before the sentence.
  said=$(follow --check 2>&1) || die "SINK=$SINK: $(sed -n '$s/^follow.py: \(error: \)\{0,1\}//p' <<<"$said")"
}

# follow ARGUMENT...: app/follow.py for this run, in place of this shell. It uses no GPU, and gives way to the ranks.
follow() {
  # Paths in SINK_ARGS count from where the user is.
  user_is_in_checkout || cd "$MPZERO_USER_FOLDER" || exit
  exec env CUDA_VISIBLE_DEVICES="" OMP_NUM_THREADS=1 \
    nice -n 10 "$MPZERO_VENV/bin/python" "$MPZERO_ROOT/app/follow.py" "${MPZERO_FOLLOW_ARGUMENTS[@]}" "$@"
}

# start_follower: call it when the ranks are about to start.
start_follower() {
  [[ -n ${SINK:-} ]] || return 0
  local traps
  traps=$(trap -p USR2 ALRM)
  # Until follow_run answers them, these do nothing.
  trap '' USR2 ALRM
  follow_run $$ &
  MPZERO_FOLLOWER=$!
  trap - USR2 ALRM
  eval "$traps"
}

# stop_follower SECONDS: the ranks have ended, and what they have written is passed on, for so many seconds at most.
stop_follower() {
  local attempt
  [[ -n $MPZERO_FOLLOWER ]] || return 0
  for ((attempt = 0; attempt < 5 * $1; ++attempt)); do
    kill -USR2 "$MPZERO_FOLLOWER" 2>/dev/null || break
    sleep 0.2
  done
  if kill -0 "$MPZERO_FOLLOWER" 2>/dev/null; then
    # First, since follow_run says next how it has ended.
    warn "SINK=$SINK: app/follow.py still passes steps on $(counted "$1" second) after the run, and is ended."
    kill -ALRM "$MPZERO_FOLLOWER" 2>/dev/null || true
  fi
  wait "$MPZERO_FOLLOWER" 2>/dev/null || true
  MPZERO_FOLLOWER=""
}

# follow_run PID: follows the run while that process is there. The signals that end the ranks do not end it. SIGUSR2 does after a last
# pass, SIGALRM at once.
follow_run() {
  local child="" code=0
  trap '' INT TERM HUP USR1 QUIT
  trap '[[ -z $child ]] || kill -USR2 "$child" 2>/dev/null || true' USR2
  trap '[[ -z $child ]] || kill -KILL "$child" 2>/dev/null || true' ALRM
  # SIGUSR2 does nothing until Python answers it.
  (trap - ALRM && trap '' USR2 && follow --wait --pid "$1") &
  child=$!
  wait_for_child "$child" || code=$?
  ((code == 0)) || warn "SINK=$SINK: app/follow.py exited with status $code; the run is not affected. Later, $(follow_command) forwards the rest."
}

# follow_command: what the user types to do the same.
follow_command() {
  printf "'%s %s %s --once'\n" "$(command_path "$MPZERO_VENV/bin/python")" "$(command_path "$MPZERO_ROOT/app/follow.py")" \
    "$(quoted_words "${MPZERO_FOLLOW_ARGUMENTS[@]}")"
}
