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
# A job that was submitted with --resume_from_checkpoint or --overwrite begins so once: after it has saved a step it goes on from its
# own. Where a requeued one cannot tell whether it has (restarts.txt is gone, damaged or another job's) and checkpoints are there, it ends.
#
# It ends for good
#   - after MAX_RESTARTS requeues for failures, and after as many for refused hosts;
#   - when a failure follows a failure with no checkpoint in between, and no other host is to blame this time;
#   - after MAX_RESTARTS + 1 starts in a row that saved nothing, whatever ended them (a time limit that is too short, say).
# Requeues after stops do not count, as long as each run saves something.
#
# What is decided, state by state and event by event, is a table in scripts/requeue_decisions.py; this file brings the events and acts on
# the answer. The counts lie in CHECKPOINT_DIR/restarts.txt, since a requeued job keeps nothing but its number. Whatever the folder
# holds is data: no value of a file reaches this shell other than through is_answer. Slurm refuses to change the nodes of a running job;
# once requeued, it is pending, and this shell has until KillWait to exclude hosts.

readonly MPZERO_STOPPED=75       # as in base/error.hpp
readonly MPZERO_DOCTOR_MINUTES=5 # it gives up by itself before, wherever it can

MPZERO_PYTHON=""    # what runs scripts/requeue.py and scripts/reports.py, once find_python has found it
MPZERO_NO_PYTHON="" # true: that there is none was said

# find_python: sets MPZERO_PYTHON to a Python that runs here. The environment's own may be a link to what this node does not have.
find_python() {
  local candidate
  [[ -z $MPZERO_PYTHON ]] || return 0
  for candidate in "$MPZERO_VENV/bin/python" python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 8))' >/dev/null 2>&1; then
      MPZERO_PYTHON=$candidate
      return
    fi
  done
  return 1
}

# is_answer TEXT: whether this is an answer of scripts/requeue.py, to the letter.
is_answer() {
  local LC_ALL=C line last=""
  while IFS= read -r line; do
    [[ -z $last ]] || return 1
    [[ $line =~ ^(say|warn)\ [^[:cntrl:]]+$ || $line =~ ^exclude\ [A-Za-z0-9][A-Za-z0-9._-]*$ ]] || last=$line
  done <<<"$1"
  [[ $last =~ ^go_on\ (own|asked)$ || $last =~ ^finish\ [0-9]{1,3}$ || $last =~ ^requeue\ [0-9]{1,3}\ [^[:cntrl:]]+$ ]]
}

# decide EVENT FACT...: asks scripts/requeue.py and acts on its answer. Returns where the run begins, else not.
decide() {
  local answer="" line
  local -a arguments=("$1" "--folder=$CHECKPOINT_DIR" "--job=$SLURM_JOB_ID" "--restart=${SLURM_RESTART_COUNT:-0}"
    "--max_restarts=$MAX_RESTARTS" "${@:2}")
  if ! find_python || ! answer=$("$MPZERO_PYTHON" "$MPZERO_ROOT/scripts/requeue.py" "${arguments[@]}") || ! is_answer "$answer"; then
    decide_without_answer "$@"
    return
  fi
  local -a excluded=()
  while IFS= read -r line; do
    case $line in
      say\ *) say "${line#* }" ;;
      warn\ *) warn "${line#* }" ;;
      exclude\ *) excluded+=("${line#* }") ;;
      finish\ *) exit "${line#* }" ;;
      requeue\ *)
        line=${line#* }
        requeue "${line%% *}" "${line#* }" "${excluded[@]}"
        ;;
      "go_on own")
        drop_flag resume_from_checkpoint
        drop_switch overwrite
        ;;
    esac
  done <<<"$answer"
}

