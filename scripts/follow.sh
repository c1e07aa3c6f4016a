# shellcheck shell=bash
# SINK: app/follow.py forwards the run's metrics to TensorBoard, W&B or MLflow, on the node that runs the script. Its failure does not
# affect the run.

MPZERO_FOLLOWER="" # the process id of follow_run
MPZERO_FOLLOW_ARGUMENTS=()

# require_sink: exits if SINK is unknown or its package is not installed.
require_sink() {
  local said
  if [[ -z ${SINK:-} ]]; then
    [[ -z ${SINK_ARGS:-} ]] || warn "SINK_ARGS=$SINK_ARGS has no effect: SINK is not set."
    return 0
  fi
  read_words SINK_ARGS
  MPZERO_FOLLOW_ARGUMENTS=("$METRICS_FILE" --sink "$SINK" "${MPZERO_WORDS[@]}")
  # Skip the usage before the message.
  said=$(follow --check 2>&1) || die "SINK=$SINK: $(sed -n '$s/^follow.py: \(error: \)\{0,1\}//p' <<<"$said")"
}

# follow ARGUMENT...: replaces this shell with app/follow.py for this run, without GPUs and at low priority.
follow() {
  # Paths in SINK_ARGS are relative to the user's folder.
  user_is_in_checkout || cd "$MPZERO_USER_FOLDER" || exit
  exec env CUDA_VISIBLE_DEVICES="" OMP_NUM_THREADS=1 \
    nice -n 10 "$MPZERO_VENV/bin/python" "$MPZERO_ROOT/app/follow.py" "${MPZERO_FOLLOW_ARGUMENTS[@]}" "$@"
}

# start_follower: must be called before the ranks start.
start_follower() {
  [[ -n ${SINK:-} ]] || return 0
  local traps
  traps=$(trap -p USR2 ALRM)
  # Ignore these signals until follow_run handles them.
  trap '' USR2 ALRM
  follow_run $$ &
  MPZERO_FOLLOWER=$!
  trap - USR2 ALRM
  eval "$traps"
}

# stop_follower SECONDS: forwards the remaining steps for at most this many seconds. Must be called after the ranks have ended.
stop_follower() {
  local attempt
  [[ -n $MPZERO_FOLLOWER ]] || return 0
  for ((attempt = 0; attempt < 5 * $1; ++attempt)); do
    kill -USR2 "$MPZERO_FOLLOWER" 2>/dev/null || break
    sleep 0.2
  done
  if kill -0 "$MPZERO_FOLLOWER" 2>/dev/null; then
    # Warn before follow_run reports the exit status.
    warn "SINK=$SINK: app/follow.py was still forwarding steps $(counted "$1" second) after the run ended; stopping it."
    kill -ALRM "$MPZERO_FOLLOWER" 2>/dev/null || true
  fi
  wait "$MPZERO_FOLLOWER" 2>/dev/null || true
  MPZERO_FOLLOWER=""
}

# follow_run PID: follows the run while that process exists. Ignores the signals that end the ranks. Ends on SIGUSR2 after a last pass, or
# on SIGALRM immediately.
follow_run() {
  local child="" code=0
  trap '' INT TERM HUP USR1 QUIT
  trap '[[ -z $child ]] || kill -USR2 "$child" 2>/dev/null || true' USR2
  trap '[[ -z $child ]] || kill -KILL "$child" 2>/dev/null || true' ALRM
  # Ignore SIGUSR2 until Python handles it.
  (trap - ALRM && trap '' USR2 && follow --wait --pid "$1") &
  child=$!
  # Without the line that bash prints for a child that a signal has ended.
  wait_for_child "$child" 2>/dev/null || code=$?
  ((code == 0)) || warn "SINK=$SINK: app/follow.py exited with status $code; the run is not affected. To forward the remaining steps later, run $(follow_command)."
}

# follow_command: the equivalent command for the user.
follow_command() {
  printf "'%s %s %s --once'\n" "$(command_path "$MPZERO_VENV/bin/python")" "$(command_path "$MPZERO_ROOT/app/follow.py")" \
    "$(quoted_words "${MPZERO_FOLLOW_ARGUMENTS[@]}")"
}
