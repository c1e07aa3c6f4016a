# shellcheck shell=bash
# The number of ranks and their environment: CUDA, MPI, threads, NCCL over EFA.

# CUDA_VERSION=12.9 puts the tools of /usr/local/cuda-12.9 (nsys, compute-sanitizer) first in PATH. mpzero itself is always built with the
# compiler and the runtime of torch's wheel.
select_cuda() {
  [[ -n ${CUDA_VERSION:-} ]] || return 0
  local folder=${CUDA_PARENT:-/usr/local}/cuda-$CUDA_VERSION
  if [[ ! -d $folder ]]; then
    local there
    there=$(find "${folder%/*}" -maxdepth 1 -name 'cuda-*' -printf '%f ' 2>/dev/null)
    die "CUDA_VERSION=$CUDA_VERSION needs $folder, which does not exist on $(hostname -s); unset CUDA_VERSION or use an installed version: ${there:-none }"
  fi
  export MPZERO_TOOLKIT=$folder CUDA_HOME=$folder CUDA_PATH=$folder PATH=$folder/bin:$PATH
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder/lib64
}

# The number of GPUs that ranks on this host may use: 0 with --device cpu.
count_gpus() { if on_cpu; then echo 0; else visible_gpus; fi; }

# The number of GPUs in CUDA_VISIBLE_DEVICES if set, else the number that the driver lists.
visible_gpus() {
  if [[ -n ${CUDA_VISIBLE_DEVICES+set} ]]; then
    local -a devices
    IFS=, read -r -a devices <<<"$CUDA_VISIBLE_DEVICES"
    # Values that select no devices: -1 (CUDA driver), NoDevFiles (Slurm).
    if [[ ${devices[0]:-} == -1 || ${devices[0]:-} == NoDevFiles ]]; then echo 0; else echo "${#devices[@]}"; fi
  elif command -v nvidia-smi >/dev/null; then
    nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true
  else
    echo 0
  fi
}

# visible_cpus: the CPUs that this shell may use, ignoring OMP_NUM_THREADS, which nproc reads.
visible_cpus() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc; }

# numa_domains: the number of NUMA domains with cores that this shell may use; 1 if unknown.
numa_domains() {
  local allowed
  allowed=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "${PROCESS_STATUS:-/proc/self/status}" 2>/dev/null) || true
  { lscpu --parse=CPU,NODE 2>/dev/null || true; } | awk -F, -v allowed="$allowed" '
    BEGIN { count = split(allowed, ranges, ",") }
    /^#/ { next }
    {
      for (i = 1; i <= count; ++i) {
        split(ranges[i] "-" ranges[i], ends, "-")
        if ($1 >= ends[1] + 0 && $1 <= ends[2] + 0 && !($2 in seen)) { seen[$2]; ++found }
      }
    }
    END { print (found > 1 ? found : 1) }'
}

# ranks_per_node GPUS CORES: NPROC if set, else one rank per GPU, else one rank per NUMA domain, so that memory is local to its cores. In a
# single domain, the tiny model of the first run uses two ranks with half of the cores each, because its operations are too small for many
# threads. CORES: the job's cores, which may be fewer than the shell sees.
ranks_per_node() {
  local domains
  require_number NPROC 1
  if [[ -n ${NPROC:-} ]]; then
    echo "$NPROC"
  elif (($1 > 0)); then
    echo "$1"
  else
    domains=$(numa_domains)
    domains=$((domains * $2 / $(visible_cpus)))
    if ((domains > 1)); then
      echo "$domains"
    elif [[ ${MODEL_TYPE:-} == qwen3_tiny ]] && (($2 > 1)); then
      echo 2
    else
      echo 1
    fi
  fi
}

# Environment variables that make MPI treat a process as a rank of another launcher.
rank_variables() { compgen -e | grep -E '^PMIX?_' | grep -v '^PMIX_MCA_' || true; }

# forget_ranks: unsets these variables, because a rank or srun may have started this shell.
forget_ranks() {
  local variable
  for variable in $(rank_variables); do unset "$variable"; done
}

# without_launcher COMMAND...: replaces this shell with a command that does not get these variables or those that make MPI use Slurm.
# SLURM_ARRAY_TASK_ID is kept, because mpzero's messages depend on it.
without_launcher() {
  local variable
  forget_ranks
  for variable in $(compgen -e | grep '^SLURM_' | grep -vx SLURM_ARRAY_TASK_ID); do unset "$variable"; done
  exec "$@"
}

# expect_start JOB: must be called before the ranks start. If MPI initialization fails, a rank creates the file
# MPZERO_START_FILE (parallel/mpi/mpi_start.hpp). MPZERO_LAUNCH identifies the ranks' failure reports.
expect_start() {
  MPZERO_START_FILE=$(realpath --canonicalize-missing -- "$CHECKPOINT_DIR/mpi_start.$1.failed")
  read -r MPZERO_LAUNCH </proc/sys/kernel/random/uuid
  export MPZERO_START_FILE MPZERO_LAUNCH
  rm -f -- "$MPZERO_START_FILE"{,.ok} 2>/dev/null || true
}

