# shellcheck shell=bash
# Starts the ranks of a Slurm job.

# Additional return values of launch_ranks, as in timeout(1). mpzero never exits with these values.
readonly MPZERO_TOO_LONG=124 # the command exceeded its time limit
readonly MPZERO_NO_STEP=125  # Slurm did not create a step, so the ranks have not started
readonly MPZERO_NO_TASKS=123 # srun could not start tasks on some nodes

MPZERO_NO_TASKS_ON="" # these nodes, comma-separated
MPZERO_SRUN_SAID=""   # the first task or node that srun reported as terminated

# hyperpod_arguments GPUS: prints the srun option that makes SageMaker HyperPod replace a failed node and restart the step within the job.
# Prints nothing if Slurm manages GPUs (GPUS per node is not 0): Slurm cannot change the nodes of a job with generic resources, so HyperPod
# would requeue the job in a race with the job itself.
hyperpod_arguments() {
  if [[ -d ${HYPERPOD_FOLDER:-/opt/sagemaker_cluster} ]] && (($1 == 0)); then echo --auto-resume=1; fi
}

has_pmix() { [[ $(ask_slurm srun --mpi=list 2>&1) == *pmix* ]]; }

# choose_launcher NODES RANKS_PER_NODE CORES GPUS: fills MPZERO_SRUN or, if Slurm has no PMIx plugin, MPZERO_MPIRUN. Requests GPUS per node
# from Slurm; 0: Slurm does not manage GPUs.
choose_launcher() {
  local nodes=$1 ranks=$2 cores=$3 gpus=$4 resume
  MPZERO_SRUN=()
  MPZERO_MPIRUN=()
  if has_pmix; then
    # Use ring fences: otherwise, on fewer nodes than TreeWidth, Slurm (20.11 and later) does not synchronize nodes in an empty PMIx fence,
    # and a rank that receives a message during MPI_Init crashes.
    export SLURM_PMIX_FENCE=${SLURM_PMIX_FENCE:-ring}
    mapfile -t MPZERO_SRUN < <(hyperpod_arguments "$gpus")
    if slurm_binds_cores; then MPZERO_SRUN+=(--cpu-bind=none); fi
    ((ranks <= cores)) || MPZERO_SRUN+=(--overcommit)
    ((gpus == 0)) || MPZERO_SRUN+=("--gpus-per-node=$gpus")
    # --mem=0: all of the job's memory on each node. Two-level ZeRO requires consecutive ranks on a host.
    MPZERO_SRUN+=(--mem=0 --distribution=block)
    MPZERO_SRUN+=(--mpi=pmix "--nodes=$nodes" "--ntasks=$((nodes * ranks))" "--ntasks-per-node=$ranks"
      "--cpus-per-task=$((cores > ranks ? cores / ranks : 1))")
    return
  fi
  say "This Slurm installation has no PMIx plugin: starting the ranks with mpirun."
  MPZERO_MPIRUN=(mpirun --bind-to none --map-by "ppr:$ranks:node" --oversubscribe -n "$((nodes * ranks))")
  # In mpirun and its daemons, block the signals that Slurm sends to steps, because mpirun would end the ranks before they have saved. The
  # ranks do not inherit the blocked signals.
  if env --block-signal=TERM true 2>/dev/null; then
    MPZERO_MPIRUN=(env "--block-signal=TERM,USR2,HUP,INT" "OMPI_MCA_orte_launch_agent=env --block-signal=TERM,USR1,USR2,HUP,INT orted"
      "PRTE_MCA_prte_launch_agent=env --block-signal=TERM,USR1,USR2,HUP,INT prted" "${MPZERO_MPIRUN[@]}")
  fi
  # mpirun starts its daemons with its own srun, which reads options from the environment. The ranks of the first node are not in a
  # step: set the variables that Slurm would set in a step.
  local -a daemons=(SLURM_MEM_PER_NODE=0)
  ((gpus == 0)) || daemons+=("SLURM_GPUS_PER_NODE=$gpus" "SLURM_GPUS_ON_NODE=$gpus")
  # srun has no variable for HyperPod's option.
  resume=$(hyperpod_arguments "$gpus")
  [[ -z $resume ]] || daemons+=("OMPI_MCA_plm_slurm_args=${OMPI_MCA_plm_slurm_args:+$OMPI_MCA_plm_slurm_args }$resume"
    "PRTE_MCA_plm_slurm_args=${PRTE_MCA_plm_slurm_args:+$PRTE_MCA_plm_slurm_args }$resume")
  MPZERO_MPIRUN=(env "${daemons[@]}" "${MPZERO_MPIRUN[@]}")
}

