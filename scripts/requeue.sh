# shellcheck shell=bash
# Whether a job of Slurm is put back into the queue when its run ended, and on which nodes it may start again.
#
#   exit status of mpzero                                    what becomes of the job
#   0   finished                                             it ends
#   2   the user's mistake                                   it ends: another try would fail alike
#   75  stopped by Slurm, saved                              requeued
#   other, after a stop by Slurm                             requeued; goes on from the checkpoint before
#   other: a rank was lost, stuck or failed                  requeued without the hosts that the report blames
#   `mpzero doctor` refuses a host before the run starts,    requeued without it
#   or hangs on it
#   125 Slurm did not create the ranks' step, three times    it ends: no rank ran, no host is to blame
#
# 138 and 143, SIGUSR1 and SIGTERM, are stops where this shell got a signal or Slurm's record of the job says that it wants the nodes;
# whatever else ends ranks with a signal is a failure.
#
# A job that was submitted with --resume_from_checkpoint begins there once: after it has saved a step it goes on from its own.
#
# It ends for good
#   - after MAX_RESTARTS requeues for failures, and after as many for refused hosts;
#   - when a failure follows a failure with no checkpoint in between, and no other host is to blame this time;
#   - after MAX_RESTARTS + 1 starts in a row that saved nothing, whatever ended them (a time limit that is too short, say).
# Requeues after stops do not count, as long as each run saves something.
#
# The counts lie in CHECKPOINT_DIR/restarts.txt, since a requeued job keeps nothing but its number. Slurm refuses to change the
# nodes of a running job; once requeued, it is pending, and this shell has until KillWait to exclude hosts.

readonly MPZERO_STOPPED=75       # as in base/error.hpp
readonly MPZERO_DOCTOR_MINUTES=5 # it gives up by itself before, wherever it can

# The step of the newest complete checkpoint; 0 without one.
newest_step() {
  local tag=""
  [[ ! -f $CHECKPOINT_DIR/latest ]] || tag=$(<"$CHECKPOINT_DIR/latest")
  if [[ $tag =~ -([0-9]+)steps ]]; then echo "${BASH_REMATCH[1]}"; else echo 0; fi
}

# When the newest checkpoint was completed, to tell one from another of the same step; 0 without one.
newest_time() { stat --format=%.Y "$CHECKPOINT_DIR/latest" 2>/dev/null || echo 0; }

