# shellcheck shell=bash
# Forwards signals to a Slurm job's ranks, and determines how much time they have to save a checkpoint.
#
# Slurm sends a job's signals to different places. The warning before the time limit (--signal=B:USR1@…) reaches only the batch shell, and
# without "B:" only the steps. Preemption first sends SIGTERM only to the job's steps, then, after the partition's GraceTime, to all
# processes. scancel sends SIGTERM to all processes. mpzero saves and exits with status 75 on both signals. If the ranks did not receive a
# signal, this shell sends SIGUSR1, which srun and mpirun forward to the ranks. (SIGTERM to mpirun would kill the ranks.)

# MPZERO_STOP: the stop signal that was received (possibly by train.sbatch before it loaded this file). MPZERO_CHILD: the process that this
# shell waits for. MPZERO_REPEATER: the process of repeat_stop. MPZERO_CLOCK: the process of stop_in_time.
MPZERO_STOP=${MPZERO_STOP:-}
# MPZERO_EARLY_WARNING: Slurm's warning signal, which pass_on ignores once before MPZERO_EARLY_UNTIL (Unix time in seconds).
MPZERO_EARLY_WARNING=""
MPZERO_EARLY_UNTIL=0
MPZERO_CHILD=""
MPZERO_REPEATER=""
MPZERO_CLOCK=""

# Stop signals that Slurm (--signal=B:...) may send to a job's shell, or Kubernetes to a pod. Ranks, which receive --signal without B:, save
# on all except the last two (app/health/stop_request.hpp).
readonly MPZERO_STOP_SIGNALS=(TERM USR1 USR2 HUP INT QUIT ALRM)

catch_stops() {
  local signal
  for signal in "${MPZERO_STOP_SIGNALS[@]}"; do
    # shellcheck disable=SC2064 # this signal's name
    trap "pass_on $signal" "$signal"
  done
  trap stop_the_clock EXIT
}

# pass_on SIGNAL: stops the child. Ignores Slurm's warning once if bound_grace expects it to come too early.
pass_on() {
  if [[ $1 == "$MPZERO_EARLY_WARNING" ]] && ((EPOCHSECONDS < MPZERO_EARLY_UNTIL)); then
    MPZERO_EARLY_WARNING=""
    return 0
  fi
  MPZERO_STOP=$1
  stop_the_clock
  stop_child
}

# stop_child: signals the child repeatedly until it ends. A single signal may be lost: a newly forked child still has this shell's handlers,
# which drop the signal, and srun and mpirun cannot forward the signal before the ranks run.
stop_child() {
  [[ -n $MPZERO_CHILD && -z $MPZERO_REPEATER ]] || return 0
  repeat_stop "$MPZERO_CHILD" &
  MPZERO_REPEATER=$!
}

# repeat_stop PID: sends SIGUSR1 to a process repeatedly, until that process ends or this process is terminated.
repeat_stop() {
  local pause nothing
  # read waits on an empty pipe, unlike sleep, which would be a separate process that outlives this process.
  exec {nothing}<> <(:)
  for pause in 0.02 0.05 0.1 0.2 0.5 1 2 5; do
    kill -USR1 "$1" 2>/dev/null || return 0
    read -r -t "$pause" -u "$nothing" || true
  done
  while kill -USR1 "$1" 2>/dev/null; do read -r -t 10 -u "$nothing" || true; done
}

# end_process SIGNAL PID: ends a child of this shell, with a timeout of 10 seconds. Repeats the signal for the same reason as stop_child.
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

# run_interruptibly COMMAND...: runs a program in the background, waits for it, and returns its exit status, because bash handles signals
# during a command only in `wait`. If a stop was already requested, does not start the program and returns MPZERO_ENDED_BY_SIGUSR1.
run_interruptibly() {
  local code=0
  [[ -z $MPZERO_STOP ]] || return "$MPZERO_ENDED_BY_SIGUSR1"
  "$@" &
  MPZERO_CHILD=$!
  # A signal may have arrived before MPZERO_CHILD was set.
  [[ -z $MPZERO_STOP ]] || stop_child
  wait_for_child "$MPZERO_CHILD" || code=$?
  MPZERO_CHILD=""
  [[ -z $MPZERO_REPEATER ]] || end_process TERM "$MPZERO_REPEATER"
  MPZERO_REPEATER=""
  return "$code"
}
run_long() { run_interruptibly "$@"; }

