# shellcheck shell=bash
# Checks that all pods have started, that they match the job's request, and that the ranks are distributed over the pods. The caller must
# source common.sh and environment.sh, and training.sh for survey_hosts.
#
# Kubeflow Trainer lists the pods in a hostfile with lines HOST slots=RANKS, where HOST is the pod's name, a dot and the job's service.

readonly MPZERO_NOT_AS_ASKED=3 # exit status: pods are missing, or `mpzero doctor` refuses a pod; a new start may get different pods

MPZERO_HOSTS=() # the pods that run ranks, starting with this pod
MPZERO_SLOTS=() # the number of ranks of each pod, from the hostfile

# refuse WORD...: exits because the pods do not match the request. Other pods may match.
refuse() {
  printf 'mpzero: error: %s\n' "$(printable "$*")" >&2 || true
  exit "$MPZERO_NOT_AS_ASKED"
}

# own_pod HOST: succeeds if a host of the hostfile is this pod.
own_pod() { [[ ${1%%.*} == "$(hostname -s)" ]]; }

# read_hostfile FILE: fills MPZERO_HOSTS and MPZERO_SLOTS. This pod comes first, so that rank 0 runs on the pod with the job's log.
read_hostfile() {
  local file=$1 line number=0 host pattern='^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)[[:space:]]+slots=([1-9][0-9]{0,4})[[:space:]]*$'
  local own="" own_slots=""
  MPZERO_HOSTS=()
  MPZERO_SLOTS=()
  [[ -f $file ]] ||
    die "The hostfile $file does not exist; Kubeflow Trainer mounts it into the \"launcher\" job of a runtime with mlPolicy.mpi; to use another file, set MPZERO_HOSTFILE."
  while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    [[ ! $line =~ ^[[:space:]]*(#|$) ]] || continue
    [[ $line =~ $pattern ]] || die "Line $number of $file is '$line', expected 'HOST slots=RANKS'; check the program that wrote the file."
    host=${BASH_REMATCH[1]}
    [[ " $own ${MPZERO_HOSTS[*]} " != *" $host "* ]] || die "$file lists $host twice; list each pod once, with its number of ranks as slots."
    if own_pod "$host"; then
      own=$host own_slots=${BASH_REMATCH[3]}
    else
      MPZERO_HOSTS+=("$host")
      MPZERO_SLOTS+=("${BASH_REMATCH[3]}")
    fi
  done <"$file"
  if [[ -n $own ]]; then
    MPZERO_HOSTS=("$own" "${MPZERO_HOSTS[@]}")
    MPZERO_SLOTS=("$own_slots" "${MPZERO_SLOTS[@]}")
  fi
  ((${#MPZERO_HOSTS[@]} > 0)) || die "$file does not list any hosts."
}

# require_hosts NODES RANKS: checks that the hostfile lists the requested number of hosts with RANKS ranks each; empty: as many ranks as the
# first host.
require_hosts() {
  local nodes=$1 ranks=${2:-${MPZERO_SLOTS[0]}} i
  if ((nodes == 1 && ${#MPZERO_HOSTS[@]} == 2)); then
    die "The job requests 1 node but has 2 pods: with numNodes 1, Kubeflow Trainer starts a pod of the \"node\" job in addition to the launcher; use the mpzero-one-node runtime, which starts only the launcher."
  fi
  ((${#MPZERO_HOSTS[@]} == nodes)) ||
    die "The job requests $(counted "$nodes" node) (MPZERO_NODES), but its hostfile has $(counted "${#MPZERO_HOSTS[@]}" host): ${MPZERO_HOSTS[*]}; numNodes and MPZERO_NODES of the TrainJob must be equal."
  for ((i = 0; i < nodes; ++i)); do
    ((MPZERO_SLOTS[i] == ranks)) ||
      die "The hostfile assigns ${MPZERO_HOSTS[i]} $(counted "${MPZERO_SLOTS[i]}" slot), but each node must have $(counted "$ranks" rank); set numProcPerNode of the TrainJob."
  done
}

# on_pod HOST COMMAND...: runs a command on a pod, with a timeout of one minute if the pod does not respond.
on_pod() {
  local host=$1
  shift
  if own_pod "$host"; then
    "$@"
  else
    ssh -n -F "$MPZERO_ROOT/container/ssh_config" -o ConnectTimeout=10 -o ServerAliveInterval=10 -o ServerAliveCountMax=5 "$host" "$(quoted_words "$@")"
  fi
}

# wait_for_hosts SECONDS: waits until all pods respond, polling them concurrently.
wait_for_hosts() {
  local seconds=$1 folder host began waited=-1
  local -a missing=() asked=()
  folder=$(mktemp -d)
  began=$(seconds_since_boot)
  while :; do
    asked=()
    missing=()
    for host in "${MPZERO_HOSTS[@]}"; do
      [[ -e $folder/$host ]] || { { on_pod "$host" true && : >"$folder/$host"; } >/dev/null 2>"$folder/$host.said" & asked+=($!); }
    done
    ((${#asked[@]} == 0)) || wait "${asked[@]}" || true
    for host in "${MPZERO_HOSTS[@]}"; do [[ -e $folder/$host ]] || missing+=("$host"); done
    ((${#missing[@]} > 0)) || break
    if [[ -n $MPZERO_STOP ]]; then
      rm -rf "$folder"
      end_with "$MPZERO_ENDED_BY_SIGUSR1"
    fi
    if (($(seconds_since_boot) - began >= seconds)); then
      refuse "$(counted "${#missing[@]}" pod) of ${#MPZERO_HOSTS[@]} did not respond within $seconds s (MPZERO_WAIT): ${missing[*]} ($(tail -n 1 "$folder/${missing[0]}.said" 2>/dev/null)); 'kubectl describe pod' shows the reason."
    fi
    if ((waited < 0 || $(seconds_since_boot) - waited >= 60)); then
      waited=$(seconds_since_boot)
      say "Waiting for $(counted "${#missing[@]}" pod) of ${#MPZERO_HOSTS[@]}: ${missing[*]}."
    fi
    run_interruptibly sleep "${MPZERO_ASK_SECONDS:-2}" || true
  done
  rm -rf "$folder"
}

# survey_pod: describes this pod in one line: its name, GPUs, EFA devices, cores, MiB of /dev/shm, checksum of the program, and Kubernetes
# node. container/survey runs it on each pod.
survey_pod() {
  printf 'survey %s gpus=%s efa=%s cores=%s shm=%s programs=%s node=%s\n' "${MPZERO_HOST:-$(hostname)}" "$(pod_gpus)" "$(efa_devices)" "$(visible_cpus)" \
    "$(df --output=size --block-size=1M /dev/shm 2>/dev/null | tail -n 1 | tr -d ' ')" \
    "$(sha256sum <"$MPZERO_BUILD/bin/mpzero" | cut -c 1-16)" "${MPZERO_NODE_NAME:-unknown}"
  failing_driver | sed 's/^/driver /'
}

# pod_gpus: the number of GPUs that the driver lists or, in an image without nvidia-smi, the number of device files.
pod_gpus() {
  if command -v nvidia-smi >/dev/null; then
    nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true
  else
    gpu_files | wc -l
  fi
}

# gpu_files: the GPUs that the pod may open, one per line.
gpu_files() { compgen -G "${NVIDIA_DEVICES:-/dev}/nvidia[0-9]*" || true; }

# failing_driver: nvidia-smi's message in one line and its status, if nvidia-smi fails in a pod with GPUs. (It also fails in a pod without
# device files, which has no GPUs.)
failing_driver() {
  local said code=0
  command -v nvidia-smi >/dev/null && [[ -n $(gpu_files) ]] || return 0
  said=$(nvidia-smi -L 2>&1) || code=$?
  ((code == 0)) || printf '%s (status %d)\n' "$(tr -s '[:space:]' ' ' <<<"$said" | cut -c 1-300 | sed 's/ $//')" "$code"
}

# efa_devices: "2/4" if this pod may open 2 of the host's 4 devices. All devices are in /sys, but only the pod's devices have device files.
efa_devices() {
  local class=${INFINIBAND_CLASS:-/sys/class/infiniband} files=${INFINIBAND_DEVICES:-/dev/infiniband} device own=0 all=0
  for device in "$class"/*/device/infiniband_verbs/uverbs*; do
    [[ $(basename "$(readlink -f "${device%/infiniband_verbs/*}/driver" 2>/dev/null)") == efa ]] || continue
    all=$((all + 1))
    [[ ! -e $files/${device##*/} ]] || own=$((own + 1))
  done
  echo "$own/$all"
}

# Responses of other pods are untrusted: refuse lines of any other form before reading a field.
MPZERO_SURVEY='^survey [A-Za-z0-9._-]{1,255} gpus=(0|[1-9][0-9]{0,5}) efa=(0|[1-9][0-9]{0,5})/(0|[1-9][0-9]{0,5}) '
MPZERO_SURVEY+='cores=[0-9]{1,6} shm=[0-9]{0,12} programs=[0-9a-f]{0,64} node=[A-Za-z0-9._-]{1,255}$'
readonly MPZERO_SURVEY

# surveyed FIELD LINE: the value of a field in a line of survey_pod that matches MPZERO_SURVEY.
surveyed() { [[ " $2 " =~ \ $1=([^ ]*)\  ]] && printf '%s\n' "${BASH_REMATCH[1]}"; }

# survey_hosts GPUS EFA RANKS USED_GPUS: checks that every pod has the requested devices (empty: not requested), meets the requirements of
# RANKS ranks on USED_GPUS GPUs, and has the same programs. Prints the devices of each pod.
survey_hosts() {
  local host line first="" folder address report=""
  local -a asking=()
  folder=$(mktemp -d)
  address=$(first_address "${MPZERO_HOSTS[@]}") || true
  for host in "${MPZERO_HOSTS[@]}"; do
    on_pod "$host" "$MPZERO_ROOT/container/survey" "$3" "$4" "$address" >"$folder/$host" 2>"$folder/$host.said" &
    asking+=($!)
  done
  wait "${asking[@]}" || true
  # A signal ends the wait: do not report pods that have not responded yet.
  if [[ -n $MPZERO_STOP ]]; then
    rm -rf "$folder"
    end_with "$MPZERO_ENDED_BY_SIGUSR1"
  fi
  for host in "${MPZERO_HOSTS[@]}"; do
    line=$(grep -m 1 '^survey ' "$folder/$host") ||
      refuse "$host did not report its devices ($(tail -n 1 "$folder/$host.said")); see its log: kubectl logs ${host%%.*}."
    [[ $line =~ $MPZERO_SURVEY ]] ||
      refuse "$host replied to the survey with '${line:0:300}', which is not the output of container/survey; see its log: kubectl logs ${host%%.*}."
    say "$host: $(surveyed gpus "$line") GPUs, $(surveyed efa "$line") EFA devices, $(surveyed cores "$line") cores, /dev/shm of $(surveyed shm "$line") MiB, on node $(surveyed node "$line")."
    [[ -n $first ]] || first=$line
    judge_driver "$host" "$line" "$(sed -n 's/^driver //p' "$folder/$host")"
    judge_pod "$host" "$line" "$1" "$2"
    [[ $(surveyed programs "$line") == "$(surveyed programs "$first")" ]] ||
      die "$host runs a different build of mpzero than ${MPZERO_HOSTS[0]}: trainer.image of a TrainJob changes only the launcher's image; remove it, and set the image of both jobs in the runtime."
    report+=$(sed -n "s/^\(warning\|problem\|route\) /$host &/p" "$folder/$host")$'\n'
  done
  rm -rf "$folder"
  judge_machines "${#MPZERO_HOSTS[@]}" "$report"
}

# judge_driver HOST LINE WORDS: exits with these words and the node's name if nvidia-smi fails in a pod with GPUs.
judge_driver() {
  local host=$1 line=$2 words=$3
  [[ -z $words ]] || on_cpu ||
    refuse "The NVIDIA driver on $host is not working: nvidia-smi printed '$words'; 'kubectl cordon $(surveyed node "$line")' excludes its node from the next start."
}

# judge_pod HOST LINE GPUS EFA: exits if the devices of a pod differ from the request. (A run on fewer EFA devices than the node
# has is slower. Without EFA devices in the pod, NCCL would find devices in /sys and fail to open them.)
judge_pod() {
  local host=$1 line=$2 gpus=$3 efa=$4 devices has all older
  older="resourcesPerNode of the TrainJob requests them, but older releases of Kubeflow Trainer assign them only to the launcher"
  has=$(surveyed gpus "$line")
  [[ -z $gpus ]] || ((gpus == 0 || has == 0 || has >= gpus)) ||
    refuse "$host has $(counted "$has" GPU), but the job requests $gpus per node (MPZERO_GPUS): a GPU has failed; run 'nvidia-smi' in the pod to identify it, and exclude the node from the next start: kubectl cordon $(surveyed node "$line")."
  [[ -z $gpus ]] || ((gpus == 0)) || [[ $has == "$gpus" ]] ||
    die "$host has $(counted "$has" GPU), but the job requests $gpus per node (MPZERO_GPUS): $older (nvidia.com/gpu)."
  devices=$(surveyed efa "$line")
  has=${devices%/*} all=${devices#*/}
  [[ -z $efa || $has == "$efa" ]] ||
    die "$host has $(counted "$has" "EFA device"), but the job requests $efa per node (MPZERO_EFA): $older (vpc.amazonaws.com/efa)."
  ((has > 0 || all == 0 || ${#MPZERO_HOSTS[@]} == 1)) || [[ ${NETWORK:-} == socket ]] ||
    die "The node of $host has $(counted "$all" "EFA device"), but the pod has none; request vpc.amazonaws.com/efa in resourcesPerNode, or set NETWORK=socket to train over TCP."
}

# choose_pod_launcher FILE RANKS: fills MPZERO_MPIRUN, and writes its hostfile to FILE. Open MPI 4 and 5 read different variables. Open MPI
# 5 silently ignores the variables of Open MPI 4 and would start all ranks on this pod.
choose_pod_launcher() {
  local file=$1 ranks=$2 host name
  {
    for host in "${MPZERO_HOSTS[@]}"; do
      # mpirun identifies its own host by this name.
      if own_pod "$host"; then name=$(hostname); else name=$host; fi
      printf '%s slots=%s\n' "$name" "$ranks"
    done
  } >"$file" || die "$file, the hostfile for mpirun, cannot be written; set TMPDIR to a writable folder."
  export OMPI_MCA_orte_default_hostfile=$file PRTE_MCA_prte_default_hostfile=$file
  # Open MPI 4 would strip domains, without which pod names cannot be resolved. Open MPI 5 would not recognize its own host with a domain.
  export OMPI_MCA_orte_keep_fqdn_hostnames=true PRTE_MCA_prte_keep_fqdn_hostnames=false
  export OMPI_MCA_plm_rsh_args="-F $MPZERO_ROOT/container/ssh_config" PRTE_MCA_plm_ssh_args="-F $MPZERO_ROOT/container/ssh_config"
  export OMPI_MCA_plm_rsh_no_tree_spawn=1 PRTE_MCA_plm_ssh_no_tree_spawn=1
  unset OMPI_MCA_orte_set_default_slots PRTE_MCA_prte_set_default_slots
  MPZERO_MPIRUN=(mpirun --hostfile "$file" --bind-to none --map-by "ppr:$ranks:node" -n "$((${#MPZERO_HOSTS[@]} * ranks))")
}

# pass_variables: adds this pod's variables and those in MPZERO_PASS to MPZERO_MPIRUN, because sshd does not forward them to other pods.
pass_variables() {
  local name
  local pattern='^(NCCL|FI|OFI|OMP|GOMP|CUDA|MKL|HF|AWS_EC2_METADATA|PYTORCH|TORCH|HDF5|MPZERO|GLIBC|MALLOC|TZ|LANG|LC)(_|$)|^LD_LIBRARY_PATH$'
  # Variables with a separate value in each pod.
  local own='^MPZERO_(HOST|NODE_NAME|HOSTFILE|ROOT|BUILD|VENV|USER_FOLDER)$'
  read_words MPZERO_PASS
  for name in $(compgen -e); do
    [[ $name =~ $pattern || " ${MPZERO_WORDS[*]} " == *" $name "* ]] || continue
    [[ $name =~ $own ]] || MPZERO_MPIRUN+=(-x "$name")
  done
}

# run_ranks SECONDS COMMAND...: runs a command on all ranks with a time limit (0: none); returns mpirun's exit status.
run_ranks() {
  local seconds=$1 file watcher code=0
  shift
  if ((seconds > 0)); then
    run_interruptibly "${MPZERO_MPIRUN[@]}" --timeout "$seconds" "$@" || code=$?
    return "$(status_of_start "$code")"
  fi
  file=$(mktemp)
  watch_mpirun "$file" &
  watcher=$!
  # A stop signal is repeated until mpirun ends, but mpirun restores the initial handlers earlier. Ignore the signal initially, because it
  # would otherwise end mpirun before mpirun reports the ranks' status. The ranks start with default handlers.
  # shellcheck disable=SC2016 # the new shell expands it
  run_interruptibly bash -c 'trap "" USR1; echo $$ >"$0" && exec "$@"' "$file" "${MPZERO_MPIRUN[@]}" env --default-signal=USR1 "$@" || code=$?
  end_process TERM "$watcher"
  rm -f "$file"
  return "$(status_of_start "$code")"
}

# watch_mpirun FILE: ends mpirun, whose process id is in the file, if it continues after this pod's ranks have ended, as observed with Open
# MPI 5. The ranks monitor each other, but not mpirun.
watch_mpirun() {
  local file=$1 seen=false patience gone=0
  patience=$(positive_number_or "${MPZERO_MPIRUN_PATIENCE:-}" 120)
  while sleep 1; do
    if pgrep --exact mpzero >/dev/null; then
      seen=true gone=0
    elif [[ $seen == true ]]; then
      gone=$((gone + 1))
      ((gone >= patience)) || continue
      warn "mpirun is still running $patience s after the ranks of this pod ended; killing mpirun."
      kill -KILL "$(<"$file")" 2>/dev/null || true
      return
    fi
  done
}

# count_ranks RANKS: starts as many processes as the run will have, and counts them per pod.
count_ranks() {
  local ranks=$1 file code=0 spread
  file=$(mktemp)
  # shellcheck disable=SC2016 # expanded on the pods
  run_ranks 120 bash -c 'printf "rank on %s\n" "$(hostname)"' >"$file" || code=$?
  [[ -z $MPZERO_STOP ]] || end_with "$code"
  ((code == 0)) || refuse "mpirun could not start $(counted "$((${#MPZERO_HOSTS[@]} * ranks))" process) on $(counted "${#MPZERO_HOSTS[@]}" pod) (status $code); see its message above."
  # Lines "POD has 4".
  spread=$(sed -n 's/^rank on //p' "$file" | sort | uniq --count | awk '{print $2 " has " $1}')
  rm -f "$file"
  if [[ $(wc -l <<<"$spread") != "${#MPZERO_HOSTS[@]}" ]] || grep --quiet --invert-match " has $ranks\$" <<<"$spread"; then
    die "The job requests $(counted "$ranks" rank) on each of $(counted "${#MPZERO_HOSTS[@]}" pod), but mpirun started different numbers of ranks (${spread//$'\n'/, }): mpirun ignores the hostfile; 'env | grep MCA' shows variables that may override it."
  fi
}
