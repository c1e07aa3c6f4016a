# shellcheck shell=bash
# How a job of Slurm starts its ranks, and what it does about signals while they run.
#
# Slurm sends a job's signals to different places. The warning before the time limit (--signal=B:USR1@…) reaches the batch shell
# alone. Preemption first sends SIGTERM to the job's steps alone, then, after the partition's GraceTime, to everything.
# scancel sends SIGTERM to everything. mpzero saves and ends with status 75 on either signal, so this shell passes on what the
# ranks did not get themselves, always as SIGUSR1, which srun and mpirun both forward. (SIGTERM to mpirun would kill the ranks.)

# Of the job: MPZERO_STOP names the signal that asked it to end, MPZERO_CHILD is what it waits for.
MPZERO_STOP=""
MPZERO_CHILD=""
MPZERO_INTERRUPTED=false

catch_stops() {
  trap 'pass_on USR1' USR1
  trap 'pass_on TERM' TERM
}

pass_on() {
  MPZERO_STOP=$1
  MPZERO_INTERRUPTED=true
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

# launch_ranks MINUTES COMMAND...: runs the command on all ranks and returns the highest exit status; MINUTES, where not 0, is the
# longest that it may take.
launch_ranks() {
  local minutes=$1 code=0
  shift
  if ((${#MPZERO_SRUN[@]} > 0)); then
    ((minutes == 0)) || set -- "--time=$minutes" "$@"
    run_interruptibly srun "${MPZERO_SRUN[@]}" "$@"
    return
  fi
  ((minutes == 0)) || set -- --timeout "$((minutes * 60))" "$@"
  watch_for_preemption &
  local watcher=$!
  run_interruptibly "${MPZERO_MPIRUN[@]}" "$@" || code=$?
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

# signal_lead SCRIPT: the seconds between Slurm's warning signal and the time limit, from SBATCH_SIGNAL or the script's own line.
signal_lead() {
  local text=${SBATCH_SIGNAL:-$(sed -n 's/^#SBATCH --signal=//p' "$1" | head -n 1)}
  if [[ $text =~ @([0-9]+)$ ]]; then echo "${BASH_REMATCH[1]}"; else echo 60; fi
}

# stop_grace SCRIPT: the seconds in which a stopped run has to have saved: the signal's lead, or what preemption leaves where this
# partition's jobs can be preempted and that is less. (GraceTime of a QOS is not looked at: GRACE_PERIOD says it.)
stop_grace() {
  local lead configuration partition seconds=0
  lead=$(signal_lead "$1")
  configuration=$(scontrol show config 2>/dev/null) || true
  partition=$(scontrol show partition "${SLURM_JOB_PARTITION:-}" --oneliner 2>/dev/null) || true
  if [[ $configuration =~ PreemptType\ *=\ *preempt/(partition_prio|qos) && $partition =~ PreemptMode=[A-Z,]*(REQUEUE|CANCEL) ]]; then
    [[ ! $partition =~ GraceTime=([0-9]+) ]] || seconds=${BASH_REMATCH[1]}
    if ((seconds == 0)) && [[ $configuration =~ KillWait\ *=\ *([0-9]+) ]]; then seconds=${BASH_REMATCH[1]}; fi
  fi
  if ((seconds > 0 && seconds < lead)); then echo "$seconds"; else echo "$lead"; fi
}

# choose_job_settings SCRIPT: fills in what only a job of Slurm has, and DOCTOR_FLAGS.
choose_job_settings() {
  require_number MAX_RESTARTS 0
  require_number STUCK_AFTER 1
  require_number GRACE_PERIOD 0
  [[ $CHECK_NODES == true || $CHECK_NODES == false ]] ||
    die "CHECK_NODES=$CHECK_NODES is neither true (ask 'mpzero doctor' before the run) nor false."
  setting GRACE_PERIOD grace_period "$(stop_grace "$1")"
  setting NETWORK network ""
  DOCTOR_FLAGS=(--quick --json "$CHECKPOINT_DIR/doctor.json" --checkpoint_dir "$CHECKPOINT_DIR")
  [[ -z $NETWORK ]] || DOCTOR_FLAGS+=(--network "$NETWORK")
}