# check_nodes NODES RANKS GPUS GPUS_FROM_SLURM: checks the ranks' requirements on each node (scripts/machine.sh), as the job's first step.
check_nodes() {
  local nodes=$1 file address report
  local -a options=(--mpi=none "--nodes=$1" "--ntasks=$1" --ntasks-per-node=1 --time=2 --quiet)
  if ((nodes == 1)); then
    require_machine "$2" "$3"
    return
  fi
  if slurm_binds_cores; then options+=(--cpu-bind=none); fi
  (($4 == 0)) || options+=("--gpus-per-node=$4")
  address=$(slurm_address) || true
  file=$(mktemp) || die "cannot create a file in ${TMPDIR:-/tmp}; free some space, or set TMPDIR to a different folder."
  # If Slurm cannot start this step, it prints the reason, and the next step fails for the same reason.
  # shellcheck disable=SC2016 # expanded on the nodes
  run_long srun "${options[@]}" env "MPZERO_ROOT=$MPZERO_ROOT" "BUILD_DIR=$MPZERO_BUILD" bash -ec '
    node=$SLURMD_NODENAME
    cd "$MPZERO_ROOT" 2>/dev/null || { echo "$node problem $MPZERO_ROOT does not exist; keep the checkout in a folder that all nodes share."; exit; }
    for part in common environment machine network; do source "scripts/$part.sh"; done
    report_machine "$@" | sed "s/^/$node /"' mpzero "$2" "$3" "$address" >"$file" || true
  report=$(<"$file")
  rm -f "$file"
  [[ -n ${MPZERO_STOP:-} ]] || judge_machines "$nodes" "$report"
}

