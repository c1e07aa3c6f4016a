# shellcheck shell=bash
# What MPI and the ranks need of this machine before they start: room in two folders, processes, and files of some size. Without it Open MPI
# fails with a signal, and no word of the reason.

# require_machine RANKS: ends the script where this machine has too little for so many ranks.
require_machine() {
  local ranks=$1 folder=${TMPDIR:-${TEMP:-${TMP:-/tmp}}} shared=${SHARED_MEMORY:-/dev/shm} size limit used need
  size=$(ulimit -f)
  if [[ $size != unlimited ]]; then
    ((size >= 65536)) || die "'ulimit -f' limits files to $size KiB, too little for a checkpoint; 'ulimit -f unlimited' lifts the limit."
    warn "'ulimit -f' limits files to $((size / 1024)) MiB: a checkpoint with a larger file ends the run; 'ulimit -f unlimited' lifts the limit."
  fi
  require_room "$folder" 1 "Open MPI puts its sockets there; free some of it, or set TMPDIR to another folder"
  # The ranks of a machine exchange messages in it, each through 4 MiB.
  [[ ! -d $shared ]] ||
    require_room "$shared" $((4 * ranks + 1)) "the ranks exchange messages in it; remove what is in it, or enlarge it: mount -o remount,size=50% $shared"
  limit=$(process_limit)
  if [[ $limit != unlimited ]]; then
    used=$(ps --no-headers -L -U "$EUID" 2>/dev/null | wc -l)
    # Threads of the computation, of MPI and of mpzero; mpirun and this script.
    need=$((ranks * ($(positive_number_or "${OMP_NUM_THREADS:-}" "$(($(visible_cpus) / ranks + 1))") + 16) + 16))
    ((used + need <= limit)) ||
      die "'ulimit -u' limits $(id -un) to $limit processes and threads, of which $used exist; $(counted "$ranks" rank) may need $need more: end others, or raise the limit."
  fi
}

# process_limit: of this user; root has none.
process_limit() { if ((EUID == 0)); then echo unlimited; else ulimit -u; fi; }

# require_room FOLDER MIB WORDS: ends the script where so much cannot be written there.
require_room() {
  local folder=$1 file code=0
  file=$(mktemp "$folder/mpzero-room.XXXXXX" 2>/dev/null) || die "No file can be made in $folder ($(reason_of mktemp "$folder/mpzero-room.XXXXXX")): $3."
  head -c "$(($2 * 1048576))" /dev/zero 2>/dev/null >"$file" || code=$?
  rm -f "$file"
  ((code == 0)) || die "$folder has no room for $2 MiB: $3."
}

# reason_of COMMAND...: the last words of its message.
reason_of() {
  local said
  said=$("$@" 2>&1) || true
  printf '%s\n' "${said##*: }"
}
