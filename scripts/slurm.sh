# shellcheck shell=bash
# Sends a job's requests to Slurm's controller, which may be busy, restarting or temporarily down.

# Messages of Slurm's commands if the controller is down, restarting or busy. ("Unexpected message" is from scontrol requeue and scontrol
# update.)
readonly MPZERO_NO_ANSWER="Unable to contact|timed out|[Ss]ocket|Connection|connection|Communication|communication|Unexpected message|temporarily"

# States of a job that has an allocation and is not ending. While Slurm delivers a signal, the job is SIGNALING.
readonly MPZERO_RUNNING="JobState=(RUNNING|SIGNALING|RESIZING|SUSPENDED|STOPPED|CONFIGURING)"

# retry_seconds: the delay before retrying a controller that does not respond.
retry_seconds() { if [[ ${MPZERO_RETRY_SECONDS:-} =~ ^[0-9]{1,3}$ ]]; then echo "$((10#$MPZERO_RETRY_SECONDS))"; else echo 3; fi; }

# Unix time in seconds until which essential requests to an unavailable controller are retried (remember_end); 0: the job has no time limit;
# empty: ten attempts.
MPZERO_ASK_UNTIL=""

# remember_end RECORD: sets MPZERO_ASK_UNTIL to the job's time limit minus KillWait, because the job keeps its nodes while the controller is
# unavailable.
remember_end() {
  local end configuration kill_wait=30
  MPZERO_ASK_UNTIL=0
  end=$(sed -n 's/.*[[:space:]]EndTime=\([0-9T:-]*\).*/\1/p' <<<"$1" | head -n 1)
  end=$(date --date="${end:-none}" +%s 2>/dev/null) || return 0
  configuration=$(ask_slurm scontrol show config 2>/dev/null) || true
  if [[ $configuration =~ KillWait\ *=\ *([0-9]{1,9}) ]]; then kill_wait=$((10#${BASH_REMATCH[1]})); fi
  MPZERO_ASK_UNTIL=$((end - kill_wait))
}

# ask_slurm COMMAND...: runs a Slurm command, with ten attempts if the controller does not respond.
ask_slurm() { ask_again 0 "$@"; }

# ask_on COMMAND...: like ask_slurm, but retries for as long as the job keeps its nodes.
ask_on() {
  local until=${MPZERO_ASK_UNTIL:-1}
  if ((until == 0)); then until=$(($(date +%s) + 86400)); fi
  ask_again "$until" "$@"
}

# ask_again UNTIL COMMAND...
ask_again() {
  local until=$1 attempt=0 code errors pause
  shift
  pause=$(retry_seconds)
  while :; do
    code=0
    { errors=$("$@" 2>&1 >&4) || code=$?; } 4>&1
    attempt=$((attempt + 1))
    # 141: a busy MUNGE has ended the command with SIGPIPE.
    if ((code == 0)) || [[ $code != 141 && ! $errors =~ $MPZERO_NO_ANSWER ]]; then break; fi
    if ((attempt >= 10)); then
      (($(date +%s) + pause <= until)) || break
      ((attempt > 10)) ||
        warn "Slurm does not respond to '$*'. The job keeps its nodes; retrying until $(date --date="@$until" '+%F %T')."
      if ((attempt > 10)); then pause=$((2 * pause < 30 ? 2 * pause : 30)); fi
    fi
    sleep "$pause"
  done
  [[ -z $errors ]] || printf '%s\n' "$errors" >&2
  return "$code"
}

# slurm_job: this job's id for Slurm's commands. The id of a job array, which is also the job id of one of its tasks, refers to all tasks.
slurm_job() {
  if [[ -n ${SLURM_ARRAY_JOB_ID:-} ]]; then
    printf '%s_%s\n' "$SLURM_ARRAY_JOB_ID" "$SLURM_ARRAY_TASK_ID"
  else
    printf '%s\n' "$SLURM_JOB_ID"
  fi
}

# show_job: Slurm's record of this job; empty if Slurm does not respond.
show_job() { ask_on scontrol show job "$(slurm_job)" || true; }

# seconds_left: seconds until this job's time limit; fails without a limit or a response.
seconds_left() {
  local end
  end=$(SLURM_TIME_FORMAT=standard ask_slurm squeue --noheader --jobs="$(slurm_job)" --format=%e 2>/dev/null) || return
  end=$(date --date="$end" +%s 2>/dev/null) || return
  echo $((end - $(date +%s)))
}
