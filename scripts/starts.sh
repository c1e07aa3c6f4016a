# shellcheck shell=bash
# The starts of a Kubernetes job. scripts/requeue/starts.py counts those that saved nothing, in CHECKPOINT_DIR/starts.JOB.txt.

MPZERO_CHECKPOINT_BEFORE="" # saved_state when this start began; empty: it has not

starts_file() { printf '%s/starts.%s.txt\n' "$CHECKPOINT_DIR" "$(printf %s "$MPZERO_JOB" | tr -c 'A-Za-z0-9._-' _ | head -c 100)"; }

# begin_start: counts this start. A job that began with --overwrite or --resume_from_checkpoint resumes from its own checkpoint once it has
# saved one.
begin_start() {
  local -a more=()
  MPZERO_CHECKPOINT_BEFORE=$(saved_state)
  if [[ -z $MPZERO_JOB ]]; then
    warn "MPZERO_JOB is not set: starts that save nothing are not counted, and --overwrite counts for each start. The runtime mpzero sets it to the JobSet's uid."
    return
  fi
  if gives_any resume_from_checkpoint || has_switch overwrite; then more=(--begins_anew); fi
  ask_requeue "$MPZERO_VENV/bin/python" pod "--record=$(starts_file)" "--newest=$MPZERO_CHECKPOINT_BEFORE" "--max_restarts=$MAX_RESTARTS" "${more[@]}" ||
    die "scripts/requeue failed (see above), so this start is not counted; run the job with the image's own .venv."
}

forget_starts() { [[ -z $MPZERO_JOB ]] || rm -f -- "$(starts_file)"; }

# has_saved: whether this start has saved.
has_saved() { [[ -n $MPZERO_CHECKPOINT_BEFORE ]] && saved_since "$MPZERO_CHECKPOINT_BEFORE"; }

# end_start STATUS: prints how the ranks ended.
end_start() {
  local next="there is no checkpoint yet, so the next start begins from scratch" tag
  if tag=$(latest_tag); then next="the next start resumes from $CHECKPOINT_DIR/$tag"; fi
  if (($1 == MPZERO_STOPPED)); then
    local saved=" before it had saved"
    if has_saved; then saved=" and has saved"; fi
    say "The run was stopped$saved; $next."
  elif [[ -n $MPZERO_STOP ]]; then
    say "This pod received SIG$MPZERO_STOP, and the ranks exited with status $1; $next."
  elif (($1 > 128)); then
    say "A rank was killed by SIG$(kill -l $(($1 - 128)) 2>/dev/null || echo "NAL $(($1 - 128))")$( (($1 != 137)) || echo "; a pod may have exceeded its memory limit ('kubectl describe pod': OOMKilled)"); $next."
  else
    say "The run failed with status $1; $next."
  fi
}

# pod_status STATUS: the pod's exit status for that of mpirun, or of an earlier step.
pod_status() {
  if (($1 == 0 || $1 == MPZERO_USER_ERROR || $1 == MPZERO_STOPPED || $1 == MPZERO_NOT_AS_ASKED)); then
    echo "$1"
  elif [[ -n $MPZERO_STOP ]]; then
    # Progress saved before the ranks were ended is kept.
    if has_saved; then echo "$MPZERO_STOPPED"; else echo 130; fi
  elif (($1 > 128)); then
    echo 1
  else
    echo "$1"
  fi
}
