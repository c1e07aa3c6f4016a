# shellcheck shell=bash
# What a job asks Slurm's controller, which may be busy, restarting or down for a moment.

# Messages of Slurm's commands when the controller is down, restarts or is too busy. ("Unexpected message" is scontrol requeue's and
# scontrol update's.)
readonly MPZERO_NO_ANSWER="Unable to contact|timed out|[Ss]ocket|Connection|connection|Communication|communication|Unexpected message|temporarily"

# retry_seconds: how long to wait for a controller that does not answer.
retry_seconds() { if [[ ${MPZERO_RETRY_SECONDS:-} =~ ^[0-9]{1,3}$ ]]; then echo "$((10#$MPZERO_RETRY_SECONDS))"; else echo 3; fi; }

# ask_slurm COMMAND...: what a command of Slurm prints, and its exit status; asked again while the controller does not answer.
ask_slurm() {
  local attempt code errors
  for ((attempt = 1; attempt <= 10; ++attempt)); do
    ((attempt == 1)) || sleep "$(retry_seconds)"
    code=0
    { errors=$("$@" 2>&1 >&4) || code=$?; } 4>&1
    if ((code == 0)) || [[ ! $errors =~ $MPZERO_NO_ANSWER ]]; then break; fi
  done
  [[ -z $errors ]] || printf '%s\n' "$errors" >&2
  return "$code"
}

# show_job: what Slurm says of this job; nothing where it does not answer.
show_job() { ask_slurm scontrol show job "$SLURM_JOB_ID" 2>/dev/null || true; }

# seconds_left: until this job's time is up; fails where it has no limit, or Slurm does not answer.
seconds_left() {
  local end
  end=$(SLURM_TIME_FORMAT=standard ask_slurm squeue --noheader --jobs="$SLURM_JOB_ID" --format=%e 2>/dev/null) || return
  end=$(date --date="$end" +%s 2>/dev/null) || return
  echo $((end - $(date +%s)))
}
