# shellcheck shell=bash
# The starts of a Kubernetes job. scripts/requeue/starts.py counts starts that saved no checkpoint, in CHECKPOINT_DIR/starts.JOB.txt.

MPZERO_CHECKPOINT_BEFORE="" # saved_state at the beginning of this start; empty: not started

starts_file() { printf '%s/starts.%s.txt\n' "$CHECKPOINT_DIR" "$(printf %s "$MPZERO_JOB" | tr -c 'A-Za-z0-9._-' _ | head -c 100)"; }

# begin_start: counts this start. Drops --overwrite and --resume_from_checkpoint if the job has saved a checkpoint, from which it then
# resumes.
begin_start() {
  local -a more=()
  MPZERO_CHECKPOINT_BEFORE=$(saved_state)
  if [[ -z $MPZERO_JOB ]]; then
    warn "MPZERO_JOB is not set: starts that save no checkpoint are not counted, and --overwrite applies to each start. The mpzero runtime sets MPZERO_JOB to the JobSet's uid."
    return
  fi
  if gives_any resume_from_checkpoint || has_switch overwrite; then more=(--begins_anew); fi
  ask_requeue "$MPZERO_VENV/bin/python" pod "--record=$(starts_file)" "--newest=$MPZERO_CHECKPOINT_BEFORE" "--max_restarts=$MAX_RESTARTS" "${more[@]}" ||
    die "scripts/requeue failed (see above), so this start is not counted; run the job with the image's own .venv."
}

forget_starts() { [[ -z $MPZERO_JOB ]] || rm -f -- "$(starts_file)"; }

# has_saved: succeeds if this start has saved a checkpoint.
has_saved() { [[ -n $MPZERO_CHECKPOINT_BEFORE ]] && saved_since "$MPZERO_CHECKPOINT_BEFORE"; }

# end_start STATUS: prints the outcome of the run.
end_start() {
  local next="no checkpoint exists yet, so the next start begins from scratch" tag
  if tag=$(latest_tag); then next="the next start resumes from $CHECKPOINT_DIR/$tag"; fi
  if (($1 == MPZERO_STOPPED)); then
    local saved=" before it saved a checkpoint"
    if has_saved; then saved=" and has saved a checkpoint"; fi
    say "The run was stopped$saved; $next."
  elif [[ -n $MPZERO_STOP ]]; then
    say "This pod received SIG$MPZERO_STOP, and the ranks exited with status $1; $next."
  elif (($1 > 128)); then
    say "A rank was killed by SIG$(kill -l $(($1 - 128)) 2>/dev/null || echo "NAL $(($1 - 128))")$( (($1 != 137)) || echo "; a pod may have exceeded its memory limit ('kubectl describe pod': OOMKilled)"); $next."
  else
    say "The run failed with status $1; $next."
  fi
}

# pod_status STATUS: the pod's exit status, given the exit status of mpirun or of an earlier step.
pod_status() {
  if (($1 == 0 || $1 == MPZERO_USER_ERROR || $1 == MPZERO_STOPPED || $1 == MPZERO_NOT_AS_ASKED)); then
    echo "$1"
  elif [[ -n $MPZERO_STOP ]]; then
    # Report a normal stop if this start has saved progress.
    if has_saved; then echo "$MPZERO_STOPPED"; else echo 130; fi
  elif (($1 > 128)); then
    echo 1
  else
    echo "$1"
  fi
}
