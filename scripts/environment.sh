# shellcheck shell=bash
# The environment that the ranks run in: CUDA, MPI, threads, NCCL over EFA; and how many ranks there are.

# CUDA_VERSION=12.9 puts the tools of /usr/local/cuda-12.9 first (nsys, compute-sanitizer, a driver compatibility library). The
# compiler and the runtime that mpzero itself is built with come with torch's wheel, whatever this says.
select_cuda() {
  [[ -n ${CUDA_VERSION:-} ]] || return 0
  local folder=${CUDA_PARENT:-/usr/local}/cuda-$CUDA_VERSION
  if [[ ! -d $folder ]]; then
    local there
    there=$(find "${folder%/*}" -maxdepth 1 -name 'cuda-*' -printf '%f ' 2>/dev/null)
    die "CUDA_VERSION=$CUDA_VERSION asks for $folder, which does not exist on $(hostname -s); leave CUDA_VERSION unset or pick one of: ${there:-none installed }"
  fi
  export CUDA_HOME=$folder CUDA_PATH=$folder PATH=$folder/bin:$PATH
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder/lib64
}

# The number of GPUs this shell may use: CUDA_VISIBLE_DEVICES where it is set, else what the driver lists.
count_gpus() {
  if [[ -n ${CUDA_VISIBLE_DEVICES+set} ]]; then
    local -a devices
    IFS=, read -r -a devices <<<"$CUDA_VISIBLE_DEVICES"
    # -1 is how the driver is told that no device may be used.
    if [[ ${devices[0]:-} == -1 ]]; then echo 0; else echo "${#devices[@]}"; fi
  elif command -v nvidia-smi >/dev/null; then
    nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true
  else
    echo 0
  fi
}

# ranks_per_node GPUS CORES: NPROC where it is set, else one rank for each GPU, else two that share the CPU (one on one core).
ranks_per_node() {
  require_number NPROC 1
  if [[ -n ${NPROC:-} ]]; then
    echo "$NPROC"
  elif (($1 > 0)); then
    echo "$1"
  else
    echo $(($2 > 1 ? 2 : 1))
  fi
}

in_container() {
  [[ -f /.dockerenv || -f /run/.containerenv || -n ${KUBERNETES_SERVICE_HOST:-} ]] ||
    { [[ -r /proc/1/environ ]] && grep -qa '^container=\|\x00container=' /proc/1/environ; }
}

# set_rank_environment RANKS_PER_NODE CORES: variables that are already set win.
set_rank_environment() {
  local threads=$(($2 / $1))
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}
  if [[ $EUID -eq 0 ]]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  # Containers usually forbid the system call with which Open MPI reads a neighbour's memory, and it then warns on each rank.
  if in_container; then
    export OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
  fi
}

# An EFA device: by its driver, since its name (efa_0, rdmap16s27) depends on the system.
has_efa() {
  local class=${INFINIBAND_CLASS:-/sys/class/infiniband} device
  for device in "$class"/*; do
    [[ -e $device ]] || continue
    [[ ${device##*/} == efa* || $(basename "$(readlink -f "$device/device/driver" 2>/dev/null)") == efa ]] && return 0
  done
  return 1
}

# NCCL's plugin for libfabric (aws-ofi-nccl), where the EFA installer or the deep learning images put it.
find_efa_plugin() {
  local library
  local -a folders
  IFS=: read -r -a folders <<<"${LD_LIBRARY_PATH:-}"
  for library in "${folders[@]/%//libnccl-net.so}" "${folders[@]/%//libnccl-net-ofi.so}" \
    /opt/amazon/ofi-nccl/lib/libnccl-net.so /opt/amazon/ofi-nccl/lib/*/libnccl-net.so \
    /opt/aws-ofi-nccl/lib/libnccl-net.so /opt/aws-ofi-nccl/install/lib/libnccl-net.so; do
    if [[ -f $library ]]; then
      echo "$library"
      return
    fi
  done
  return 1
}

# set_efa_environment: for runs of several nodes that have EFA. NCCL_NET makes NCCL fail where EFA does not come up; without it
# NCCL would fall back to TCP without a word, at less than half the speed. Elsewhere nothing is set.
set_efa_environment() {
  has_efa || return 0
  local plugin
  if ! plugin=$(find_efa_plugin); then
    warn "$(hostname -s) has EFA but no libnccl-net.so (aws-ofi-nccl) was found, so NCCL will use TCP; install the plugin or put its folder into LD_LIBRARY_PATH."
    return 0
  fi
  export FI_PROVIDER=${FI_PROVIDER:-efa}
  # The plugin's older releases call their network "AWS Libfabric".
  if grep -qa 'AWS Libfabric' "$plugin"; then
    export NCCL_NET=${NCCL_NET:-AWS Libfabric}
  else
    export NCCL_NET=${NCCL_NET:-Libfabric}
  fi
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${plugin%/*}:/opt/amazon/efa/lib
  # For NCCL's start only; the data goes over EFA.
  export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-^docker,lo,veth}
  # MPI carries only the rendezvous here; over TCP it leaves the EFA device to NCCL.
  export OMPI_MCA_pml=${OMPI_MCA_pml:-ob1} OMPI_MCA_btl=${OMPI_MCA_btl:-tcp,self,vader}
  export OMPI_MCA_btl_tcp_if_exclude=${OMPI_MCA_btl_tcp_if_exclude:-lo,docker0}
  say "EFA: NCCL_NET=$NCCL_NET (strict) with $plugin."
}

# SageMaker HyperPod replaces a failed node and restarts the step.
hyperpod_arguments() {
  if [[ -d ${HYPERPOD_FOLDER:-/opt/sagemaker_cluster} ]]; then echo --auto-resume=1; fi
}

# Whether this cluster binds tasks to cores, which mpzero does not want: its ranks share a node by their number of threads. A
# cluster that does not bind would warn when asked not to.
slurm_binds_cores() { [[ ! $(scontrol show config 2>/dev/null) =~ TaskPlugin\ *=\ *(task/none|\(null\)) ]]; }
