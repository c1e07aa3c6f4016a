#!/usr/bin/env bash
# Process 1 of a virtual Slurm cluster: cluster_init.sh FOLDER NODES CPUS CGROUPS
#
# Started by virtual_slurm.py in namespaces of its own (network, processes, mounts, host name), it sets up the controller and one
# slurmd a node, each node with its own network, host name and /dev/shm, and then waits until its stdin closes. When it ends, for
# whatever reason, the kernel ends every process of the cluster and removes its bridge and links: nothing is left behind and
# nothing can collide with another cluster on the machine.
set -euo pipefail
export folder=$1
nodes=$2 cpus=$3
export cgroups=$4 # true: Slurm confines steps to their cores and GPUs
export SLURM_CONF=$folder/slurm.conf

# Munge of this cluster only, with a key of its own. Each machine has its own daemon: a second node that asked the same one to check
# a job's credential would be told that it is a replay.
start_munge() {
  mount -t tmpfs -o mode=755 tmpfs "$folder/munge"
  munged --key-file="$folder/munge.key" --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" \
    --seed-file="$folder/munge/seed" --log-file="$folder/munge-$(hostname).log"
}
export -f start_munge

# Each node has its own part of the machine's control groups (version 1), as if there were no others.
enter_cgroups() {
  local kind group setting
  for kind in cpu cpuacct cpuset devices freezer memory; do
    group=/sys/fs/cgroup/$kind/${folder##*/}-$(hostname)
    mkdir "$group"
    if [[ $kind == cpuset ]]; then
      for setting in cpus mems; do cat "/sys/fs/cgroup/cpuset/cpuset.$setting" >"$group/cpuset.$setting"; done
    fi
    mount --bind "$group" "/sys/fs/cgroup/$kind"
    echo $$ >"/sys/fs/cgroup/$kind/tasks"
  done
}
export -f enter_cgroups

hostname controller
mount -t tmpfs tmpfs /dev/shm
# A login shell finds Slurm's programs, wherever they are.
mount -t tmpfs tmpfs /etc/profile.d
printf 'PATH=%s\n' "$PATH" >/etc/profile.d/slurm.sh
ip link set lo up
ip link add bridge type bridge
ip addr add 10.77.0.1/24 dev bridge
ip link set bridge up

{
  printf '127.0.0.1 localhost\n10.77.0.1 controller\n'
  for ((i = 0; i < nodes; ++i)); do printf '10.77.0.%d node%d\n' $((10 + i)) "$i"; done
} >"$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts

mkdir "$folder/munge"
dd if=/dev/urandom of="$folder/munge.key" bs=1024 count=1 status=none
chmod 400 "$folder/munge.key"
start_munge

process_plugin=proctrack/linuxproc task_plugin=task/none
if [[ $cgroups == true ]]; then
  process_plugin=proctrack/cgroup task_plugin=task/cgroup,task/affinity
  printf 'CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainCores=yes\nConstrainDevices=yes\n' >"$folder/cgroup.conf"
fi
memory_mb=$(awk '/^MemTotal:/ {print int($2 / 1024 / 2)}' /proc/meminfo)
cat >"$SLURM_CONF" <<CONF
ClusterName=virtual
SlurmctldHost=controller(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
GresTypes=gpu
MpiDefault=none
ProctrackType=$process_plugin
TaskPlugin=$task_plugin
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=1
SlurmdParameters=config_overrides
SlurmctldPidFile=$folder/slurmctld.pid
SlurmctldLogFile=$folder/slurmctld.log
StateSaveLocation=$folder/state
SlurmdPidFile=$folder/%n.pid
SlurmdLogFile=$folder/%n.log
SlurmdSpoolDir=$folder/spool-%n
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
KillWait=10
SlurmdTimeout=20
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
CONF
for ((i = 0; i < nodes; ++i)); do
  printf 'NodeName=node%d NodeHostname=node%d NodeAddr=10.77.0.%d CPUs=%d RealMemory=%d Gres=gpu:2 State=UNKNOWN\n' \
    "$i" "$i" $((10 + i)) "$cpus" "$memory_mb"
done >>"$SLURM_CONF"
# A job of "urgent" takes the nodes of one of "all", which then has GraceTime seconds.
cat >>"$SLURM_CONF" <<CONF
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
CONF

# Slurm gives each node two GPUs, which no driver knows: NVIDIA's device numbers.
mknod "$folder/gpu0" c 195 0
mknod "$folder/gpu1" c 195 1
printf 'Name=gpu File=%s/gpu[0-1]\n' "$folder" >"$folder/gres.conf"

# The nodes share /tmp; what PMIx puts there under the job's number alone goes to each node's own /dev/shm.
printf 'PMIxCliTmpDirBase=/dev/shm\n' >"$folder/mpi.conf"

mkdir -p "$folder/state"
slurmctld -f "$SLURM_CONF"

# A node's namespaces live as long as its slurmd, which $! is: every command on the way is an exec.
for ((i = 0; i < nodes; ++i)); do
  mkdir -p "$folder/spool-node$i"
  mkfifo "$folder/there$i" "$folder/go$i"
  # shellcheck disable=SC2016 # expanded inside the node
  unshare --net --uts --mount --propagation private bash -euc '
    hostname "node$1"
    mount -t tmpfs tmpfs /dev/shm
    echo there >"$0/there$1"
    read -r _ <"$0/go$1"
    ip link set lo up
    ip addr add "10.77.0.$((10 + $1))/24" dev eth0
    ip link set eth0 up
    start_munge
    if [[ $cgroups == true ]]; then enter_cgroups; fi
    exec slurmd -D -f "$SLURM_CONF" -N "node$1"' "$folder" "$i" </dev/null &
  node=$!
  read -r _ <"$folder/there$i"
  ip link add "link$i" type veth peer name eth0 netns "$node"
  ip link set "link$i" master bridge up
  echo go >"$folder/go$i"
done
echo ready
cat >/dev/null