# status_of_start STATUS: the status of the ranks, or a user error if MPI initialization failed (mpirun and srun then return other
# statuses).
status_of_start() {
  # Neither a signal that ended mpirun nor a failure after MPI initialization is a user error.
  if (($1 != 0 && $1 <= 128)) && [[ -z ${MPZERO_STOP:-} && -f ${MPZERO_START_FILE:-} && ! -e $MPZERO_START_FILE.ok ]]; then
    echo "$MPZERO_USER_ERROR"
  else
    echo "$1"
  fi
  rm -f -- "${MPZERO_START_FILE:-}"{,.ok} 2>/dev/null || true
}

in_container() {
  [[ -f /.dockerenv || -f /run/.containerenv || -n ${KUBERNETES_SERVICE_HOST:-} ]] ||
    grep -qsa '^container=\|\x00container=' /proc/1/environ
}

# set_rank_environment RANKS_PER_NODE CORES [GPUS]: variables that are already set take precedence. On the CPU, mpzero divides the cores of
# each node among its ranks, but cannot detect a smaller allocation if Slurm does not bind tasks.
set_rank_environment() {
  local threads=$(($2 / $1))
  if ((${3:-0} > 0 || $2 < $(visible_cpus))); then
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}
  fi
  # By default, threads that wait for others spin for milliseconds: if other programs use some cores, a step takes ten times as long.
  [[ -n ${OMP_WAIT_POLICY:-} ]] || export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-10000}
  if [[ $EUID -eq 0 ]]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  # mpzero itself reports errors. (Open MPI 5 has no option --quiet and ignores the variable.)
  export OMPI_MCA_orte_execute_quiet=${OMPI_MCA_orte_execute_quiet:-1}
  # If one rank fails, Open MPI sends SIGTERM to all other ranks, which write failure reports, and SIGKILL after this many seconds. Open MPI
  # 4 waits twice as long, even if all ranks have ended.
  export OMPI_MCA_odls_base_sigkill_timeout=${OMPI_MCA_odls_base_sigkill_timeout:-2}
  export PRTE_MCA_odls_base_sigkill_timeout=${PRTE_MCA_odls_base_sigkill_timeout:-2}
  # Containers usually forbid the system call that Open MPI uses to read other ranks' memory. Each rank would then print a warning.
  if in_container; then
    export OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
  fi
}

# Identify EFA devices by their driver, because names (efa_0, rdmap16s27) depend on the system.
has_efa() {
  local class=${INFINIBAND_CLASS:-/sys/class/infiniband} device
  for device in "$class"/*; do
    [[ -e $device ]] || continue
    [[ ${device##*/} == efa* || $(basename "$(readlink -f "$device/device/driver" 2>/dev/null)") == efa ]] && return 0
  done
  return 1
}

# set_efa_environment GPUS: sets the EFA variables that must be set before the ranks of a multi-node run start. No-op without EFA. mpzero
# itself chooses NCCL's network and verifies it (--network).
set_efa_environment() {
  has_efa || return 0
  # Locations of libfabric and the NCCL plugin from the EFA installer and in the deep learning images.
  local parent=${EFA_PARENT:-/opt} folder
  for folder in "$parent"/amazon/ofi-nccl/lib{,64,/*-linux-gnu} "$parent"/aws-ofi-nccl{,/install}/lib "$parent"/amazon/efa/lib{,64}; do
    [[ ! -d $folder ]] || LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
  done
  # Without libcudart.so, libfabric cannot access GPU memory (complete_cuda_wheel).
  for folder in "$MPZERO_VENV"/lib/python3.*/site-packages/nvidia/cu13/libcudart; do
    [[ ! -d $folder ]] || LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
  done
  [[ -z ${LD_LIBRARY_PATH:-} ]] || export LD_LIBRARY_PATH
  if (($1 == 0)); then
    set_efa_for_mpi
    return
  fi
  # Only for NCCL's bootstrap; data is sent over EFA.
  export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-^docker,lo,veth,virbr}
  # MPI is only used for the rendezvous, over TCP, which leaves the EFA device to NCCL.
  mpi_default OMPI_MCA_pml ob1
  mpi_default OMPI_MCA_btl tcp,self,vader
}

# CPU runs send tensors over MPI: select EFA if this Open MPI supports it. The user's choice takes precedence.
set_efa_for_mpi() {
  [[ -z ${OMPI_MCA_pml:-}${OMPI_MCA_mtl:-}${OMPI_MCA_btl:-} ]] || return 0
  if [[ $(ompi_info --parsable 2>/dev/null) == *mca:mtl:ofi:* ]]; then
    mpi_default OMPI_MCA_pml cm
    mpi_default OMPI_MCA_mtl ofi
    # Open MPI accepts only one of provider_include and provider_exclude.
    [[ -n ${OMPI_MCA_mtl_ofi_provider_exclude:-} ]] ||
      mpi_default OMPI_MCA_mtl_ofi_provider_include efa
    say "MPI uses EFA between CPU ranks (Open MPI's cm and ofi); OMPI_MCA_pml=ob1 selects TCP."
  else
    mpi_default OMPI_MCA_pml ob1
    mpi_default OMPI_MCA_btl tcp,self,vader
    warn "MPI uses TCP between CPU ranks: this Open MPI lacks the ofi MTL, which EFA requires; use the Open MPI of Amazon's EFA installer."
  fi
}

# Succeeds if this cluster binds tasks to cores. The scripts disable binding, because the ranks divide the cores of a node among
# themselves. On a cluster without binding, srun would warn about the option.
slurm_binds_cores() { [[ ! $(scontrol show config 2>/dev/null) =~ TaskPlugin\ *=\ *(task/none|\(null\)) ]]; }
