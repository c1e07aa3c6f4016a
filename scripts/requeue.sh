# shellcheck shell=bash
# Requeues a Slurm job after its run ends, and excludes faulty nodes.
# docs/stopping-and-failures.md lists the decisions. The Python program scripts/requeue makes them, stores the job's state in
# CHECKPOINT_DIR/restarts.JOB.txt, and sends requests to Slurm. This file starts the program and acts on its answer.

readonly MPZERO_STOPPED=75       # as in base/error.hpp
MPZERO_PYTHON_SECONDS=60         # timeout if the file system of Python does not respond
readonly MPZERO_DOCTOR_MINUTES=5 # normally, the doctor's own timeouts are shorter

# find_python: prints a Python that can run scripts/requeue. The environment's Python may be a symlink to a file that is missing on this
# node.
find_python() {
  local candidate
  for candidate in "$MPZERO_VENV/bin/python" python3; do
    # SIGKILL, because the job's shell may ignore SIGTERM.
    if timeout --foreground --signal=KILL "$MPZERO_PYTHON_SECONDS" \
      "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 8))' >/dev/null 2>&1; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

# decide EVENT STATUS ARGUMENT...: runs scripts/requeue and acts on its answer. Returns if the run starts, else exits.
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

# end_run STATUS: handles a nonzero exit status of mpzero or of an earlier step. Does not return.
end_run() { decide_end end "$1"; }
end_with() { end_run "$1"; }

# refuse_hosts STATUS: handles a nonzero exit status of `mpzero doctor`. Does not return.
refuse_hosts() { decide_end doctor "$1" "--minutes=$MPZERO_DOCTOR_MINUTES"; }

decide_end() {
  local -a more=()
  [[ -z $MPZERO_STOP ]] || more=(--signalled)
  [[ -z $MPZERO_ASK_UNTIL ]] || more+=("--ask_until=$MPZERO_ASK_UNTIL")
  [[ -z $MPZERO_NO_TASKS_ON ]] || more+=("--no_tasks_on=$MPZERO_NO_TASKS_ON")
  [[ -z $MPZERO_SRUN_SAID ]] || more+=("--srun_said=$MPZERO_SRUN_SAID")
  # Slurm signals all processes of the job as soon as it is requeued.
  trap '' "${MPZERO_STOP_SIGNALS[@]}" CONT
  decide "$@" "--grace_period=$GRACE_PERIOD" "${more[@]}"
}

# forget_restarts: removes the record of a finished job.
forget_restarts() {
  local record
  record=$CHECKPOINT_DIR/restarts.$(slurm_job).txt
  rm -f -- "$record" 2>/dev/null || warn "$record cannot be removed; remove it manually."
}

# forget_doctor: removes reports from an earlier `mpzero doctor`.
forget_doctor() {
  rm -f -- "$CHECKPOINT_DIR"/doctor.json* 2>/dev/null ||
    warn "$CHECKPOINT_DIR/doctor.json* cannot be deleted and may be mistaken for this start's report; delete it manually."
}

# go_on_without_answer EVENT STATUS: continues a start unless it could discard saved progress. After a run, uses only Slurm's number of
# starts and excludes no hosts.
go_on_without_answer() {
  local event=$1 status=$2 starts=0 answer
  warn "scripts/requeue failed on $(hostname -s) with $MPZERO_VENV/bin/python and python3, or $CHECKPOINT_DIR has not responded for 5 minutes (see above): no hosts are excluded, and every start counts against MAX_RESTARTS=$MAX_RESTARTS."
  if [[ ${SLURM_RESTART_COUNT:-} =~ ^[0-9]{1,9}$ ]]; then starts=$((10#$SLURM_RESTART_COUNT)); fi
  if [[ $event == start ]]; then
    ((starts > 0)) && { flag_value resume_from_checkpoint >/dev/null || has_switch overwrite; } || return 0
    warn "A new start with --resume_from_checkpoint or --overwrite could discard this job's progress: the job ends. 'sbatch train.sbatch' without these flags resumes from the last checkpoint."
    exit 1
  fi
  ((status != MPZERO_USER_ERROR && status != MPZERO_NO_STEP)) || exit "$MPZERO_USER_ERROR"
  if ((starts >= MAX_RESTARTS && status != MPZERO_STOPPED)); then
    warn "Slurm has started this job $((starts + 1)) times: not requeuing the job; 'sbatch train.sbatch' resumes from the last checkpoint."
  else
    # "Incomplete" does not requeue a job that Slurm is ending.
    answer=$(ask_on scontrol requeue Incomplete "$(slurm_job)" 2>&1) || [[ $answer == *"pending execution"* ]] ||
      warn "Slurm did not requeue the job (${answer//$'\n'/ }); 'sbatch train.sbatch' resumes from the last checkpoint."
  fi
  exit "$status"
}
