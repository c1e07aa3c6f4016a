# shellcheck shell=bash
# The cores and GPUs that Slurm allocated to a job. RECORD is the output of `scontrol show job --details`.
#
# If Slurm manages GPUs (GresTypes=gpu), a job with --exclusive has all GPUs of its nodes, but a step has only the GPUs that it requests:
# without --gpus-per-node, its ranks see no GPUs.

# record_field RECORD NAME: the value of NAME=… in a record; empty if missing.
record_field() {
  local pattern="(^|[[:space:]])$2=([^[:space:]]*)"
  [[ ! $1 =~ $pattern ]] || printf '%s\n' "${BASH_REMATCH[2]}"
}

# list_items LIST: one line per item of a Slurm list, without the trailing parentheses.
list_items() { sed 's/([^)]*)//g; s/,/\n/g' <<<"$1"; }

# least_of LIST: the smallest number in a list such as "72(x2),36".
least_of() { list_items "$1" | sort -rn | tail -n 1; }

# cores_here: the number of cores that the ranks may use on this host. Slurm does not enforce the job's number of cores unless it binds
# tasks to cores.
cores_here() {
  local cores slurm_cores
  cores=$(visible_cpus)
  slurm_cores=$(positive_number_or "${SLURM_CPUS_ON_NODE:-}" "$cores")
  echo $((slurm_cores < cores ? slurm_cores : cores))
}