# warning_signal SCRIPT: Slurm's warning signal before the time limit, from SBATCH_SIGNAL or the script's #SBATCH line. Slurm does not
# record --signal on sbatch's command line (see stop_in_time).
warning_signal() { printf '%s\n' "${SBATCH_SIGNAL:-$(sed -n 's/^#SBATCH --signal=//p' "$1" | head -n 1)}"; }

# warns_shell SCRIPT: succeeds if the job's shell receives the warning signal (B:), not its steps.
warns_shell() {
  local text
  text=$(warning_signal "$1")
  text=${text%%@*}
  [[ $text == *:* && ${text%%:*} == *B* ]]
}

# signal_of_warning SCRIPT: the name of the warning signal, e.g. USR1.
signal_of_warning() {
  local name
  name=$(warning_signal "$1")
  name=${name%%@*}
  name=${name##*:}
  name=${name^^}
  if [[ $name =~ ^[0-9]{1,2}$ ]]; then name=$(kill -l "$name" 2>/dev/null || true); fi
  printf '%s\n' "${name#SIG}"
}

# require_stop_signal SCRIPT: exits if mpzero does not save a checkpoint on Slurm's warning signal.
require_stop_signal() {
  local text whom="mpzero's ranks" signals=" TERM USR1 USR2 HUP INT "
  text=$(warning_signal "$1")
  if warns_shell "$1"; then
    signals=" ${MPZERO_STOP_SIGNALS[*]} " whom="the job's shell"
  fi
  [[ -z $text || $signals == *" $(signal_of_warning "$1") "* ]] ||
    die "--signal=$text sends a signal that does not make $whom save a checkpoint; use one of$signals, e.g. --signal=B:USR1@300."
}

# signal_lead SCRIPT: the seconds between the warning signal and the time limit.
signal_lead() {
  local text
  text=$(warning_signal "$1")
  if [[ $text =~ @([0-9]{1,9})$ ]]; then echo "$((10#${BASH_REMATCH[1]}))"; else echo 60; fi
}

# stop_grace SCRIPT: the seconds that a stopped run has for saving: signal_lead or, if jobs of this partition can be preempted, at most its
# GraceTime (KillWait if GraceTime is 0). (Ignores the GraceTime of a QOS; set GRACE_PERIOD instead.)
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

# stop_shell: stops this shell from a background process, with a signal that pass_on never ignores.
stop_shell() {
  local signal=USR1
  [[ $MPZERO_EARLY_WARNING != USR1 ]] || signal=TERM
  kill "-$signal" $$
}

# bound_grace SCRIPT: reserves at most half of a job's time for saving; otherwise a short job would stop before training. If the job's shell
# receives Slurm's warning, which comes too early in such a job, it ignores the warning (see pass_on); stop_in_time stops the job.
bound_grace() {
  local left lead arrives stops
  left=$(seconds_left) && ((left > 1 && 10#$GRACE_PERIOD > left / 2)) || return 0
  say "This job has only $left s left: reducing GRACE_PERIOD from $GRACE_PERIOD to $((left / 2)) s to leave half of the time for training."
  GRACE_PERIOD=$((left / 2))
  warns_shell "$1" || return 0
  MPZERO_EARLY_WARNING=$(signal_of_warning "$1")
  lead=$(signal_lead "$1")
  # Seconds from now. Slurm may send the signal a minute late.
  arrives=$(((left > lead ? left - lead : 0) + 60)) stops=$((left - GRACE_PERIOD))
  MPZERO_EARLY_UNTIL=$((EPOCHSECONDS + (arrives < stops ? arrives : stops)))
  if [[ $MPZERO_STOP == "$MPZERO_EARLY_WARNING" ]]; then MPZERO_STOP="" MPZERO_EARLY_WARNING=""; fi
}

# stop_in_time SECONDS: starts a process that stops this shell when SECONDS of the job's time are left, because Slurm may send its signal
# later (sbatch --signal=B:USR1@60) or never.
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
    # If a signal arrives before `nap` is set, `sleep` keeps running, but must not keep the job's output open.
    sleep "$pause" >/dev/null 2>&1 &
    nap=$!
    wait "$nap"
  done
  say "The job has $left s left, and GRACE_PERIOD is $grace s: stopping the run."
  stop_shell
}
