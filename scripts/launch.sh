# shellcheck shell=bash
# How a job of Slurm starts its ranks, and what it does about signals while they run.
#
# Slurm sends a job's signals to different places. The warning before the time limit (--signal=B:USR1@…) reaches the batch shell
# alone. Preemption first sends SIGTERM to the job's steps alone, then, after the partition's GraceTime, to everything.
# scancel sends SIGTERM to everything. mpzero saves and ends with status 75 on either signal, so this shell passes on what the
# ranks did not get themselves, always as SIGUSR1, which srun and mpirun both forward. (SIGTERM to mpirun would kill the ranks.)

# Of the job: MPZERO_STOP names the signal that asked it to end, MPZERO_CHILD is what it waits for, MPZERO_CLOCK is stop_in_time.
MPZERO_STOP=""
MPZERO_CHILD=""
MPZERO_CLOCK=""
MPZERO_INTERRUPTED=false

# What launch_ranks returns as its own, with the meaning that they have for timeout(1); mpzero has no such exit status.
readonly MPZERO_TOO_LONG=124 # the command was still running when its time was up
readonly MPZERO_NO_STEP=125  # Slurm did not create a step: no rank has started

# Messages of Slurm's commands when the controller is down, restarts or is too busy. ("Unexpected message" is scontrol requeue's and
# scontrol update's.)
readonly MPZERO_NO_ANSWER="Unable to contact|timed out|[Ss]ocket|Connection|connection|Communication|communication|Unexpected message|temporarily"

