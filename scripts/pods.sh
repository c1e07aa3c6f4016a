# shellcheck shell=bash
# What a run asks of the pods that Kubernetes has given it: that all are there, that they are what the job asked for, and that the ranks
# are spread over them. The caller has sourced common.sh and environment.sh, and for survey_hosts training.sh.
#
# Kubeflow Trainer lists the pods in a hostfile, HOST slots=RANKS in each line, where HOST is the pod's name, a dot and the job's service.

readonly MPZERO_NOT_AS_ASKED=3 # exit status: the pods are not there, or `mpzero doctor` refuses one. Another start may get others.

MPZERO_HOSTS=() # the pods that run ranks, this one first
MPZERO_SLOTS=() # the ranks of each, as the hostfile has it

# refuse WORD...: ends the script, since the pods are not what was asked for and others may be.
refuse() {
  printf 'mpzero: error: %s\n' "$(printable "$*")" >&2 || true
  exit "$MPZERO_NOT_AS_ASKED"
}

# own_pod HOST: whether a host of the hostfile is this pod.
own_pod() { [[ ${1%%.*} == "$(hostname -s)" ]]; }

# read_hostfile FILE: fills MPZERO_HOSTS and MPZERO_SLOTS. This pod comes first, so that rank 0 runs where the job's log is.
read_hostfile() {
  local file=$1 line number=0 host pattern='^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)[[:space:]]+slots=([1-9][0-9]{0,4})[[:space:]]*$'
  local own="" own_slots=""
  MPZERO_HOSTS=()
  MPZERO_SLOTS=()
  [[ -f $file ]] ||
    die "There is no hostfile $file; Kubeflow Trainer mounts it into the job \"launcher\" of a runtime whose mlPolicy has mpi, or MPZERO_HOSTFILE names another."
  while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    [[ ! $line =~ ^[[:space:]]*(#|$) ]] || continue
    [[ $line =~ $pattern ]] || die "Line $number of $file is '$line', which is not 'HOST slots=RANKS'; see what has written it."
    host=${BASH_REMATCH[1]}
    [[ " $own ${MPZERO_HOSTS[*]} " != *" $host "* ]] || die "$file lists $host twice; each pod is listed once, with the number of its ranks as slots."
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
  ((${#MPZERO_HOSTS[@]} > 0)) || die "$file lists no host."
}

# require_hosts NODES RANKS: the hostfile has as many hosts as the job asked for, and each as many ranks; RANKS empty: as many as the first.
require_hosts() {
  local nodes=$1 ranks=${2:-${MPZERO_SLOTS[0]}} i
  if ((nodes == 1 && ${#MPZERO_HOSTS[@]} == 2)); then
    die "The job asks for 1 node and has 2 pods: with numNodes 1 Kubeflow Trainer starts a pod of the job \"node\" beside the launcher; use the runtime mpzero-one-node, which has no such job."
  fi
  ((${#MPZERO_HOSTS[@]} == nodes)) ||
    die "The job asks for $(counted "$nodes" node) (MPZERO_NODES), but its hostfile has $(counted "${#MPZERO_HOSTS[@]}" host): ${MPZERO_HOSTS[*]}; numNodes and MPZERO_NODES of the TrainJob must be equal."
  for ((i = 0; i < nodes; ++i)); do
    ((MPZERO_SLOTS[i] == ranks)) ||
      die "The hostfile gives ${MPZERO_HOSTS[i]} $(counted "${MPZERO_SLOTS[i]}" slot), and each node is to have $(counted "$ranks" rank); numProcPerNode of the TrainJob says how many."
  done
}

# on_pod HOST COMMAND...: runs a command there, and gives up after a minute where the pod does not answer.
on_pod() {
  local host=$1
  shift
  if own_pod "$host"; then
    "$@"
  else
    ssh -n -F "$MPZERO_ROOT/container/ssh_config" -o ConnectTimeout=10 -o ServerAliveInterval=10 -o ServerAliveCountMax=5 "$host" "$(quoted_words "$@")"
  fi
}

# wait_for_hosts SECONDS: until every pod answers. All are asked at once, again and again.
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
      refuse "$(counted "${#missing[@]}" pod) of ${#MPZERO_HOSTS[@]} did not answer within $seconds s (MPZERO_WAIT): ${missing[*]} ($(tail -n 1 "$folder/${missing[0]}.said" 2>/dev/null)); 'kubectl describe pod' says what it waits for."
    fi
    if ((waited < 0 || $(seconds_since_boot) - waited >= 60)); then
      waited=$(seconds_since_boot)
      say "Waiting for $(counted "${#missing[@]}" pod) of ${#MPZERO_HOSTS[@]}: ${missing[*]}."
    fi
    run_interruptibly sleep "${MPZERO_ASK_SECONDS:-2}" || true
  done
  rm -rf "$folder"
}

# survey_pod: what this pod has, in a line: its name, GPUs, EFA devices, cores, MiB of /dev/shm, the programs' checksum, the node of
# Kubernetes. container/survey runs it on each.
survey_pod() {
  printf 'survey %s gpus=%s efa=%s cores=%s shm=%s programs=%s node=%s\n' "${MPZERO_HOST:-$(hostname)}" "$(pod_gpus)" "$(efa_devices)" "$(visible_cpus)" \
    "$(df --output=size --block-size=1M /dev/shm 2>/dev/null | tail -n 1 | tr -d ' ')" \
    "$(sha256sum <"$MPZERO_BUILD/bin/mpzero" | cut -c 1-16)" "${MPZERO_NODE_NAME:-unknown}"
  failing_driver | sed 's/^/driver /'
}

# pod_gpus: those that the driver shows, else, where the image has no nvidia-smi, the device files.
pod_gpus() {
  if command -v nvidia-smi >/dev/null; then
    nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true
  else
    gpu_files | wc -l
  fi
}

# gpu_files: the GPUs that the pod may open, a line each.
gpu_files() { compgen -G "${NVIDIA_DEVICES:-/dev}/nvidia[0-9]*" || true; }

# failing_driver: what nvidia-smi says in a line, and its status, where the pod was given GPUs and it fails. Without a device file it fails,
# too: such a pod was given none.
failing_driver() {
  local said code=0
  command -v nvidia-smi >/dev/null && [[ -n $(gpu_files) ]] || return 0
  said=$(nvidia-smi -L 2>&1) || code=$?
  ((code == 0)) || printf '%s (status %d)\n' "$(tr -s '[:space:]' ' ' <<<"$said" | cut -c 1-300 | sed 's/ $//')" "$code"
}

# efa_devices: "2/4": this pod may open 2 of the machine's 4. The kernel shows all of them in /sys; the pod's own are device files.
efa_devices() {
  local class=${INFINIBAND_CLASS:-/sys/class/infiniband} files=${INFINIBAND_DEVICES:-/dev/infiniband} device own=0 all=0
  for device in "$class"/*/device/infiniband_verbs/uverbs*; do
    [[ $(basename "$(readlink -f "${device%/infiniband_verbs/*}/driver" 2>/dev/null)") == efa ]] || continue
    all=$((all + 1))
    [[ ! -e $files/${device##*/} ]] || own=$((own + 1))
  done
  echo "$own/$all"
}

# What another pod answers is text from outside: a line of any other form is refused before a field of it is looked at.
MPZERO_SURVEY='^survey [A-Za-z0-9._-]{1,255} gpus=(0|[1-9][0-9]{0,5}) efa=(0|[1-9][0-9]{0,5})/(0|[1-9][0-9]{0,5}) '
MPZERO_SURVEY+='cores=[0-9]{1,6} shm=[0-9]{0,12} programs=[0-9a-f]{0,64} node=[A-Za-z0-9._-]{1,255}$'
readonly MPZERO_SURVEY

# surveyed FIELD LINE: the value of a field of survey_pod's, in a line of the form MPZERO_SURVEY.
surveyed() { [[ " $2 " =~ \ $1=([^ ]*)\  ]] && printf '%s\n' "${BASH_REMATCH[1]}"; }

# survey_hosts GPUS EFA RANKS USED_GPUS: every pod has what was asked of each (empty: not asked), what so many ranks on so many GPUs need, and
# the same programs. Says what each has.
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
  # A signal ends the wait, and those that have not said anything yet are not to blame.
  if [[ -n $MPZERO_STOP ]]; then
    rm -rf "$folder"
    end_with "$MPZERO_ENDED_BY_SIGUSR1"
  fi
  for host in "${MPZERO_HOSTS[@]}"; do
    line=$(grep -m 1 '^survey ' "$folder/$host") ||
      refuse "$host does not say what it has ($(tail -n 1 "$folder/$host.said")); look at its log: kubectl logs ${host%%.*}."
    [[ $line =~ $MPZERO_SURVEY ]] ||
      refuse "$host answers the survey with '${line:0:300}', which container/survey does not; look at its log: kubectl logs ${host%%.*}."
    say "$host: $(surveyed gpus "$line") GPUs, $(surveyed efa "$line") EFA devices, $(surveyed cores "$line") cores, /dev/shm of $(surveyed shm "$line") MiB, on the node $(surveyed node "$line")."
    [[ -n $first ]] || first=$line
    judge_driver "$host" "$line" "$(sed -n 's/^driver //p' "$folder/$host")"
    judge_pod "$host" "$line" "$1" "$2"
    [[ $(surveyed programs "$line") == "$(surveyed programs "$first")" ]] ||
      die "$host runs another mpzero than ${MPZERO_HOSTS[0]}: trainer.image of a TrainJob changes the launcher's image alone; leave it out, and set the image in the runtime, for both jobs."
    report+=$(sed -n "s/^\(warning\|problem\|route\) /$host &/p" "$folder/$host")$'\n'
  done
  rm -rf "$folder"
  judge_machines "${#MPZERO_HOSTS[@]}" "$report"
}

# judge_driver HOST LINE WORDS: ends the script where nvidia-smi fails in a pod with GPUs, with these words. It is the node's fault.
judge_driver() {
  local host=$1 line=$2 words=$3
  [[ -z $words ]] || on_cpu ||
    refuse "The NVIDIA driver of $host fails: nvidia-smi says '$words'; 'kubectl cordon $(surveyed node "$line")' keeps the next start off its node."
}

# judge_pod HOST LINE GPUS EFA: ends the script where a pod has other devices than was asked for. (A run on fewer EFA devices than the node
# has is slower; on none, NCCL would see those of /sys, and fail to open them.)
judge_pod() {
  local host=$1 line=$2 gpus=$3 efa=$4 devices has all older
  older="resourcesPerNode of the TrainJob asks for them, and an older Kubeflow Trainer then gives them to the launcher alone"
  has=$(surveyed gpus "$line")
  [[ -z $gpus ]] || ((gpus == 0 || has == 0 || has >= gpus)) ||
    refuse "$host has $(counted "$has" GPU), and the job asks for $gpus a node (MPZERO_GPUS): one has failed; 'nvidia-smi' in the pod says which, and 'kubectl cordon NODE' keeps the next start off the node $(surveyed node "$line")."
  [[ -z $gpus ]] || ((gpus == 0)) || [[ $has == "$gpus" ]] ||
    die "$host has $(counted "$has" GPU), and the job asks for $gpus a node (MPZERO_GPUS): $older (nvidia.com/gpu)."
  devices=$(surveyed efa "$line")
  has=${devices%/*} all=${devices#*/}
  [[ -z $efa || $has == "$efa" ]] ||
    die "$host has $(counted "$has" "EFA device"), and the job asks for $efa a node (MPZERO_EFA): $older (vpc.amazonaws.com/efa)."
  ((has > 0 || all == 0 || ${#MPZERO_HOSTS[@]} == 1)) || [[ ${NETWORK:-} == socket ]] ||
    die "The node of $host has $(counted "$all" "EFA device"), and the pod was given none; ask for vpc.amazonaws.com/efa in resourcesPerNode, or set NETWORK=socket to train over TCP."
}

# choose_pod_launcher FILE RANKS: fills MPZERO_MPIRUN, with a hostfile of its own in FILE. Open MPI 4 and 5 take different variables, and
# Open MPI 5 passes over those of 4 without a word: it would start all ranks on this pod.
choose_pod_launcher() {
  local file=$1 ranks=$2 host name
  {
    for host in "${MPZERO_HOSTS[@]}"; do
      # The name under which mpirun knows itself.
      if own_pod "$host"; then name=$(hostname); else name=$host; fi
      printf '%s slots=%s\n' "$name" "$ranks"
    done
  } >"$file" || die "$file, the hostfile for mpirun, cannot be written; set TMPDIR to a folder that can be."
  export OMPI_MCA_orte_default_hostfile=$file PRTE_MCA_prte_default_hostfile=$file
  # Open MPI 4 would cut off the names' domains, without which pods have no address. Open MPI 5 then takes itself for another host.
  export OMPI_MCA_orte_keep_fqdn_hostnames=true PRTE_MCA_prte_keep_fqdn_hostnames=false
  export OMPI_MCA_plm_rsh_args="-F $MPZERO_ROOT/container/ssh_config" PRTE_MCA_plm_ssh_args="-F $MPZERO_ROOT/container/ssh_config"
  export OMPI_MCA_plm_rsh_no_tree_spawn=1 PRTE_MCA_plm_ssh_no_tree_spawn=1
  unset OMPI_MCA_orte_set_default_slots PRTE_MCA_prte_set_default_slots
  MPZERO_MPIRUN=(mpirun --hostfile "$file" --bind-to none --map-by "ppr:$ranks:node" -n "$((${#MPZERO_HOSTS[@]} * ranks))")
}

# pass_variables: adds to MPZERO_MPIRUN what the ranks of other pods get of this pod's variables: sshd passes none on. MPZERO_PASS holds
# further names.
pass_variables() {
  local name
  local pattern='^(NCCL|FI|OFI|OMP|CUDA|MKL|HF|AWS_EC2_METADATA|PYTORCH|TORCH|HDF5|MPZERO|GLIBC|MALLOC|TZ|LANG|LC)(_|$)|^LD_LIBRARY_PATH$'
  # Each pod has its own.
  local own='^MPZERO_(HOST|NODE_NAME|HOSTFILE|ROOT|BUILD|VENV|USER_FOLDER)$'
  read_words MPZERO_PASS
  for name in $(compgen -e); do
    [[ $name =~ $pattern || " ${MPZERO_WORDS[*]} " == *" $name "* ]] || continue
    [[ $name =~ $own ]] || MPZERO_MPIRUN+=(-x "$name")
  done
}

# run_ranks SECONDS COMMAND...: on all ranks, for so many seconds at most (0: as long as it takes); returns mpirun's exit status.
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
  # A stop is repeated until mpirun ends, and mpirun drops its handlers before that: it would be ended by the signal instead of telling
  # how the ranks ended. What it has found ignored is ignored again then. The ranks start with what is usual.
  # shellcheck disable=SC2016 # the new shell expands it
  run_interruptibly bash -c 'trap "" USR1; echo $$ >"$0" && exec "$@"' "$file" "${MPZERO_MPIRUN[@]}" env --default-signal=USR1 "$@" || code=$?
  end_process TERM "$watcher"
  rm -f "$file"
  return "$(status_of_start "$code")"
}

# watch_mpirun FILE: ends mpirun, whose process id is in the file, where it goes on although this pod's ranks have ended, as mpirun of Open
# MPI 5 was seen to. The ranks watch each other, and nobody watches mpirun.
watch_mpirun() {
  local file=$1 seen=false patience gone=0
  patience=$(positive_number_or "${MPZERO_MPIRUN_PATIENCE:-}" 120)
  while sleep 1; do
    if pgrep --exact mpzero >/dev/null; then
      seen=true gone=0
    elif [[ $seen == true ]]; then
      gone=$((gone + 1))
      ((gone >= patience)) || continue
      warn "mpirun goes on although no rank has run in this pod for $patience s: it is ended."
      kill -KILL "$(<"$file")" 2>/dev/null || true
      return
    fi
  done
}

# count_ranks RANKS: starts as many processes as the run will have, and counts where they are.
count_ranks() {
  local ranks=$1 file code=0 spread
  file=$(mktemp)
  # shellcheck disable=SC2016 # expanded on the pods
  run_ranks 120 bash -c 'printf "rank on %s\n" "$(hostname)"' >"$file" || code=$?
  [[ -z $MPZERO_STOP ]] || end_with "$code"
  ((code == 0)) || refuse "mpirun could not start $(counted "$((${#MPZERO_HOSTS[@]} * ranks))" process) on $(counted "${#MPZERO_HOSTS[@]}" pod) (status $code), and says why above."
  # Lines "POD has 4".
  spread=$(sed -n 's/^rank on //p' "$file" | sort | uniq --count | awk '{print $2 " has " $1}')
  rm -f "$file"
  if [[ $(wc -l <<<"$spread") != "${#MPZERO_HOSTS[@]}" ]] || grep --quiet --invert-match " has $ranks\$" <<<"$spread"; then
    die "The job asks for $(counted "$ranks" rank) on each of $(counted "${#MPZERO_HOSTS[@]}" pod), but of mpirun's processes ${spread//$'\n'/, }: it does not follow the hostfile; 'env | grep MCA' shows what it may follow instead."
  fi
}