# decide_without_answer EVENT FACT...: the safe way where there is no Python: only Slurm counts the starts then, whatever ended them.
decide_without_answer() {
  local event=$1 fact status=0 reason="" starts=0
  shift
  for fact in "$@"; do
    case $fact in
      --status=*) status=${fact#*=} ;;
      --reason=*) reason=${fact#*=} ;;
    esac
  done
  if [[ ${SLURM_RESTART_COUNT:-} =~ ^[0-9]{1,9}$ ]]; then starts=$((10#$SLURM_RESTART_COUNT)); fi
  no_python
  if [[ $event == begun ]]; then
    if ((starts > 0)) && { flag_value resume_from_checkpoint >/dev/null || has_switch overwrite; }; then
      warn "Whether this job has saved since it began with --resume_from_checkpoint or --overwrite is not known, and beginning so again could undo it: the job ends. 'sbatch train.sbatch' without these flags goes on from the last checkpoint, and with them begins so again."
      exit 1
    fi
    return
  fi
  ((status != MPZERO_USER_ERROR)) || exit "$status"
  if ((status == MPZERO_NO_STEP)); then
    warn "Slurm did not create the step of the ranks, and srun says why above: the job is not requeued."
    exit "$MPZERO_USER_ERROR"
  fi
  [[ $* == *--stopped* || $status == "$MPZERO_STOPPED" ]] || say "The run failed with status $status${reason:+: $reason}"
  if ((starts >= MAX_RESTARTS)); then
    warn "Slurm has started this job $((starts + 1)) times, and MAX_RESTARTS is $MAX_RESTARTS: it is not requeued; 'sbatch train.sbatch' goes on from the last checkpoint."
    exit "$((status == MPZERO_STOPPED ? 1 : status))"
  fi
  requeue "$status" "Requeue $((starts + 1)) of at most $MAX_RESTARTS; the job goes on from its last checkpoint, or starts over where there is none."
}

# no_python: says once what it means that no Python runs here.
no_python() {
  [[ -z $MPZERO_NO_PYTHON ]] || return 0
  MPZERO_NO_PYTHON=true
  warn "Neither $MPZERO_VENV/bin/python nor python3 can run scripts/requeue.py on $(hostname -s): no reason is known, no host is left out, and every start counts against MAX_RESTARTS=$MAX_RESTARTS."
}

forget_restarts() { rm -f -- "$CHECKPOINT_DIR/restarts.txt" 2>/dev/null || warn "$CHECKPOINT_DIR/restarts.txt cannot be removed; remove it by hand."; }

# begin_run: this start of the job is counted, and goes on from the job's own checkpoint where it has saved one.
begin_run() {
  local folder
  local -a facts=()
  [[ -z ${SLURM_RESTART_COUNT:-} ]] || say "Restart $SLURM_RESTART_COUNT of this job, on $SLURM_JOB_NODELIST."
  if folder=$(flag_value resume_from_checkpoint); then facts=("--asked=$folder"); fi
  if has_switch overwrite; then facts+=(--overwrite); fi
  decide begun "${facts[@]}"
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
  left=$(seconds_left) && ((left <= $(positive_number_or "${GRACE_PERIOD%%.*}" 0) + 60))
}

# end_run STATUS [REASON]: mpzero or a step before it ended with this status, which is not 0. Does not return.
end_run() {
  local code=$1 reason=${2:-} line
  local -a facts=("--status=$1") words nodes=()
  if ((code != MPZERO_USER_ERROR)) && was_stopped "$code"; then
    facts+=(--stopped)
  elif ((code != MPZERO_USER_ERROR && code != MPZERO_NO_STEP)); then
    line=$(report failure "$CHECKPOINT_DIR/failure.json" "$SLURM_JOB_ID" "${SLURM_RESTART_COUNT:-0}")
    if [[ -n $line ]]; then
      IFS=$'\t' read -r -a words <<<"$line"
      reason=${words[-1]}
      mapfile -t nodes < <(nodes_of_hosts "${words[@]:0:${#words[@]}-1}")
    fi
  fi
  decide ended "${facts[@]}" "--reason=$reason" "${nodes[@]/#/--node=}"
}

end_with() { end_run "$@"; }

# forget_doctor: removes what an earlier doctor reported.
forget_doctor() {
  rm -f -- "$CHECKPOINT_DIR"/doctor.json* 2>/dev/null ||
    warn "$CHECKPOINT_DIR/doctor.json* cannot be removed, so that an old report may be taken for that of this start; remove it by hand."
}

# refuse_hosts STATUS: `mpzero doctor` ended with this status. Does not return.
refuse_hosts() {
  local code=$1 host message
  local -a refused=() nodes
  # Ended by a signal, it has refused nobody.
  if ((code == MPZERO_USER_ERROR)) || was_stopped "$code"; then end_run "$code"; fi
  while IFS=$'\t' read -r host message; do
    warn "$host is refused: $message"
    refused+=("$host")
  done < <(report doctor "$CHECKPOINT_DIR/doctor.json")
  # Without a report it was not a host's state that broke but the start of the ranks.
  ((${#refused[@]} > 0)) || end_run "$code" "$(doctors_silence "$code")"
  mapfile -t nodes < <(nodes_of_hosts "${refused[@]}")
  decide refused "--status=$code" "${nodes[@]/#/--node=}"
}

# doctors_silence STATUS: why no host is refused although `mpzero doctor` ended with this status.
doctors_silence() {
  local took="ended"
  (($1 != MPZERO_TOO_LONG)) || took="was still running after $MPZERO_DOCTOR_MINUTES minutes"
  echo "mpzero doctor $took, and no report came from any of $SLURM_JOB_NODELIST that names a host to leave out"
}

# report KIND FILE...: what scripts/reports.py makes of a report; nothing where no Python runs on this node.
report() { ! find_python || "$MPZERO_PYTHON" "$MPZERO_ROOT/scripts/reports.py" "$@" || true; }

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
  if [[ -z $record ]] || ! least=$(ask_slurm squeue --noheader --jobs="$SLURM_JOB_ID" --format=%D) || [[ ! $least =~ ^[0-9]{1,9}$ ]] ||
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
  elif ((left < 10#$least)); then
    warn "$* should be left out, but only $left other nodes of partition $SLURM_JOB_PARTITION are there for a job of $least: it may start there again. More nodes, or 'sbatch --nodes=1-$least', would let it."
  elif ask_slurm scontrol update "JobId=$SLURM_JOB_ID" "ExcNodeList=$nodes"; then
    say "Left out from now on: $nodes."
  else
    warn "Slurm did not exclude $nodes; the job may start there again."
  fi
}