# ask_slurm COMMAND...: what a command of Slurm prints, and its exit status; asked again while the controller does not answer.
ask_slurm() {
  local attempt code errors
  for ((attempt = 1; attempt <= 10; ++attempt)); do
    ((attempt == 1)) || sleep "${MPZERO_RETRY_SECONDS:-3}"
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

catch_stops() {
  trap 'pass_on USR1' USR1
  trap 'pass_on TERM' TERM
  trap stop_the_clock EXIT
}

pass_on() {
  MPZERO_STOP=$1
  MPZERO_INTERRUPTED=true
  stop_the_clock
  [[ -z $MPZERO_CHILD ]] || kill -USR1 "$MPZERO_CHILD" 2>/dev/null || true
}

# run_interruptibly COMMAND...: runs a program and returns its exit status. bash acts on a signal only between two commands, and
# at once while it waits; so it waits.
run_interruptibly() {
  local code
  "$@" &
  MPZERO_CHILD=$!
  [[ -z $MPZERO_STOP ]] || kill -USR1 "$MPZERO_CHILD" 2>/dev/null || true
  while :; do
    MPZERO_INTERRUPTED=false
    code=0
    wait "$MPZERO_CHILD" || code=$?
    [[ $MPZERO_INTERRUPTED == true ]] || break
  done
  MPZERO_CHILD=""
  return "$code"
}
run_long() { run_interruptibly "$@"; }

# SageMaker HyperPod replaces a failed node and restarts the step.
hyperpod_arguments() {
  if [[ -d ${HYPERPOD_FOLDER:-/opt/sagemaker_cluster} ]]; then echo --auto-resume=1; fi
}

has_pmix() { [[ $(srun --mpi=list 2>&1) == *pmix* ]]; }

# choose_launcher NODES RANKS_PER_NODE CORES GPUS: fills MPZERO_SRUN or, where Slurm has no PMIx plugin, MPZERO_MPIRUN. GPUS of each
# node are asked of Slurm; 0 where it manages none.
choose_launcher() {
  local nodes=$1 ranks=$2 cores=$3 gpus=$4
  MPZERO_SRUN=()
  MPZERO_MPIRUN=()
  if has_pmix; then
    # On fewer nodes than its TreeWidth, Slurm (20.11 and later) lets each node pass an empty fence of PMIx without the others unless
    # the fence is a ring, and a rank that gets a message while it is still in MPI_Init crashes.
    export SLURM_PMIX_FENCE=${SLURM_PMIX_FENCE:-ring}
    mapfile -t MPZERO_SRUN < <(hyperpod_arguments)
    if slurm_binds_cores; then MPZERO_SRUN+=(--cpu-bind=none); fi
    ((ranks <= cores)) || MPZERO_SRUN+=(--overcommit)
    ((gpus == 0)) || MPZERO_SRUN+=("--gpus-per-node=$gpus")
    # When mpzero ends on one rank it ends on all of them, so the others get a moment to do so by themselves: killed at once, they
    # would replace its exit status by that of the signal.
    MPZERO_SRUN+=(--mpi=pmix "--nodes=$nodes" "--ntasks=$((nodes * ranks))" "--ntasks-per-node=$ranks"
      "--cpus-per-task=$((cores > ranks ? cores / ranks : 1))" --kill-on-bad-exit=0 --wait=30)
    return
  fi
  say "This Slurm has no PMIx plugin: starting the ranks with mpirun."
  MPZERO_MPIRUN=(mpirun --quiet --bind-to none --map-by "ppr:$ranks:node" --oversubscribe -n "$((nodes * ranks))")
  # mpirun and its daemons are steps of the job: Slurm's SIGTERM would end them, and the ranks before they have saved. The ranks do
  # not inherit what is blocked here.
  if env --block-signal=TERM true 2>/dev/null; then
    MPZERO_MPIRUN=(env --block-signal=TERM "${MPZERO_MPIRUN[@]}" --mca orte_launch_agent "env --block-signal=TERM orted")
  fi
  # mpirun starts its daemons with an srun of its own, which takes its options from the environment. The ranks of the first node,
  # which are no step, get what Slurm sets in one.
  ((gpus == 0)) || MPZERO_MPIRUN=(env "SLURM_GPUS_PER_NODE=$gpus" "SLURM_GPUS_ON_NODE=$gpus" "${MPZERO_MPIRUN[@]}")
}

# require_cuda_on_all_nodes NODES: the folder that select_cuda has found on this node is there on the others, too.
require_cuda_on_all_nodes() {
  local without
  [[ -n ${CUDA_VERSION:-} ]] && (($1 > 1)) || return 0
  # Where Slurm cannot start this, it has said why, and what comes next fails for the same reason.
  # shellcheck disable=SC2016 # expanded on the nodes
  without=$(srun --mpi=none --nodes="$1" --ntasks="$1" --ntasks-per-node=1 --time=2 --quiet \
    bash -c '[[ -d $CUDA_HOME ]] || printf "%s\n" "$SLURMD_NODENAME"' | sort | paste --serial --delimiters=,) || true
  [[ -z $without ]] ||
    die "CUDA_VERSION=$CUDA_VERSION asks for $CUDA_HOME, which does not exist on $without; install it there, leave these nodes out ('sbatch --exclude=$without'), or leave CUDA_VERSION unset."
}

# launch_ranks MINUTES COMMAND...: runs the command on all ranks and returns the highest exit status, MPZERO_TOO_LONG or
# MPZERO_NO_STEP; MINUTES, where not 0, is the longest that it may take.
launch_ranks() {
  local minutes=$1 code=0 began=$SECONDS
  shift
  if ((${#MPZERO_SRUN[@]} > 0)); then
    ((minutes == 0)) || set -- "--time=$minutes" "$@"
    run_step "${MPZERO_SRUN[@]}" "$@" || code=$?
  else
    ((minutes == 0)) || set -- --timeout "$((minutes * 60))" "$@"
    run_beside_watcher "${MPZERO_MPIRUN[@]}" "$@" || code=$?
  fi
  # srun and mpirun then tell of the signal that ended the ranks, as they do for any other that ends them.
  if ((code != 0 && minutes > 0 && SECONDS - began >= minutes * 60)) && [[ -z $MPZERO_STOP ]]; then code=$MPZERO_TOO_LONG; fi
  return "$code"
}

# run_step ARGUMENTS OF srun...: a step that Slurm refuses is tried again, since a controller that is busy refuses, too.
run_step() {
  local attempt code
  for ((attempt = 1; attempt <= 3; ++attempt)); do
    code=0
    SLURM_EXIT_ERROR=$MPZERO_NO_STEP run_interruptibly srun "$@" || code=$?
    if ((code != MPZERO_NO_STEP || attempt == 3)) || [[ -n $MPZERO_STOP ]]; then break; fi
    warn "Slurm did not create the step of the ranks, and srun says why above: it is asked again."
    run_interruptibly sleep "$((attempt * ${MPZERO_RETRY_SECONDS:-3}))" || true
    [[ $(show_job) == *JobState=RUNNING* ]] || break
  done
  return "$code"
}

run_beside_watcher() {
  local code=0
  watch_for_preemption &
  local watcher=$!
  run_interruptibly "$@" || code=$?
  kill -USR1 "$watcher" 2>/dev/null && wait "$watcher" 2>/dev/null
  return "$code"
}

# Under mpirun the ranks of the job's first node are no step of Slurm's, nor is this shell: they would not hear of a preemption.
# A step of its own that does nothing hears of it.
watch_for_preemption() {
  local code=0
  trap 'kill "$step" 2>/dev/null; exit 0' USR1
  trap '' TERM
  srun --overlap --nodes=1 --ntasks=1 --mpi=none "--nodelist=$(hostname -s)" --quiet sleep infinity 2>/dev/null &
  local step=$!
  wait "$step" || code=$?
  # 143: the step was ended by SIGTERM. Anything else says that Slurm could not start it.
  ((code != 143)) || kill -USR1 $$
}

# signal_lead SCRIPT: the seconds between Slurm's warning signal and the time limit, from SBATCH_SIGNAL or the script's own line. What
# sbatch got with --signal on its command line is in no record of Slurm's: see stop_in_time.
signal_lead() {
  local text=${SBATCH_SIGNAL:-$(sed -n 's/^#SBATCH --signal=//p' "$1" | head -n 1)}
  if [[ $text =~ @([0-9]+)$ ]]; then echo "${BASH_REMATCH[1]}"; else echo 60; fi
}

# stop_grace SCRIPT: the seconds in which a stopped run has to have saved: the signal's lead, or what preemption leaves where this
# partition's jobs can be preempted and that is less. (GraceTime of a QOS is not looked at: GRACE_PERIOD says it.)
stop_grace() {
  local lead configuration partition seconds=0
  lead=$(signal_lead "$1")
  configuration=$(ask_slurm scontrol show config 2>/dev/null) || true
  partition=$(ask_slurm scontrol show partition "${SLURM_JOB_PARTITION:-}" --oneliner 2>/dev/null) || true
  if [[ $configuration =~ PreemptType\ *=\ *preempt/(partition_prio|qos) && $partition =~ PreemptMode=[A-Z,]*(REQUEUE|CANCEL) ]]; then
    [[ ! $partition =~ GraceTime=([0-9]+) ]] || seconds=${BASH_REMATCH[1]}
    if ((seconds == 0)) && [[ $configuration =~ KillWait\ *=\ *([0-9]+) ]]; then seconds=${BASH_REMATCH[1]}; fi
  fi
  if ((seconds > 0 && seconds < lead)); then echo "$seconds"; else echo "$lead"; fi
}

# bound_grace: at most half of a job's time is for saving, or a short job would be stopped before it has trained.
bound_grace() {
  local left
  if left=$(seconds_left) && ((left > 1 && 10#$GRACE_PERIOD > left / 2)); then
    say "This job has $left s, half of which it keeps to train in: GRACE_PERIOD is $((left / 2)) instead of $GRACE_PERIOD."
    GRACE_PERIOD=$((left / 2))
  fi
}

# stop_in_time SECONDS: from now on a process beside this shell asks it to stop when so much of the job's time is left, in case that
# Slurm's signal comes later (sbatch --signal=B:USR1@60) or never: a run must not count on more time to save than it has.
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
    # The limit may be changed while the job runs.
    pause=600
    if left=$(seconds_left); then
      ((left > grace)) || break
      if ((left - grace < pause)); then pause=$((left - grace)); fi
    fi
    sleep "$pause" &
    nap=$!
    wait "$nap"
  done
  say "$left s of the job's time are left, and GRACE_PERIOD is $grace s: the run is stopped."
  kill -USR1 $$
}

# choose_job_settings SCRIPT: fills in what only a job of Slurm has, and DOCTOR_FLAGS.
choose_job_settings() {
  require_number MAX_RESTARTS 0
  require_number STUCK_AFTER 1
  require_number GRACE_PERIOD 0
  [[ $CHECK_NODES == true || $CHECK_NODES == false ]] ||
    die "CHECK_NODES=$CHECK_NODES is neither true (ask 'mpzero doctor' before the run) nor false."
  setting GRACE_PERIOD grace_period "$(stop_grace "$1")"
  flag_value grace_period >/dev/null || bound_grace
  stop_in_time "$(positive_number_or "${GRACE_PERIOD%%.*}" 0)"
  setting NETWORK network ""
  DOCTOR_FLAGS=(--quick --json "$CHECKPOINT_DIR/doctor.json" --checkpoint_dir "$CHECKPOINT_DIR")
  [[ -z $NETWORK ]] || DOCTOR_FLAGS+=(--network "$NETWORK")
}