# first_step: the step that this start of the job goes on from, as far as names of checkpoints say it.
first_step() {
  local folder
  if ! folder=$(flag_value resume_from_checkpoint); then
    newest_step
  elif [[ $folder == none ]]; then
    echo 0
  else
    [[ ! -f $folder/latest ]] || folder=$(<"$folder/latest")
    if [[ $folder =~ -([0-9]+)steps/*$ ]]; then echo "${BASH_REMATCH[1]}"; else echo 0; fi
  fi
}

# Whether a checkpoint was saved since the start that began at STEP, when the newest one was of TIME.
has_saved_since() { [[ $(newest_time) != "$2" ]] && (($(newest_step) > $1)); }

forget_restarts() { rm -f "$CHECKPOINT_DIR/restarts.txt"; }

save_restarts() {
  local file=$CHECKPOINT_DIR/restarts.txt
  printf 'job=%s failures=%s refusals=%s barren=%s failed_before=%s blamed_before=%s open=%s step=%s time=%s saved=%s\n' "$SLURM_JOB_ID" \
    "$failures" "$refusals" "$barren" "$failed_before" "$blamed_before" "$1" "$start_step" "$start_time" "$saved" >"$file.part" && mv "$file.part" "$file"
}

# begin_run: reads what earlier starts of this job left. A start that Slurm ended itself (a node that died, a preemption without
# grace) had no chance to record its end: its record is open.
begin_run() {
  failures=0 refusals=0 barren=0 failed_before=false blamed_before="" saved=false
  local step=0 time=0 word open=false job=""
  if [[ -f $CHECKPOINT_DIR/restarts.txt ]]; then
    for word in $(<"$CHECKPOINT_DIR/restarts.txt"); do
      case $word in
        job=*) job=${word#*=} ;;
        failures=* | refusals=* | barren=* | failed_before=* | blamed_before=* | open=* | step=* | time=* | saved=*) printf -v "${word%%=*}" '%s' "${word#*=}" ;;
      esac
    done
    if [[ $job != "$SLURM_JOB_ID" ]]; then failures=0 refusals=0 barren=0 failed_before=false blamed_before="" saved=false open=false; fi
  fi
  if [[ $open == true ]]; then
    if has_saved_since "$step" "$time"; then barren=0 failed_before=false saved=true; else barren=$((barren + 1)); fi
  fi
  [[ -z ${SLURM_RESTART_COUNT:-} ]] || say "Restart $SLURM_RESTART_COUNT of this job, on $SLURM_JOB_NODELIST."
  if ((${SLURM_RESTART_COUNT:-0} > 0)) && [[ $saved == true ]]; then go_on_from_own_checkpoint; fi
  start_step=$(first_step)
  start_time=$(newest_time)
  if ((barren > MAX_RESTARTS)); then
    finish_for_good 1 "Slurm has ended this job $barren times in a row before it could save anything: it is not started again. Shorten CHECKPOINT_FREQ, or look at the nodes (sacct -j $SLURM_JOB_ID)."
  fi
  save_restarts true
}

# A requeued job has the flags of its first start, which would undo what it has done since.
go_on_from_own_checkpoint() {
  local folder
  folder=$(flag_value resume_from_checkpoint) || return 0
  drop_flag resume_from_checkpoint
  say "This job has saved since it began with --resume_from_checkpoint $folder, which is left out: $(what_stays "$(newest_step)")."
}

# was_stopped STATUS: whether a run that ended with it was asked to end, rather than broken.
was_stopped() {
  if (($1 == MPZERO_STOPPED)) || [[ -n $MPZERO_STOP ]]; then return 0; fi
  # Ranks end by the signal itself before their first step. This shell is not told of a preemption that leaves them time, nor of
  # --signal without B:, and Slurm creates no step for a job that it is ending.
  (($1 == 138 || $1 == 143 || $1 == MPZERO_NO_STEP)) && slurm_wants_the_nodes
}

slurm_wants_the_nodes() {
  local record left
  record=$(show_job)
  [[ -n $record ]] || return 1
  [[ $record == *JobState=RUNNING* && ! $record =~ PreemptTime=[0-9] ]] || return 0
  # Slurm's warning comes up to a minute earlier than asked for.
  left=$(seconds_left) && ((left <= ${GRACE_PERIOD%%.*} + 60))
}

# end_run STATUS [REASON]: mpzero or a step before it ended with this status, which is not 0. Does not return.
end_run() {
  local code=$1 reason=${2:-} progress=false step
  step=$(newest_step)
  ((code != 2)) || finish_for_good 2
  if has_saved_since "$start_step" "$start_time"; then progress=true saved=true barren=0; else barren=$((barren + 1)); fi
  if was_stopped "$code"; then
    failed_before=false
    ((barren <= MAX_RESTARTS)) ||
      finish_for_good 1 "The job was stopped $barren times in a row before it could save anything: it is not requeued. Give it more time (--time), or save more often (CHECKPOINT_FREQ)."
    requeue "$code" "The run was stopped; $(what_stays "$step")."
  fi
  ((code != MPZERO_NO_STEP)) ||
    finish_for_good "$MPZERO_USER_ERROR" "Slurm did not create the step of the ranks, and srun says why above: no rank has run, so that no host is to blame, and the job is not requeued; mend what srun names, then 'sbatch train.sbatch' again."
  local line host
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

# forget_doctor: removes what an earlier doctor reported.
forget_doctor() { rm -f "$CHECKPOINT_DIR"/doctor.json*; }

# refuse_hosts STATUS: `mpzero doctor` ended with this status. Does not return.
refuse_hosts() {
  local code=$1 host message
  local -a refused=()
  # Ended by a signal, it has refused nobody.
  if ((code == 2)) || was_stopped "$code"; then end_run "$code"; fi
  while IFS=$'\t' read -r host message; do
    warn "$host is refused: $message"
    refused+=("$host")
  done < <(report doctor "$CHECKPOINT_DIR/doctor.json")
  # Without a report it was not a host's state that broke but the start of the ranks.
  ((${#refused[@]} > 0)) || end_run "$code" "$(doctors_silence "$code")"
  refusals=$((refusals + 1))
  ((refusals <= MAX_RESTARTS)) ||
    finish_for_good 1 "Hosts were refused $refusals times, and MAX_RESTARTS is $MAX_RESTARTS: the job is not requeued. 'CHECK_NODES=false sbatch train.sbatch' trains all the same."
  mapfile -t refused < <(nodes_of_hosts "${refused[@]}")
  requeue 1 "Requeue $refusals of at most $MAX_RESTARTS for refused hosts." "${refused[@]}"
}

# doctors_silence STATUS: why no host is refused although `mpzero doctor` ended with this status.
doctors_silence() {
  local took="ended"
  (($1 != MPZERO_TOO_LONG)) || took="was still running after $MPZERO_DOCTOR_MINUTES minutes"
  echo "mpzero doctor $took, and no report came from any of $SLURM_JOB_NODELIST that names a host to leave out"
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

# report KIND FILE...: what scripts/reports.py makes of a report; nothing where no Python runs on this node.
report() {
  local python lines
  for python in "$MPZERO_VENV/bin/python" python3; do
    if lines=$("$python" "$MPZERO_ROOT/scripts/reports.py" "$@" 2>/dev/null); then
      [[ -z $lines ]] || printf '%s\n' "$lines"
      return 0
    fi
  done
  warn "Neither $MPZERO_VENV/bin/python nor python3 can read $2 on $(hostname -s): no reason is known, and no host is left out."
}

# nodes_of_hosts HOST...: Slurm's names of the job's nodes that these host names mean, one a line. Where Slurm does not answer, its
# nodes are taken to be called as their hosts.
nodes_of_hosts() {
  local record name host wanted
  record=$(ask_slurm scontrol show node "$SLURM_JOB_NODELIST" --oneliner 2>/dev/null) || record=""
  while read -r name host; do
    for wanted in "$@"; do
      if [[ ${wanted%%.*} == "${name%%.*}" || ${wanted%%.*} == "${host%%.*}" ]]; then
        printf '%s\n' "$name"
        break
      fi
    done
  done < <(if [[ -n $record ]]; then
    sed -n 's/^NodeName=\([^ ]*\) .*NodeHostName=\([^ ]*\).*/\1 \2/p' <<<"$record"
  else
    scontrol show hostnames "$SLURM_JOB_NODELIST"
  fi)
}

# requeue STATUS WHY NODE...: puts the job back into the queue, without these nodes. Does not return.
requeue() {
  local code=$1 why=$2 answer record
  shift 2
  save_restarts false
  # A job that was cancelled, preempted to its end or that ran out of time is being ended by Slurm: what Slurm decided holds. Where
  # Slurm does not say, it is asked to requeue the job all the same.
  record=$(show_job)
  if [[ -n $record && $record != *JobState=RUNNING* ]]; then
    say "$why Slurm is ending this job: it is left to Slurm whether it starts again."
    exit "$code"
  fi
  if (($# == 0)) && slurm_requeues_it "$record"; then
    say "$why Slurm puts it back into the queue when it has ended."
    exit "$code"
  fi
  say "$why"
  trap '' TERM USR1 INT HUP CONT
  # "Pending": an earlier attempt, the answer to which was lost, has put it there.
  if ! answer=$(ask_slurm scontrol requeue "$SLURM_JOB_ID" 2>&1) && [[ $answer != *"pending execution"* ]]; then
    warn "Slurm did not requeue the job (${answer//$'\n'/ }); 'sbatch train.sbatch' goes on from the last checkpoint."
    exit "$code"
  fi
  (($# == 0)) || exclude_nodes "$@"
  exit "$code"
}

# slurm_requeues_it RECORD: whether Slurm requeues this job as soon as it ends. Slurm 24.05 and later do so with a job that got time to
# end for a preemption; asked for a requeue as well, they would do it twice: now, and again when the job has finished.
slurm_requeues_it() {
  local configuration partition
  [[ $1 =~ PreemptTime=[0-9] && $1 == *\ Requeue=1* ]] || return 1
  configuration=$(ask_slurm scontrol show config 2>/dev/null) || return 1
  [[ $configuration =~ SLURM_VERSION\ *=\ *([0-9]+)\.([0-9]+) ]] || return 1
  ((10#${BASH_REMATCH[1]} * 100 + 10#${BASH_REMATCH[2]} >= 2405)) || return 1
  # A QOS has a mode of its own, which only Slurm's accounting tells: there the job may start once more after its end.
  [[ $configuration =~ PreemptType\ *=\ *preempt/partition_prio ]] || return 1
  partition=$(ask_slurm scontrol show partition "$SLURM_JOB_PARTITION" --oneliner 2>/dev/null) || return 1
  [[ $partition =~ PreemptMode=[A-Z,]*REQUEUE ]]
}

# exclude_nodes NODE...: keeps the requeued job off these nodes, where enough others are left.
exclude_nodes() {
  local record excluded required least all left nodes
  nodes=$(IFS=,; echo "$*")
  record=$(show_job)
  if [[ -z $record ]] || ! least=$(ask_slurm squeue --noheader --jobs="$SLURM_JOB_ID" --format=%D) ||
    ! all=$(ask_slurm sinfo --noheader --Node --partition="$SLURM_JOB_PARTITION" --format=%N); then
    warn "$* should be left out, but Slurm does not answer; the job may start there again."
    return
  fi
  excluded=$(sed -n 's/.* ExcNodeList=\([^ ]*\).*/\1/p' <<<"$record")
  required=$(sed -n 's/.*ReqNodeList=\([^ ]*\).*/\1/p' <<<"$record")
  [[ $excluded == "(null)" || -z $excluded ]] || nodes=$excluded,$nodes
  left=$(comm -23 <(sort -u <<<"$all") <(scontrol show hostnames "$nodes" | sort -u) | wc -l)
  # Slurm takes an exclusion that can never be met, and the job then waits for ever.
  if [[ $required != "(null)" ]] && [[ -n $(comm -12 <(scontrol show hostnames "$required" | sort) <(scontrol show hostnames "$nodes" | sort)) ]]; then
    warn "$* should be left out, but the job asks for $required (--nodelist): it starts there again."
  elif ((left < least)); then
    warn "$* should be left out, but only $left other nodes of partition $SLURM_JOB_PARTITION are there for a job of $least: it may start there again. More nodes, or 'sbatch --nodes=1-$least', would let it."
  elif ask_slurm scontrol update "JobId=$SLURM_JOB_ID" "ExcNodeList=$nodes"; then
    say "Left out from now on: $nodes."
  else
    warn "Slurm did not exclude $nodes; the job may start there again."
  fi
}
