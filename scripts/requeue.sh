# shellcheck shell=bash
# Whether a job of Slurm is put back into the queue when its run ended, and on which nodes it may start again.
#
#   exit status of mpzero                                    what becomes of the job
#   0   finished                                             it ends
#   2   the user's mistake                                   it ends: another try would fail alike
#   75  stopped by Slurm, saved                              requeued
#   other, after a stop by Slurm                             requeued; goes on from the checkpoint before
#   other: a rank was lost, stuck or failed                  requeued without the hosts that the report blames
#   `mpzero doctor` refuses a host before the run starts     requeued without it
#
# It ends for good
#   - after MAX_RESTARTS requeues for failures, and after as many for refused hosts;
#   - when a failure follows a failure with no checkpoint in between, and no other host is to blame this time;
#   - after MAX_RESTARTS + 1 starts in a row that saved nothing, whatever ended them (a time limit that is too short, say).
# Requeues after stops do not count, as long as each run saves something.
#
# The counts lie in CHECKPOINT_DIR/restarts.txt, since a requeued job keeps nothing but its number. Slurm refuses to change the
# nodes of a running job; once requeued, it is pending, and this shell has until KillWait to exclude hosts.

readonly MPZERO_STOPPED=75 # as in base/error.hpp

# The step of the newest complete checkpoint; 0 without one.
newest_step() {
  local tag=""
  [[ ! -f $CHECKPOINT_DIR/latest ]] || tag=$(<"$CHECKPOINT_DIR/latest")
  if [[ $tag =~ -([0-9]+)steps ]]; then echo "${BASH_REMATCH[1]}"; else echo 0; fi
}

forget_restarts() { rm -f "$CHECKPOINT_DIR/restarts.txt"; }

save_restarts() {
  local file=$CHECKPOINT_DIR/restarts.txt
  printf 'job=%s failures=%s refusals=%s barren=%s failed_before=%s blamed_before=%s open=%s step=%s\n' "$SLURM_JOB_ID" "$failures" "$refusals" \
    "$barren" "$failed_before" "$blamed_before" "$1" "$start_step" >"$file.part" && mv "$file.part" "$file"
}

# begin_run: reads what earlier starts of this job left. A start that Slurm ended itself (a node that died, a preemption without
# grace) had no chance to record its end: its record is open.
begin_run() {
  failures=0 refusals=0 barren=0 failed_before=false blamed_before=""
  local step word open=false job=""
  start_step=$(newest_step)
  if [[ -f $CHECKPOINT_DIR/restarts.txt ]]; then
    for word in $(<"$CHECKPOINT_DIR/restarts.txt"); do
      case $word in
        job=*) job=${word#*=} ;;
        failures=* | refusals=* | barren=* | failed_before=* | blamed_before=* | open=* | step=*) printf -v "${word%%=*}" '%s' "${word#*=}" ;;
      esac
    done
    if [[ $job != "$SLURM_JOB_ID" ]]; then failures=0 refusals=0 barren=0 failed_before=false blamed_before="" open=false; fi
  fi
  if [[ $open == true ]]; then
    if ((start_step > step)); then barren=0 failed_before=false; else barren=$((barren + 1)); fi
    if ((barren > MAX_RESTARTS)); then
      save_restarts false
      warn "Slurm has ended this job $barren times in a row before it could save anything: it is not started again. Shorten CHECKPOINT_FREQ, or look at the nodes (sacct -j $SLURM_JOB_ID)."
      exit 1
    fi
  fi
  [[ -z ${SLURM_RESTART_COUNT:-} ]] || say "Restart $SLURM_RESTART_COUNT of this job, on $SLURM_JOB_NODELIST."
  save_restarts true
}

# end_run STATUS: mpzero or a step before it ended with this status, which is not 0. Does not return.
end_run() {
  local code=$1 progress=true step
  step=$(newest_step)
  ((step > start_step)) || progress=false
  ((code != 2)) || finish_for_good 2
  if [[ $progress == true ]]; then barren=0; else barren=$((barren + 1)); fi
  # 138 and 143: SIGUSR1 or SIGTERM came before the first step.
  if ((code == MPZERO_STOPPED || code == 138 || code == 143)) || [[ -n $MPZERO_STOP ]]; then
    failed_before=false
    ((barren <= MAX_RESTARTS)) ||
      finish_for_good 1 "The job was stopped $barren times in a row before it could save anything: it is not requeued. Give it more time (--time), or save more often (CHECKPOINT_FREQ)."
    requeue "$code" "The run was stopped; $(what_stays "$step")."
  fi
  local line reason="" host
  local -a blamed=() words
  local another=false
  line=$(report failure "$CHECKPOINT_DIR/failure.json" "$SLURM_JOB_ID" "${SLURM_RESTART_COUNT:-0}")
  if [[ -n $line ]]; then
    IFS=$'\t' read -r -a words <<<"$line"
    reason=${words[-1]}
    mapfile -t blamed < <(nodes_of_hosts "${words[@]:0:${#words[@]}-1}")
  fi
  for host in "${blamed[@]}"; do
    [[ ,$blamed_before, == *,"$host",* ]] || another=true
    blamed_before+=${blamed_before:+,}$host
  done
  # mpzero itself has told its reason; where it could not, its exit status is all there is.
  say "The run failed with status $code${reason:+: $reason}"
  failures=$((failures + 1))
  ((failures <= MAX_RESTARTS)) ||
    finish_for_good "$code" "That was failure $failures of this job, and MAX_RESTARTS is $MAX_RESTARTS: it is not requeued; $(what_stays "$step")."
  if [[ $failed_before == true && $progress == false && $another == false ]]; then
    finish_for_good "$code" "It failed twice with no checkpoint in between, and no other host is to blame this time: it is not requeued; $(what_stays "$step")."
  fi
  failed_before=true
  requeue "$code" "Requeue $failures of at most $MAX_RESTARTS after failures; $(what_stays "$step")." "${blamed[@]}"
}

