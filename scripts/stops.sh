# shellcheck shell=bash
# Signals to a Slurm job while its ranks run, and the time that they get to save.
#
# Slurm sends a job's signals to different places. The warning before the time limit (--signal=B:USR1@…) reaches only the batch shell, and
# without "B:" only the steps. Preemption first sends SIGTERM only to the job's steps, then, after the partition's GraceTime, to everything.
# scancel sends SIGTERM to everything. mpzero saves and ends with status 75 on either signal, so this shell forwards signals that the ranks
# did not get, always as SIGUSR1, which both srun and mpirun forward. (SIGTERM to mpirun would kill the ranks.)

# State of the job: MPZERO_STOP is the signal that asked it to end (train.sbatch may have got one before loading this file), MPZERO_CHILD is
# the process that it waits for, MPZERO_REPEATER is repeat_stop, MPZERO_CLOCK is stop_in_time.
MPZERO_STOP=${MPZERO_STOP:-}
MPZERO_CHILD=""
MPZERO_REPEATER=""
MPZERO_CLOCK=""

# Signals by which Slurm may ask a job's shell to end (--signal=B:...), or Kubernetes a pod. Ranks, which --signal without B: reaches, too,
# save on all but the last two (app/health/stop_request.hpp).
readonly MPZERO_STOP_SIGNALS=(TERM USR1 USR2 HUP INT QUIT ALRM)

# Return value of run_interruptibly for a program that it did not start because of a stop: as if SIGUSR1 had ended it.
readonly MPZERO_ENDED_BY_SIGUSR1=138

catch_stops() {
  local signal
  for signal in "${MPZERO_STOP_SIGNALS[@]}"; do
    # shellcheck disable=SC2064 # this signal's name
    trap "pass_on $signal" "$signal"
  done
  trap stop_the_clock EXIT
}

pass_on() {
  MPZERO_STOP=$1
  stop_the_clock
  stop_child
}

# stop_child: signals the stop to the child until it ends. A single signal may be lost: a newly forked child still has this shell's
# handlers, which drop it, and srun and mpirun cannot forward it before the ranks run.
stop_child() {
  [[ -n $MPZERO_CHILD && -z $MPZERO_REPEATER ]] || return 0
  repeat_stop "$MPZERO_CHILD" &
  MPZERO_REPEATER=$!
}

# repeat_stop PID: sends SIGUSR1 to a process repeatedly, until this function's own process is ended.
repeat_stop() {
  local pause nothing
  # Nothing writes to this pipe: read waits on it without a process, which would outlive this one.
  exec {nothing}<> <(:)
  for pause in 0.02 0.05 0.1 0.2 0.5 1 2 5; do
    kill -USR1 "$1" 2>/dev/null || return 0
    read -r -t "$pause" -u "$nothing" || true
  done
  while kill -USR1 "$1" 2>/dev/null; do read -r -t 10 -u "$nothing" || true; done
}

# end_process SIGNAL PID: ends a child of this shell, or gives up after 10 seconds; repeats the signal for the same reason as stop_child.
end_process() {
  local attempt
  for ((attempt = 0; attempt < 200; ++attempt)); do
    if ! kill "-$1" "$2" 2>/dev/null; then
      wait "$2" 2>/dev/null || true
      return
    fi
    sleep 0.05
  done
}

# run_interruptibly COMMAND...: runs a program and returns its exit status; starts nothing if a stop is already requested. bash handles a
# signal only between two commands, or immediately in a wait; so it waits.
run_interruptibly() {
  local code=0
  [[ -z $MPZERO_STOP ]] || return "$MPZERO_ENDED_BY_SIGUSR1"
  "$@" &
  MPZERO_CHILD=$!
  # A signal may have arrived before the child was known.
  [[ -z $MPZERO_STOP ]] || stop_child
  wait_for_child "$MPZERO_CHILD" || code=$?
  MPZERO_CHILD=""
  [[ -z $MPZERO_REPEATER ]] || end_process TERM "$MPZERO_REPEATER"
  MPZERO_REPEATER=""
  return "$code"
}
run_long() { run_interruptibly "$@"; }

