# shellcheck shell=bash
# Checks the requirements of MPI and the ranks on each host before they start: mpzero's libraries, a driver, space in two folders, and limits
# on processes and file sizes. If a requirement is not met, ranks end with a signal or status 127, without a message.

# refuse_machine WORD...: exits with a message. If MPZERO_MACHINE is set, it replaces the host name as the prefix.
refuse_machine() { die "${MPZERO_MACHINE-$(hostname -s): }$*"; }

# require_machine RANKS GPUS: exits if this host does not meet the requirements of that many ranks.
require_machine() {
  require_toolkit
  require_libraries "$2"
  require_limits "$1"
}

# require_toolkit: checks that this host has the CUDA folder that select_cuda found on the job's first node.
require_toolkit() {
  [[ -z ${CUDA_VERSION:-} || -d ${MPZERO_TOOLKIT:-/} ]] ||
    refuse_machine "CUDA_VERSION=$CUDA_VERSION needs $MPZERO_TOOLKIT, which does not exist; install it, exclude the node, or unset CUDA_VERSION."
}

# require_libraries GPUS: checks that mpzero and its libraries exist, that CUDA libraries are from the wheels, and that the driver is recent
# enough.
require_libraries() {
  local program=$MPZERO_BUILD/bin/mpzero said missing foreign cuda
  [[ -x $program ]] || refuse_machine "$program does not exist; keep the checkout in a folder that all nodes share."
  said=$(LC_ALL=C ldd "$program" 2>&1) || true
  missing=$(sed -n 's/^[[:space:]]*\([^[:space:]]*\) => not found.*/\1/p' <<<"$said")
  [[ -z $missing ]] ||
    refuse_machine "$program needs $(paste --serial --delimiters=, <<<"$missing"), which cannot be found; $(packages_of "$missing")."
  # "PROGRAM: error while loading shared libraries: libmpi.so.40: file too short"
  missing=$(sed -n 's/.*: error while loading shared libraries: //p' <<<"$said" | head -n 1)
  [[ -z $missing ]] || refuse_machine "$program cannot load $missing; $(missing=${missing%%:*} && packages_of "${missing##*/}")."
  # "PROGRAM: /lib/libc.so.6: version `GLIBC_2.38' not found (required by PROGRAM)"
  missing=$(sed -n "s/.*: version [\`']\([A-Za-z_0-9.]*\)' not found.*/\1/p" <<<"$said" | sort --unique | paste --serial --delimiters=,)
  [[ -z $missing ]] ||
    refuse_machine "$program needs $missing, which the libraries of this system do not provide; build mpzero on the oldest system that will run it."
  foreign=$(sed -n 's/^[[:space:]]*lib\(cudart\|nccl\|cublasLt\)\.so[^ ]* => \([^ ]*\) .*/\2/p' <<<"$said" | grep -v -m 1 -- '-packages/') || true
  [[ -z $foreign ]] ||
    refuse_machine "$program loads $foreign instead of the library of its Python environment; unset LD_PRELOAD and LD_LIBRARY_PATH, or rebuild mpzero with './train-singlenode.sh --build-only'."
  cuda=$(sed -n 's/^[[:space:]]*libcudart\.so\.\([0-9]\{1,3\}\) .*/\1/p' <<<"$said" | head -n 1)
  (($1 == 0)) || [[ -z $cuda ]] || require_driver "$cuda"
}

# packages_of LIBRARIES: prints the remedy for missing libraries. LIBRARIES: one library per line.
packages_of() {
  local library
  local -a packages=()
  while read -r library; do
    case $library in
      libtorch* | libc10* | libcud* | libcu[bfrs]* | libnv* | libnccl*)
        printf 'they are in %s: mount that folder, or recreate it with "./train-singlenode.sh --build-only"\n' "$MPZERO_VENV"
        return
        ;;
      libmpi* | libopen-* | libprrte* | libpmix*) packages+=("the Open MPI that mpzero was built with (Debian: openmpi-bin; /opt/amazon: EFA installer)") ;;
      libevent_pthreads*) packages+=(libevent-pthreads-2.1-7) ;;
      libevent*) packages+=(libevent-core-2.1-7) ;;
      libhwloc*) packages+=(libhwloc15) ;;
      libgomp*) packages+=(libgomp1) ;;
      libstdc++*) packages+=(libstdc++6) ;;
      libz.*) packages+=(zlib1g) ;;
      libfabric*) packages+=("libfabric1, or Amazon's EFA installer") ;;
      *) packages+=("the package that contains $library (apt-file search $library)") ;;
    esac
  done <<<"$1"
  printf 'install %s\n' "$(printf '%s\n' "${packages[@]}" | sort --unique | paste --serial --delimiters=, | sed 's/,/, /g')"
}

