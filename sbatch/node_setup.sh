#!/usr/bin/env bash
# Prepares a node for mpzero when the node starts. Run it as root: from ParallelCluster's OnNodeConfigured (docs/parallelcluster.md) or a
# lifecycle script of SageMaker HyperPod (docs/hyperpod.md). The script is self-contained and idempotent.
#   node_setup.sh [slurmd | containerd]    the daemon that starts jobs on this node: Slurm's (default) or Kubernetes'
set -euo pipefail

starter=${1:-slurmd}
[[ $starter == slurmd || $starter == containerd ]] || {
  printf 'node_setup: error: %s must be slurmd or containerd.\n' "$starter" >&2
  exit 2
}
root=${NODE_ROOT:-} # root of the output files; empty on a node

# Removes the limit on locked memory, because EFA locks the memory that it sends. Jobs inherit the limit from the daemon that starts them
# and, with Slurm, from the shell that calls sbatch.
unlimit_locked_memory() {
  local limits=$root/etc/security/limits.d/90-mpzero.conf unit=$root/etc/systemd/system/$starter.service.d/90-mpzero.conf
  [[ ! -f $unit ]] || return 0
  mkdir -p "${limits%/*}" "${unit%/*}"
  printf '* %s memlock unlimited\n' soft hard >"$limits"
  printf '[Service]\nLimitMEMLOCK=infinity\n' >"$unit"
  # Running jobs survive a restart of the daemon. The head node does not run slurmd. The file $unit marks completion.
  if ! systemctl daemon-reload || { systemctl --quiet is-active "$starter" && ! systemctl restart "$starter"; }; then
    rm -f "$unit"
    printf 'node_setup: warning: systemd could not restart %s on %s: locked memory remains limited.\n' "$starter" "$(hostname)" >&2
  fi
}

# mpzero loads the Open MPI that it was built with: from the EFA installer, which AWS's images include, or from the system.
install_open_mpi() {
  if command -v mpirun >/dev/null || compgen -G "$root/opt/amazon/openmpi*/bin/mpirun" >/dev/null; then return 0; fi
  if command -v apt-get >/dev/null; then
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends openmpi-bin && return
  else
    dnf install -q -y openmpi && return
  fi
  printf 'node_setup: warning: Open MPI could not be installed on %s; jobs on this node will fail.\n' "$(hostname)" >&2
}

# Only warns: after a failure, ParallelCluster would replace the node repeatedly.
check_driver() {
  local driver
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | sed -n 1p) || return 0
  [[ ! ${driver%%.*} =~ ^[0-9]{1,4}$ ]] || ((${driver%%.*} >= 580)) ||
    printf 'node_setup: warning: NVIDIA driver %s of %s is older than 580, which CUDA 13 requires; use a newer image.\n' "$driver" "$(hostname)" >&2
}

unlimit_locked_memory
# Pods contain their own Open MPI.
[[ $starter == containerd ]] || install_open_mpi
check_driver
