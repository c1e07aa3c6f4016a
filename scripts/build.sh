# shellcheck shell=bash
# Configures and builds the programs; detects a build folder of another checkout or user.

# Number of parallel compilers: one per core, with 2 GB of memory each.
build_jobs() {
  local cores memory_gb
  cores=$(nproc)
  memory_gb=$(awk '/^MemAvailable:/ {print int($2 / 1048576)}' /proc/meminfo)
  local by_memory=$((memory_gb / 2))
  ((by_memory >= 1)) || by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}

# joins_sources: CMake's MPZERO_JOIN_SOURCES, ON or OFF: as in the existing build folder, else ON with few cores. With many cores,
# compiling separate files in parallel is faster.
joins_sources() {
  local joined=OFF
  if [[ -f $MPZERO_BUILD/CMakeCache.txt ]]; then
    joined=$(sed -n 's/^MPZERO_JOIN_SOURCES:BOOL=//p' "$MPZERO_BUILD/CMakeCache.txt")
  elif (($(build_jobs) <= 8)); then
    joined=ON
  fi
  printf '%s\n' "${joined:-OFF}"
}

# configured_options: the last configuration of CMake in four words: the hash of the lock file, BUILD_TESTING, MPZERO_GPU_ARCHITECTURES
# (absent in build folders of earlier releases, which compiled for all architectures), and "unbuilt" until ninja has built the programs,
# then "built". Reading requires no lock: the file is replaced atomically, before ninja replaces a program.
configured_options() {
  local -a options=()
  [[ ! -f $MPZERO_BUILD/mpzero-configured || ! -f $MPZERO_BUILD/build.ninja ]] || read -r -a options <"$MPZERO_BUILD/mpzero-configured" || true
  ((${#options[@]} == 0)) || printf '%s %s %s %s\n' "${options[0]}" "${options[1]:-off}" "${options[2]:-all}" "${options[3]:-built}"
}

set_configured_options() {
  printf '%s\n' "$*" >"$MPZERO_BUILD/mpzero-configured.$$"
  mv -f "$MPZERO_BUILD/mpzero-configured.$$" "$MPZERO_BUILD/mpzero-configured"
}

# cached_path NAME: a path in the build folder's CMakeCache.txt; empty if missing.
cached_path() { if [[ -f $MPZERO_BUILD/CMakeCache.txt ]]; then sed -n "s/^$1:INTERNAL=//p" "$MPZERO_BUILD/CMakeCache.txt"; fi; }

# moved_from: the original location of the build folder, if different: Ninja's files contain absolute paths.
moved_from() {
  local made
  made=$(cached_path CMAKE_CACHEFILE_DIR)
  [[ -z $made || $made -ef $MPZERO_BUILD ]] || printf '%s\n' "$made"
}

# forget_configuration: makes CMake reconfigure. Ninja rebuilds all files, because the commands contain different paths.
forget_configuration() {
  rm -rf "$MPZERO_BUILD"/{CMakeCache.txt,CMakeFiles,build.ninja,.ninja_deps,.ninja_log} ||
    die "cannot reconfigure $MPZERO_BUILD, which was copied or moved; remove it: rm -r $(printf %q "$MPZERO_BUILD")."
}

are_architectures() { [[ $1 =~ ^(all|none|[0-9]+[af]?(-real|-virtual)?(;[0-9]+[af]?(-real|-virtual)?)*)$ ]]; }

# gpu_architectures GPUS BUILT: CMake's MPZERO_GPU_ARCHITECTURES. In order of precedence: the user's value; the value of the build folder
# (BUILT); `all` if this host or its Slurm cluster has GPUs; `none`, which shortens the first build by minutes.
gpu_architectures() {
  if [[ -n ${MPZERO_GPU_ARCHITECTURES:-} ]]; then
    are_architectures "$MPZERO_GPU_ARCHITECTURES" ||
      die "MPZERO_GPU_ARCHITECTURES=$MPZERO_GPU_ARCHITECTURES must be all, none, or a list as in CMake's CMAKE_CUDA_ARCHITECTURES, such as '90' or '80-real;90'."
    printf '%s\n' "$MPZERO_GPU_ARCHITECTURES"
  elif [[ ${2:-none} != none ]] && are_architectures "$2"; then
    printf '%s\n' "$2"
  elif (($1 > 0)) || [[ $(sinfo --noheader --format=%G 2>/dev/null) == *gpu* ]]; then
    echo all
  else
    echo none
  fi
}

# libraries_for GPUS: the dependency group (sync_environment) that a build for this host's GPUs needs.
libraries_for() {
  local hash tests architectures state
  read -r hash tests architectures state < <(configured_options) || true
  architectures=$(gpu_architectures "$1" "${architectures:-}") || exit
  if [[ $architectures == none ]]; then echo cpu; else echo cuda; fi
}

# build_programs WITH_TESTS GPUS [TARGET...]: configures the build folder for this lock file if needed, with tests (WITH_TESTS: on or off)
# and kernels for this host's GPUs, and runs ninja. A folder that is already configured with tests or GPU kernels keeps them.
build_programs() {
  local with_tests=$1 gpus=$2 hash tests architectures state wanted from source code=0
  shift 2
  complete_cuda_wheel
  choose_compiler
  read -r hash tests architectures state < <(configured_options) || true
  [[ ${tests:-} != on ]] || with_tests=on
  wanted=$(gpu_architectures "$gpus" "${architectures:-}") || exit
  wanted="$(lock_hash) $with_tests $wanted"
  from=$(moved_from)
  source=$(cached_path CMAKE_HOME_DIRECTORY)
  if [[ -n $from ]]; then
    say "$MPZERO_BUILD was copied or moved from $from: rebuilding it."
    forget_configuration
    hash=""
  elif [[ -n $source && ! $source -ef $MPZERO_ROOT ]]; then
    say "$MPZERO_BUILD belongs to the checkout $source: building that checkout's sources."
  fi
  if [[ "${hash:-} ${tests:-} ${architectures:-}" != "$wanted" ]]; then
    architectures=${wanted##* }
    say "Configuring the build$([[ $architectures != none ]] || echo ", without GPU kernels because no GPU is used (MPZERO_GPU_ARCHITECTURES=all builds them)")."
    mkdir -p "$MPZERO_ROOT/logs"
    PATH=$MPZERO_VENV/bin:$PATH run_watched "$MPZERO_ROOT/logs/configure.log" run_long cmake --preset release -S "$MPZERO_ROOT" \
      -B "$MPZERO_BUILD" -DBUILD_TESTING="${with_tests^^}" -DMPZERO_JOIN_SOURCES="$(joins_sources)" \
      -DMPZERO_GPU_ARCHITECTURES="$architectures" || code=$?
    ((code == 0)) || end_if_stopped
    ((code == 0)) ||
      die "CMake could not configure the build: $(grep -m 1 -A 2 'CMake Error' "$MPZERO_ROOT/logs/configure.log" | tr '\n' ' ') (full log: logs/configure.log)."
    state=unbuilt
    set_configured_options "$wanted $state"
  fi
  is_built "$@" || PATH=$MPZERO_VENV/bin:$PATH build_quietly "$@" || code=$?
  ((code == 0)) || end_if_stopped
  ((code == 0)) || die "The build failed; see the compiler's message above."
  [[ $state == built ]] || set_configured_options "$wanted"
}

# build_progress: replaces ninja's per-file lines with one line per tenth of the build. Ignores the signals of the job, as keep_log does.
build_progress() {
  local line tenth last=0
  trap '' INT TERM HUP USR1 USR2
  while IFS= read -r line; do
    if [[ $line =~ ^\[([0-9]{1,6})/([1-9][0-9]{0,5})\]\  ]]; then
      tenth=$((10 * 10#${BASH_REMATCH[1]} / BASH_REMATCH[2]))
      ((tenth == last)) || say "Building: ${tenth}0%"
      last=$tenth
    elif [[ $line != "ninja: Entering directory"* ]]; then
      printf '%s\n' "$line"
    fi
  done
}

# build_quietly TARGET...: runs ninja, which prints one status line on a terminal but one line per file elsewhere.
build_quietly() {
  local code=0 progress
  local -a command=(ninja -C "$MPZERO_BUILD" -j "$(build_jobs)" "$@")
  if [[ -t 1 ]]; then
    run_long "${command[@]}"
    return
  fi
  say "Building; this may take several minutes."
  exec {progress}> >(build_progress)
  local pid=$!
  run_long "${command[@]}" >&"$progress" || code=$?
  exec {progress}>&-
  wait "$pid" 2>/dev/null || true
  return "$code"
}

# is_built TARGET...: succeeds if the targets are up to date.
is_built() { [[ $(PATH=$MPZERO_VENV/bin:$PATH ninja -C "$MPZERO_BUILD" -n "$@" 2>/dev/null) == *"ninja: no work to do."* ]]; }

# end_if_stopped: exits if the Slurm job was stopped: a stop is not a build failure. (ninja may exit with 2, a user error.)
end_if_stopped() { [[ -z ${MPZERO_STOP:-} ]] || end_with 143; }

# built_by_another: succeeds if this checkout is built but not writable by this user, because it belongs to another user.
built_by_another() { [[ -x $MPZERO_BUILD/bin/mpzero && (! -w $MPZERO_BUILD || (-e $MPZERO_ROOT/logs && ! -w $MPZERO_ROOT/logs)) ]]; }

# require_build_of_another GPUS: checks that the programs can run and match the sources.
require_build_of_another() {
  require_installation
  [[ -z $(moved_from) ]] || die "$MPZERO_BUILD was copied or moved from $(moved_from); have its owner run './train-singlenode.sh --build-only' in $MPZERO_ROOT."
  (($1 == 0)) || ! lacks_gpu_kernels ||
    die "The programs in $MPZERO_BUILD were built without GPU kernels; have their owner run 'MPZERO_GPU_ARCHITECTURES=all ./train-singlenode.sh --build-only' in $MPZERO_ROOT."
  is_built mpzero zero_to_fp32 ||
    warn "The programs in $MPZERO_BUILD do not match the sources in $MPZERO_ROOT, where you have no write access; to update them, have their owner run './train-singlenode.sh --build-only'."
}

# require_gpu_kernels GPUS: builds missing GPU kernels in a job with GPUs, e.g. after a build on a login node without GPUs. Other jobs wait
# for the lock.
require_gpu_kernels() {
  if (($1 == 0)) || installed || ! lacks_gpu_kernels; then return 0; fi
  lock logs/setup.lock "build"
  # Another process may have built the kernels in the meantime.
  if lacks_gpu_kernels; then build_gpu_kernels "$1"; fi
  unlock
}

lacks_gpu_kernels() {
  local options
  options=$(configured_options)
  [[ $options == *" none "* || $options == *" unbuilt" ]]
}

build_gpu_kernels() {
  local missing
  [[ ${MPZERO_GPU_ARCHITECTURES:-} != none ]] ||
    die "MPZERO_GPU_ARCHITECTURES=none builds no GPU kernels, but this job has GPUs ($1 per node); unset it, or train with --device cpu."
  missing=$(missing_packages "${MPZERO_BUILD_PACKAGES[@]}" | grep -vx -e ccache -e python3-venv | paste -sd ' ') || true
  [[ -z $missing ]] ||
    die "The programs in $(shown_path "$MPZERO_BUILD") were built without GPU kernels, and $(hostname -s) lacks packages to build them ($missing); run 'MPZERO_GPU_ARCHITECTURES=all ./train-singlenode.sh --build-only' on a machine that shares this folder."
  say "The programs have no GPU kernels: building the kernels now."
  sync_environment cuda
  build_programs off "$1" mpzero zero_to_fp32
}
