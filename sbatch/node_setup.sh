#!/usr/bin/env bash
# Prepares a node for mpzero, as root, when the node starts: OnNodeConfigured of ParallelCluster (docs/parallelcluster.md), a lifecycle script
# of SageMaker HyperPod (docs/hyperpod.md). It needs no other file, and may run again.
#   node_setup.sh [slurmd | containerd]    what starts jobs on this node: Slurm (the default), or Kubernetes
set -euo pipefail

starter=${1:-slurmd}
[[ $starter == slurmd || $starter == containerd ]] || {
  printf 'node_setup: error: %s is neither slurmd nor containerd.\n' "$starter" >&2
  exit 2
}
root=${NODE_ROOT:-} # root of its output files; empty on a node

# Jobs inherit the limit of locked memory from the daemon that starts them and, under Slurm, from the shell that calls sbatch. EFA locks the
# memory that it sends.
unlimit_locked_memory() {
  local limits=$root/etc/security/limits.d/90-mpzero.conf unit=$root/etc/systemd/system/$starter.service.d/90-mpzero.conf
  [[ ! -f $unit ]] || return 0
  mkdir -p "${limits%/*}" "${unit%/*}"
  printf '* %s memlock unlimited\n' soft hard >"$limits"
  printf '[Service]\nLimitMEMLOCK=infinity\n' >"$unit"
  # Running jobs survive a restart. The head node has no slurmd. The file marks that all of this is done.
  if ! systemctl daemon-reload || { systemctl --quiet is-active "$starter" && ! systemctl restart "$starter"; }; then
    rm -f "$unit"
    printf 'node_setup: warning: systemd could not restart %s on %s: locked memory stays limited.\n' "$starter" "$(hostname)" >&2
  fi
}

# The programs load the Open MPI that they were built with: the EFA installer's, which AWS's images have, or the system's.
install_open_mpi() {
  if command -v mpirun >/dev/null || compgen -G "$root/opt/amazon/openmpi*/bin/mpirun" >/dev/null; then return 0; fi
  if command -v apt-get >/dev/null; then
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends openmpi-bin && return
  else
    dnf install -q -y openmpi && return
  fi
  printf 'node_setup: warning: Open MPI could not be installed on %s; jobs will report this node.\n' "$(hostname)" >&2
}

# Only a warning: if this script fails, ParallelCluster replaces the node again and again.
check_driver() {
  local driver
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | sed -n 1p) || return 0
  [[ ! ${driver%%.*} =~ ^[0-9]{1,4}$ ]] || ((${driver%%.*} >= 580)) ||
    printf 'node_setup: warning: NVIDIA driver %s of %s is older than 580, which CUDA 13 needs; use a newer image.\n' "$driver" "$(hostname)" >&2
}

unlimit_locked_memory
# Pods contain their own.
[[ $starter == containerd ]] || install_open_mpi
check_driver