# require_driver CUDA: checks that the driver, or a compatibility library in LD_LIBRARY_PATH, supports this CUDA version. The doctor handles
# a driver that does not respond.
require_driver() {
  local said="" pattern='Driver Version: *([0-9.]+).*CUDA Version: *([0-9]{1,3})\.'
  said=$(nvidia-smi 2>/dev/null) || return 0
  [[ $said =~ $pattern ]] || return 0
  ((10#${BASH_REMATCH[2]} >= 10#$1)) ||
    refuse_machine "The NVIDIA driver ${BASH_REMATCH[1]} supports CUDA ${BASH_REMATCH[2]}, but $MPZERO_BUILD/bin/mpzero is built with CUDA $1$( (($1 != 13)) || echo ", which requires driver 580 or later"); update the driver or, on a single node, add the folder of cuda-compat-$1-0 to LD_LIBRARY_PATH."
}

# require_limits RANKS
require_limits() {
  local ranks=$1 folder=${TMPDIR:-${TEMP:-${TMP:-/tmp}}} shared=${SHARED_MEMORY:-/dev/shm} size limit used need
  size=$(ulimit -f)
  if [[ $size != unlimited ]]; then
    ((size >= 65536)) || refuse_machine "'ulimit -f' limits files to $size KiB, which is too small for a checkpoint; 'ulimit -f unlimited' removes the limit."
    warn "'ulimit -f' limits files to $((size / 1024)) MiB: a larger checkpoint file ends the run; 'ulimit -f unlimited' removes the limit."
  fi
  require_room "$folder" 1 "Open MPI creates its sockets in this folder; free some space, or set TMPDIR to a different folder"
  # Ranks on a host exchange messages through /dev/shm, 4 MiB each.
  [[ ! -d $shared ]] ||
    require_room "$shared" $((4 * ranks + 1)) "ranks exchange messages through this folder; delete files in it, or enlarge it: mount -o remount,size=50% $shared"
  limit=$(process_limit)
  if [[ $limit != unlimited ]]; then
    # Without `ps`, assume 0.
    used=$({ ps --no-headers -L -U "$EUID" 2>/dev/null || true; } | wc -l)
    # Threads for computation, MPI and mpzero, plus mpirun and this script.
    need=$((ranks * ($(positive_number_or "${OMP_NUM_THREADS:-}" "$(($(visible_cpus) / ranks + 1))") + 16) + 16))
    ((used + need <= limit)) ||
      refuse_machine "'ulimit -u' limits $(id -un) to $limit processes and threads, of which $used are in use; $(counted "$ranks" rank) may need $need more: stop other processes, or raise the limit."
  fi
}

# process_limit: this user's limit, which does not apply to root.
process_limit() { if ((EUID == 0)); then echo unlimited; else ulimit -u; fi; }

# require_room FOLDER MIB WORDS: exits with WORDS if the folder has less than MIB MiB of free space.
require_room() {
  local folder=$1 file code=0
  file=$(mktemp "$folder/mpzero-room.XXXXXX" 2>/dev/null) || refuse_machine "cannot create a file in $folder ($(reason_of mktemp "$folder/mpzero-room.XXXXXX")): $3."
  head -c "$(($2 * 1048576))" /dev/zero 2>/dev/null >"$file" || code=$?
  rm -f "$file"
  ((code == 0)) || refuse_machine "$folder has less than $2 MiB of free space: $3."
}

# reason_of COMMAND...: the last part of the command's message.
reason_of() {
  local said
  said=$("$@" 2>&1) || true
  printf '%s\n' "${said##*: }"
}

# report_machine RANKS GPUS ADDRESS: prints the results of require_machine and route_to on this host as lines "warning TEXT", "problem TEXT"
# and "route INTERFACE NETWORK".
report_machine() {
  local said route code=0
  said=$(MPZERO_MACHINE="" && require_machine "$1" "$2" 2>&1) || code=$?
  sed -n 's/^mpzero: warning: /warning /p; s/^mpzero: error: /problem /p' <<<"$said"
  ((code == 0)) || grep -q '^mpzero: error: ' <<<"$said" || printf 'problem the check of this node failed with status %d (%s).\n' "$code" "$(printable "$said")"
  if route=$(route_to "$3"); then printf 'route %s\n' "$route"; else printf 'route none\n'; fi
}

# judge_machines NODES REPORT: exits if a node has a problem, and sets MPI's network for several nodes. REPORT: the lines of
# report_machine, each prefixed with its node and a blank.
judge_machines() {
  local nodes=$1 report=$2 text without
  local -a problems=() routes=()
  while IFS= read -r text; do warn "$text"; done < <(by_text warning "$report")
  mapfile -t problems < <(by_text problem "$report")
  ((${#problems[@]} == 0)) || die "${problems[*]}"
  ((nodes > 1)) || return 0
  text=$(awk '{ print $1 }' <<<"$report" | sort --unique | grep -c .) || true
  ((text >= nodes)) || warn "only $text of $nodes nodes responded to the check of libraries, drivers and limits."
  mapfile -t routes < <(sed -n 's/^\([^ ]* \)route \([A-Za-z0-9_.@:-]\{1,15\} \([0-9.]\{7,15\}\/[0-9]\{1,2\}\|ipv6\|-\)\)$/\1\2/p' <<<"$report" | sort --unique)
  if ((${#routes[@]} == 0)); then
    avoid_bridges
    return
  fi
  without=$(sed -n 's/^\([^ ]*\) route none$/\1/p' <<<"$report" | sort --unique | paste --serial --delimiters=,)
  [[ -z $without ]] || chosen_by_user OMPI_MCA_btl_tcp_if ||
    die "$without has no route to the other nodes ($(join_lines "${routes[@]}")); see 'ip route' on $without, or set OMPI_MCA_btl_tcp_if_include to MPI's interface."
  set_mpi_network "${routes[@]}"
}

# by_text KIND REPORT: one line "NODE,NODE: TEXT" per text.
by_text() {
  sed -n "s/^\([^ ]*\) $1 \(.*\)/\1 \2/p" <<<"$2" | sort --unique | awk '{
    node = $1
    sub(/^[^ ]* /, "")
    if ($0 in nodes) nodes[$0] = nodes[$0] "," node; else { nodes[$0] = node; order[++count] = $0 }
  }
  END { for (i = 1; i <= count; ++i) print nodes[order[i]] ": " order[i] }'
}