# launch_ranks MINUTES COMMAND...: runs the command on all ranks and returns the highest exit status, MPZERO_TOO_LONG or MPZERO_NO_STEP.
# MINUTES: time limit; 0: none.
launch_ranks() {
  local minutes=$1 code=0 began
  began=$(seconds_since_boot)
  shift
  [[ -z $MPZERO_STOP ]] || return "$MPZERO_ENDED_BY_SIGUSR1"
  expect_start "$(slurm_job)"
  if ((${#MPZERO_SRUN[@]} > 0)); then
    if ((minutes == 0)); then
      # If a rank fails, Slurm ends all other ranks, which write failure reports on SIGTERM.
      set -- --kill-on-bad-exit=1 "$@"
    else
      # Each rank of the doctor reports separately.
      set -- "--time=$minutes" --kill-on-bad-exit=0 --wait=30 "$@"
    fi
    run_step "${MPZERO_SRUN[@]}" "$@" || code=$?
  else
    ((minutes == 0)) || set -- --timeout "$((minutes * 60))" "$@"
    run_with_watcher "${MPZERO_MPIRUN[@]}" "$@" || code=$?
  fi
  # After a timeout, srun and mpirun only report the signal that ended the ranks.
  if ((code != 0 && minutes > 0 && $(seconds_since_boot) - began >= minutes * 60)) && [[ -z $MPZERO_STOP ]]; then code=$MPZERO_TOO_LONG; fi
  return "$(status_of_start "$code")"
}

# run_step ARGUMENTS OF srun...: retries a step that Slurm refuses, because a busy controller also refuses steps. If the controller does not
# respond, retries for as long as the job has its nodes.
run_step() {
  local attempt code log_bytes until=${MPZERO_ASK_UNTIL:-1}
  if ((until == 0)); then until=$(($(date +%s) + 86400)); fi
  for ((attempt = 1; ; ++attempt)); do
    code=0
    log_bytes=$(log_size) || true
    SLURM_EXIT_ERROR=$MPZERO_NO_STEP run_interruptibly srun "$@" || code=$?
    # srun exits with the highest status of the tasks that ran, which may be 0.
    MPZERO_NO_TASKS_ON=$(nodes_without_tasks "$log_bytes") || true
    if [[ -n $MPZERO_NO_TASKS_ON ]]; then
      code=$MPZERO_NO_TASKS
      break
    fi
    if ((code != 0)) && [[ -z $MPZERO_STOP ]] && srun_refuses "$log_bytes"; then
      warn "srun cannot start the ranks because of its options or configuration (see above); not requeuing the job."
      code=$MPZERO_USER_ERROR
      break
    fi
    if ((code != 0)) && [[ -z $MPZERO_STOP ]] && mpi_aborted "$log_bytes"; then
      printf 'mpzero: error: MPI terminated all ranks at startup; correct or unset %s.\n' "$(printable "$(mpi_variables)")" >&2 || true
      code=$MPZERO_USER_ERROR
      break
    fi
    MPZERO_SRUN_SAID=$(first_loss "$log_bytes") || true
    if ((code != MPZERO_NO_STEP)) || [[ -n $MPZERO_STOP ]]; then break; fi
    if ((attempt >= 3)) && { (($(date +%s) >= until)) || ! srun_got_no_answer "$log_bytes"; }; then break; fi
    warn "Slurm did not create the job step (see above): retrying."
    run_interruptibly sleep "$(((attempt < 10 ? attempt : 10) * $(retry_seconds)))" || true
    [[ $(show_job) =~ $MPZERO_RUNNING ]] || break
  done
  return "$code"
}

# log_size: the size of the job's error log in bytes; empty if the log is not a regular file.
log_size() { if [[ -f /proc/$$/fd/2 ]]; then stat --dereference --format=%s "/proc/$$/fd/2"; fi; }

# log_since BYTES: the part of the job's error log after the first BYTES bytes, at most 1 MiB.
log_since() {
  [[ -n $1 ]] || return 0
  { tail --bytes="+$(($1 + 1))" "/proc/$$/fd/2" | head --bytes=1048576 || true; } 2>/dev/null
}

# srun_got_no_answer BYTES: succeeds if the controller did not respond, according to srun's messages after the first BYTES bytes.
srun_got_no_answer() { [[ $(log_since "$1" | grep '^srun: error: ') =~ $MPZERO_NO_ANSWER ]]; }

# srun_refuses BYTES: succeeds if srun ended because of an error in its options, environment or configuration, which would recur at the next
# start.
srun_refuses() {
  local fatal
  fatal=$(log_since "$1" | grep '^srun: fatal: ') || return 1
  [[ ! $fatal =~ $MPZERO_NO_ANSWER|"configuration source" ]]
}

# mpi_aborted BYTES: succeeds if MPI_Init aborted and Slurm killed all ranks before any rank could report: srun's messages after the first
# BYTES bytes show only a cancelled step and killed tasks.
mpi_aborted() {
  local said cancelled='\*\*\* STEP [^ ]+ ON [^ ]+ CANCELLED AT [0-9T:-]+ \*\*\*'
  [[ ! -e $MPZERO_START_FILE && ! -e $MPZERO_START_FILE.ok ]] || return 1
  said=$(log_since "$1" | grep -E '^(srun|slurmstepd)[^ ]*: error: ') || return 1
  [[ $said =~ $cancelled ]] && ! grep -E '^srun: error: [^ ]+: tasks? ' <<<"$said" | grep -qv ': Killed$'
}

# mpi_variables: the user's variables that configure MPI.
mpi_variables() {
  local names
  names=$(compgen -e | grep -E '^(OPAL_PREFIX$|(OMPI|PMIX)_MCA_|UCX_|SLURM_MPI|SLURM_PMIX)' | grep -v orte_) || names="the MPI variables"
  printf '%s\n' "${names//$'\n'/, }"
}

# nodes_without_tasks BYTES: the comma-separated nodes on which srun could not start tasks, from its messages after the first BYTES bytes of
# the log. srun prints them before any rank completes MPI_Init.
nodes_without_tasks() {
  log_since "$1" |
    sed -n "s/^srun: error: Task launch for \(StepId=\)\?${SLURM_JOB_ID}[.+][^ ]* failed on node \([A-Za-z0-9][A-Za-z0-9._-]*\): .*/\2/p" |
    sort --unique | paste --serial --delimiters=,
}

# first_loss BYTES: the first task or node that srun reported as terminated after the first BYTES bytes of the log, e.g.
# "node1: task 1: Killed".
first_loss() {
  log_since "$1" | sed -nE 's/^srun: error: ([^ ]+: tasks? [0-9,-]+: .*|Node failure on .*)$/\1/p' | head --lines=1
}

run_with_watcher() {
  local code=0
  watch_for_preemption &
  local watcher=$!
  run_interruptibly "$@" || code=$?
  end_process USR1 "$watcher"
  return "$code"
}

# Under mpirun, the ranks on the job's first node and this shell are not in a Slurm step and receive no signal on preemption. A separate
# idle step receives the signal.
watch_for_preemption() {
  local code=0 node=${SLURMD_NODENAME:-$(hostname -s)}
  trap 'end_children; exit 0' USR1
  trap '' TERM
  srun --overlap --nodes=1 --ntasks=1 --mpi=none "--nodelist=$node" --quiet sleep infinity 2>/dev/null &
  local step=$!
  wait "$step" || code=$?
  # A Slurm signal ended the step: SIGHUP, SIGINT, SIGUSR1, SIGUSR2 or SIGTERM. Any other status means that Slurm could not start it.
  case $code in 129 | 130 | 138 | 140 | 143) stop_shell ;; esac
}

end_children() {
  local pid
  for pid in $(jobs -p); do end_process TERM "$pid"; done
}

# choose_job_settings SCRIPT: sets the variables that only a Slurm job uses, and DOCTOR_FLAGS.
choose_job_settings() {
  require_number MAX_RESTARTS 0
  require_number STUCK_AFTER 1
  require_number GRACE_PERIOD 0
  [[ $CHECK_NODES == true || $CHECK_NODES == false ]] ||
    die "CHECK_NODES=$CHECK_NODES must be true (run 'mpzero doctor' first) or false."
  require_stop_signal "$1"
  setting GRACE_PERIOD grace_period "$(stop_grace "$1")"
  flag_value grace_period >/dev/null || bound_grace "$1"
  stop_in_time "$(positive_number_or "${GRACE_PERIOD%%.*}" 0)"
  setting NETWORK network ""
  # If the checkpoint folder does not respond, ranks write failure reports next to the job's log.
  if [[ -f /proc/$$/fd/2 ]]; then export MPZERO_LOG_DIR=${MPZERO_LOG_DIR:-$(dirname "$(readlink "/proc/$$/fd/2")")}; fi
  DOCTOR_FLAGS=(--quick --json "$CHECKPOINT_DIR/doctor.json" --checkpoint_dir "$CHECKPOINT_DIR")
  [[ -z $NETWORK ]] || DOCTOR_FLAGS+=(--network "$NETWORK")
  setting MPZERO_DEVICE device ""
  [[ -z $MPZERO_DEVICE ]] || DOCTOR_FLAGS+=(--device "$MPZERO_DEVICE")
}