end_with() { end_run "$@"; }

# refuse_hosts STATUS: `mpzero doctor` ended with this status. Does not return.
refuse_hosts() {
  local line host message
  local -a refused=()
  ((${#MPZERO_STOP} == 0 && $1 != 2)) || end_run "$1"
  while IFS=$'\t' read -r host message; do
    warn "$host is refused: $message"
    refused+=("$host")
  done < <(report doctor "$CHECKPOINT_DIR/doctor.json")
  # Without a report it was not a host's state that broke but the start of the ranks.
  ((${#refused[@]} > 0)) || end_run "$1"
  refusals=$((refusals + 1))
  ((refusals <= MAX_RESTARTS)) ||
    finish_for_good 1 "Hosts were refused $refusals times, and MAX_RESTARTS is $MAX_RESTARTS: the job is not requeued. 'CHECK_NODES=false sbatch train.sbatch' trains all the same."
  mapfile -t refused < <(nodes_of_hosts "${refused[@]}")
  requeue 1 "Requeue $refusals of at most $MAX_RESTARTS for refused hosts." "${refused[@]}"
}

what_stays() {
  if (($1 > 0)); then
    echo "the same job goes on from step $1, $CHECKPOINT_DIR/$(<"$CHECKPOINT_DIR/latest")"
  else
    echo "there is no checkpoint yet, so that it starts over"
  fi
}

# finish_for_good STATUS [SENTENCE]
finish_for_good() {
  [[ -z ${2:-} ]] || warn "$2"
  save_restarts false
  exit "$1"
}

report() { "$MPZERO_VENV/bin/python" "$MPZERO_ROOT/scripts/reports.py" "$@"; }

# nodes_of_hosts HOST...: Slurm's names of the job's nodes that these host names mean, one a line.
nodes_of_hosts() {
  local name host wanted
  while read -r name host; do
    for wanted in "$@"; do
      if [[ ${wanted%%.*} == "${name%%.*}" || ${wanted%%.*} == "${host%%.*}" ]]; then
        printf '%s\n' "$name"
        break
      fi
    done
  done < <(scontrol show node "$SLURM_JOB_NODELIST" --oneliner | sed -n 's/^NodeName=\([^ ]*\) .*NodeHostName=\([^ ]*\).*/\1 \2/p')
}

# requeue STATUS WHY NODE...: puts the job back into the queue, without these nodes. Does not return.
requeue() {
  local code=$1 why=$2 answer
  shift 2
  save_restarts false
  # A job that was cancelled, preempted to its end or that ran out of time is being ended by Slurm: what Slurm decided holds.
  if [[ $(scontrol show job "$SLURM_JOB_ID" 2>/dev/null) != *JobState=RUNNING* ]]; then
    say "$why Slurm is ending this job: it is left to Slurm whether it starts again."
    exit "$code"
  fi
  say "$why"
  trap '' TERM USR1 INT HUP CONT
  if ! answer=$(scontrol requeue "$SLURM_JOB_ID" 2>&1); then
    warn "Slurm did not requeue the job (${answer//$'\n'/ }); 'sbatch train.sbatch' goes on from the last checkpoint."
    exit "$code"
  fi
  (($# == 0)) || exclude_nodes "$@"
  exit "$code"
}

# exclude_nodes NODE...: keeps the requeued job off these nodes, where enough others are left.
exclude_nodes() {
  local record excluded required least left nodes
  nodes=$(IFS=,; echo "$*")
  record=$(scontrol show job "$SLURM_JOB_ID")
  excluded=$(sed -n 's/.* ExcNodeList=\([^ ]*\).*/\1/p' <<<"$record")
  required=$(sed -n 's/.*ReqNodeList=\([^ ]*\).*/\1/p' <<<"$record")
  [[ $excluded == "(null)" || -z $excluded ]] || nodes=$excluded,$nodes
  least=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%D)
  left=$(comm -23 <(sinfo --noheader --Node --partition="$SLURM_JOB_PARTITION" --format=%N | sort -u) \
    <(scontrol show hostnames "$nodes" | sort -u) | wc -l)
  # Slurm takes an exclusion that can never be met, and the job then waits for ever.
  if [[ $required != "(null)" ]] && [[ -n $(comm -12 <(scontrol show hostnames "$required" | sort) <(scontrol show hostnames "$nodes" | sort)) ]]; then
    warn "$* should be left out, but the job asks for $required (--nodelist): it starts there again."
  elif ((left < least)); then
    warn "$* should be left out, but only $left other nodes of partition $SLURM_JOB_PARTITION are there for a job of $least: it may start there again. More nodes, or 'sbatch --nodes=1-$least', would let it."
  elif scontrol update "JobId=$SLURM_JOB_ID" "ExcNodeList=$nodes"; then
    say "Left out from now on: $nodes."
  else
    warn "Slurm did not exclude $nodes; the job may start there again."
  fi
}