# warning_signal SCRIPT: Slurm's warning before the time limit, from SBATCH_SIGNAL or the script's own line. Slurm records no --signal of
# sbatch's command line: see stop_in_time.
warning_signal() { printf '%s\n' "${SBATCH_SIGNAL:-$(sed -n 's/^#SBATCH --signal=//p' "$1" | head -n 1)}"; }

# require_stop_signal SCRIPT: ends the script if Slurm's warning is a signal on which nothing is saved.
require_stop_signal() {
  local text name whom="mpzero's ranks" signals=" TERM USR1 USR2 HUP INT "
  text=$(warning_signal "$1")
  name=${text%%@*}
  if [[ ${name%%:*} == *B* && $name == *:* ]]; then
    signals=" ${MPZERO_STOP_SIGNALS[*]} " whom="the job's shell"
  fi
  name=${name##*:}
  name=${name^^}
  if [[ $name =~ ^[0-9]{1,2}$ ]]; then name=$(kill -l "$name" 2>/dev/null || true); fi
  [[ -z $text || $signals == *" ${name#SIG} "* ]] ||
    die "--signal=$text sends a signal on which $whom would not save; use one of$signals, as --signal=B:USR1@300 does."
}

# signal_lead SCRIPT: the seconds between the warning and the time limit.
signal_lead() {
  local text
  text=$(warning_signal "$1")
  if [[ $text =~ @([0-9]{1,9})$ ]]; then echo "$((10#${BASH_REMATCH[1]}))"; else echo 60; fi
}

# stop_grace SCRIPT: the seconds in which a stopped run must save: the signal's lead, or the grace time of a preemption if this partition's
# jobs can be preempted and it is shorter. (Ignores the GraceTime of a QOS: set GRACE_PERIOD.)
stop_grace() {
  local lead configuration partition seconds=0
  lead=$(signal_lead "$1")
  configuration=$(ask_slurm scontrol show config 2>/dev/null) || true
  partition=$(ask_slurm scontrol show partition "${SLURM_JOB_PARTITION:-}" --oneliner 2>/dev/null) || true
  if [[ $configuration =~ PreemptType\ *=\ *preempt/(partition_prio|qos) && $partition =~ PreemptMode=[A-Z,]*(REQUEUE|CANCEL) ]]; then
    [[ ! $partition =~ GraceTime=([0-9]{1,9}) ]] || seconds=$((10#${BASH_REMATCH[1]}))
    if ((seconds == 0)) && [[ $configuration =~ KillWait\ *=\ *([0-9]{1,9}) ]]; then seconds=$((10#${BASH_REMATCH[1]})); fi
  fi
  if ((seconds > 0 && seconds < lead)); then echo "$seconds"; else echo "$lead"; fi
}

# bound_grace: reserves at most half of a job's time for saving; otherwise a short job would stop before training.
bound_grace() {
  local left
  if left=$(seconds_left) && ((left > 1 && 10#$GRACE_PERIOD > left / 2)); then
    say "This job has $left s, half of them for training: GRACE_PERIOD is $((left / 2)) instead of $GRACE_PERIOD."
    GRACE_PERIOD=$((left / 2))
  fi
}

# stop_in_time SECONDS: starts a process that asks this shell to stop when this much of the job's time is left, in case that Slurm's signal
# comes later (sbatch --signal=B:USR1@60) or never: a run must not assume more time to save than it has.
stop_in_time() {
  (($1 > 0)) || return 0
  watch_the_clock "$1" &
  MPZERO_CLOCK=$!
}

stop_the_clock() { [[ -z $MPZERO_CLOCK ]] || kill "$MPZERO_CLOCK" 2>/dev/null || true; }

watch_the_clock() {
  local grace=$1 left pause nap=""
  trap 'kill $nap 2>/dev/null; exit' TERM
  while :; do
    # The time limit may change while the job runs.
    pause=600
    if left=$(seconds_left); then
      ((left > grace)) || break
      if ((left - grace < pause)); then pause=$((left - grace)); fi
    fi
    # If a signal arrives before the process id is known, the process is left running: it must not keep open the pipe that reads this job's
    # output.
    sleep "$pause" >/dev/null 2>&1 &
    nap=$!
    wait "$nap"
  done
  say "$left s of the job's time are left, GRACE_PERIOD is $grace s: stopping the run."
  kill -USR1 $$
}
