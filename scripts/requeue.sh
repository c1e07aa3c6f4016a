# shellcheck shell=bash
# Whether a Slurm job is requeued when its run has ended, and which nodes are excluded.
#
#   exit status of mpzero                                    what the job does
#   0   finished                                             it ends
#   2   user error                                           it ends: another try would fail alike
#   75  stopped by Slurm, saved                              is requeued
#   other, after a stop by Slurm                             is requeued; resumes from the checkpoint before
#   other: a rank was lost, stuck or failed                  is requeued without the hosts that the report blames
#   `mpzero doctor` refuses a host before the run starts,    is requeued without it
#   or hangs on it
#   it hangs on half of the hosts in one check, or on more   is requeued with all of them, and waits
#   123 tasks cannot start on nodes that srun names          is requeued without them
#   125 Slurm did not create the ranks' step, three times    it ends: no rank ran, no host is to blame
#
# 129, 130, 138, 140 and 143 (SIGHUP, SIGINT, SIGUSR1, SIGUSR2 and SIGTERM) are stops if this shell got a signal or Slurm's record of the
# job shows that it wants the nodes; any other signal that ends ranks is a failure.
#
# A job that was submitted with --resume_from_checkpoint or --overwrite uses them once: after it has saved a step it resumes from its own
# checkpoint. If a requeued job cannot tell whether it has saved (its record is missing or damaged) and there are checkpoints, it ends.
#
# It ends for good
#   - after MAX_RESTARTS requeues for failures since the last progress, and after as many for refused hosts;
#   - when a failure follows a failure with no checkpoint in between, and no other host is to blame this time;
#   - after MAX_RESTARTS + 1 starts in a row that saved nothing, whatever ended them (a time limit that is too short, say).
# Requeues after stops do not count, as long as each run saves.
#
# The decisions are a table of standings and events in scripts/requeue/table.py. The Python program scripts/requeue collects its input,
# keeps the job's state in CHECKPOINT_DIR/restarts.JOB.txt, and sends requests to Slurm; this file starts it and performs its answer.

readonly MPZERO_STOPPED=75       # as in base/error.hpp
readonly MPZERO_DOCTOR_MINUTES=5 # it gives up by itself before, wherever it can

# find_python: prints a Python that runs scripts/requeue. The environment's own may be a link to a file that this node lacks.
find_python() {
  local candidate
  for candidate in "$MPZERO_VENV/bin/python" python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 8))' >/dev/null 2>&1; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

# decide EVENT STATUS ARGUMENT...: has scripts/requeue decide, and performs its answer: returns if the run starts, else exits.
decide() {
  local event=$1 status=$2 python
  shift 2
  set -- "--checkpoint_dir=$CHECKPOINT_DIR" "--max_restarts=$MAX_RESTARTS" "--status=$status" "$@"
  if ! python=$(find_python) || ! ask_requeue "$python" "$event" "$@"; then go_on_without_answer "$event" "$status"; fi
}

# begin_run: counts a start of the job, which resumes from the job's own checkpoint if it has saved one.
begin_run() {
  local folder
  local -a flags=()
  [[ -z ${SLURM_RESTART_COUNT:-} ]] || say "Restart $SLURM_RESTART_COUNT of this job, on $SLURM_JOB_NODELIST."
  if folder=$(flag_value resume_from_checkpoint); then flags=("--resume_from_checkpoint=$folder"); fi
  if has_switch overwrite; then flags+=(--overwrite); fi
  decide start 0 "${flags[@]}"
}

# end_run STATUS: mpzero, or a step before it, ended with this status, which is not 0. Does not return.
end_run() { decide_end end "$1"; }
end_with() { end_run "$1"; }

# refuse_hosts STATUS: `mpzero doctor` ended with this status. Does not return.
refuse_hosts() { decide_end doctor "$1" "--minutes=$MPZERO_DOCTOR_MINUTES"; }

decide_end() {
  local -a more=()
  [[ -z $MPZERO_STOP ]] || more=(--signalled)
  [[ -z $MPZERO_ASK_UNTIL ]] || more+=("--ask_until=$MPZERO_ASK_UNTIL")
  [[ -z $MPZERO_NO_TASKS_ON ]] || more+=("--no_tasks_on=$MPZERO_NO_TASKS_ON")
  # Slurm signals all processes of this job as soon as it is requeued.
  trap '' "${MPZERO_STOP_SIGNALS[@]}" CONT
  decide "$@" "--grace_period=$GRACE_PERIOD" "${more[@]}"
}

# forget_restarts: the run has finished.
forget_restarts() {
  local record
  record=$CHECKPOINT_DIR/restarts.$(slurm_job).txt
  rm -f -- "$record" 2>/dev/null || warn "$record cannot be removed; remove it by hand."
}

# forget_doctor: removes what an earlier doctor reported.
forget_doctor() {
  rm -f -- "$CHECKPOINT_DIR"/doctor.json* 2>/dev/null ||
    warn "$CHECKPOINT_DIR/doctor.json* cannot be deleted and may be mistaken for this start's report; delete it by hand."
}

# go_on_without_answer EVENT STATUS: a start continues unless it could undo saved progress; after a run, only Slurm counts the starts,
# whatever ended them, and no host is excluded.
go_on_without_answer() {
  local event=$1 status=$2 starts=0 answer
  warn "scripts/requeue failed on $(hostname -s), with $MPZERO_VENV/bin/python and with python3, or $CHECKPOINT_DIR has not responded for 5 minutes; see the messages above: no host is excluded, and every start counts against MAX_RESTARTS=$MAX_RESTARTS."
  if [[ ${SLURM_RESTART_COUNT:-} =~ ^[0-9]{1,9}$ ]]; then starts=$((10#$SLURM_RESTART_COUNT)); fi
  if [[ $event == start ]]; then
    ((starts > 0)) && { flag_value resume_from_checkpoint >/dev/null || has_switch overwrite; } || return 0
    warn "Another start with --resume_from_checkpoint or --overwrite could undo this job's progress: the job ends. 'sbatch train.sbatch' without these flags resumes from the last checkpoint."
    exit 1
  fi
  ((status != MPZERO_USER_ERROR && status != MPZERO_NO_STEP)) || exit "$MPZERO_USER_ERROR"
  if ((starts >= MAX_RESTARTS && status != MPZERO_STOPPED)); then
    warn "Slurm has started this job $((starts + 1)) times: it is not requeued; 'sbatch train.sbatch' resumes from the last checkpoint."
  else
    # A job that Slurm is ending is not requeued.
    answer=$(ask_on scontrol requeue Incomplete "$(slurm_job)" 2>&1) || [[ $answer == *"pending execution"* ]] ||
      warn "Slurm did not requeue the job (${answer//$'\n'/ }); 'sbatch train.sbatch' resumes from the last checkpoint."
  fi
  exit "$status"
}