# gpus_in LIST: the number of GPUs in a list of Slurm resources, e.g. "gpu:2", "gpu:h100:8(IDX:0-7),nvme:1" or "cpu=8,gres/gpu:4".
gpus_in() {
  local word count sum=0
  while read -r word; do
    [[ $word =~ ^(gres[:/])?gpu([:=]|$) ]] || continue
    count=${word##*[:=]}
    [[ $count =~ ^[0-9]{1,9}$ ]] || count=1
    sum=$((sum + 10#$count))
  done < <(list_items "$1")
  echo "$sum"
}

# given_gpus RECORD: one line "GPUS NODES" per group of the job's nodes with equal resources, fewest GPUs first.
given_gpus() {
  local nodes resources
  while read -r nodes resources; do
    printf '%s %s\n' "$(gpus_in "$resources")" "$nodes"
  done < <(sed -n 's/^ *Nodes=\([^ ]*\) .* GRES=\([^ ]*\).*/\1 \2/p' <<<"$1") | sort -n
}

# asked_gpus RECORD NODES: the GPUs per node that the user requested with sbatch's options; empty if not requested.
asked_gpus() {
  local record=$1 nodes=$2 per_node total per_task tasks tasks_per_node
  per_node=$(gpus_in "$(record_field "$record" TresPerNode)")
  total=$(gpus_in "$(record_field "$record" TresPerJob)")
  per_task=$(gpus_in "$(record_field "$record" TresPerTask)")
  tasks=$(positive_number_or "$(record_field "$record" NumTasks)" 0)
  tasks_per_node=$(record_field "$record" NtasksPerN:B:S:C)
  tasks_per_node=$(positive_number_or "${tasks_per_node%%:*}" 0)
  # Without a number of tasks, Slurm assumes one task per node, so --gpus-per-task alone does not determine the number of GPUs.
  if ((per_task > 0 && tasks_per_node > 0)); then
    per_node=$((per_task * tasks_per_node))
  elif ((per_task > 0 && tasks > nodes)); then
    total=$((per_task * tasks))
  fi
  if ((per_node > 0)); then
    echo "$per_node"
  elif ((total > 0)); then
    ((total % nodes == 0)) ||
      die "$total GPUs do not divide evenly among $nodes nodes; submit with --gpus-per-node instead of --gpus or --gpus-per-task."
    echo $((total / nodes))
  fi
}

# slurm_gpus RECORD NODES: the GPUs per node for the ranks; 0 if Slurm manages no GPUs, or with --device cpu. An exclusive job uses only the
# requested GPUs.
slurm_gpus() {
  local record=$1 nodes=$2 given asked installed fewest fewest_nodes most most_nodes
  if on_cpu; then
    echo 0
    return
  fi
  given=$(given_gpus "$record")
  read -r fewest fewest_nodes < <(head -n 1 <<<"$given")
  read -r most most_nodes < <(tail -n 1 <<<"$given")
  if ((${most:-0} == 0)); then
    installed=$(ask_slurm sinfo --noheader --nodes="$SLURM_JOB_NODELIST" --format=%G | sort -u | paste --serial --delimiters=,)
    (($(gpus_in "$installed") == 0)) ||
      die "Slurm allocated no GPUs to this job ($SLURM_JOB_NODELIST, $installed); submit it with --gpus-per-node or --exclusive, or pass --device cpu."
    echo 0
    return
  fi
  ((fewest > 0)) ||
    die "This job has $(counted "$most" GPU) on $most_nodes but no GPUs on $fewest_nodes; submit it with --gpus-per-node, which excludes nodes without GPUs."
  asked=$(asked_gpus "$record" "$nodes") || exit
  if [[ -n $asked ]] && ((asked <= fewest)); then
    echo "$asked"
    return
  fi
  ((fewest == most)) ||
    warn "This job has $most GPUs on $most_nodes but $fewest on $fewest_nodes: the job uses $fewest per node. Use --constraint or --nodelist to select nodes with the same number of GPUs."
  echo "$fewest"
}

# Variables that a job's environment and Slurm's commands need. Any other SLURM_* may be an option of srun (see INPUT ENVIRONMENT VARIABLES
# in its manual; new versions add more), or be left over from a shell that submitted the job from within another job.
readonly MPZERO_SLURM_KEPT="CONF|CONF_SERVER|JWT|SACK_.*|CLUSTER_NAME|WORKING_CLUSTER|JOBID|JOB_.*|ARRAY_.*|RESTART_COUNT|SUBMIT_.*|\
NODELIST|NODEID|NODE_ALIASES|TASKS_PER_NODE|CPUS_ON_NODE|TOPOLOGY_.*|PMIX.*|SPANK_.*"

# build_slurm_environment: removes variables that act as options of srun, squeue etc. They come from the job's options or the submitting
# shell: --gpus-per-task=1 would limit each rank to one GPU, --mem of salloc would limit the steps, and --export=NAME would hide all
# other variables from the ranks. A step requests its own resources (choose_launcher).
build_slurm_environment() {
  local variable
  for variable in $(compgen -e); do
    if [[ $variable =~ ^(SLURM|SRUN|SQUEUE|SINFO|SCONTROL)_ && ! $variable =~ ^SLURM_($MPZERO_SLURM_KEPT)$ ]]; then unset "$variable"; fi
  done
  forget_ranks
  export SLURM_EXPORT_ENV=ALL
}

# refuse_heterogeneous RECORD: refuses heterogeneous jobs, because only their first component runs the script.
refuse_heterogeneous() {
  [[ -z $(record_field "$1" HetJobId) ]] ||
    die "heterogeneous jobs are not supported; submit without ':' and #SBATCH hetjob, and request the same resources on all nodes."
}

# report_memory RECORD: reports a job with less memory than its nodes. If Slurm manages memory, a job that does not request memory gets the
# cluster's default. (With #SBATCH --mem=0, sbatch would refuse --mem-per-cpu and --mem-per-gpu.)
report_memory() {
  local has all
  has=$(sed -n 's/^ *Nodes=[^ ]* .* Mem=\([0-9]*\) .*/\1/p' <<<"$1" | sort -n | head -n 1)
  has=$(positive_number_or "$has" 0)
  ((has > 0)) || return 0
  all=$(ask_slurm sinfo --noheader --Node --nodes="$SLURM_JOB_NODELIST" --format=%m | sort -n | head -n 1) || true
  all=$(positive_number_or "$all" 0)
  ((10 * has >= 9 * all)) ||
    say "Slurm allocated $has of $all MB of memory per node to this job; 'sbatch --mem=0 train.sbatch' allocates all memory."
}
