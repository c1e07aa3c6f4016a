# shellcheck shell=bash
# Installs the requirements for building mpzero (scripts/build.sh) on Debian 12 or 13, Ubuntu 22.04 or 24.04 or Amazon Linux 2023: apt or dnf
# packages, uv and the Python environment. Each step is a no-op if its result already exists.

# "package|test": installs the package unless the test succeeds, e.g. because the EFA installer has installed MPI.
MPZERO_BUILD_PACKAGES=(
  "g++|find_compiler"
  "ccache|command -v ccache"
  "openmpi-bin|command -v mpirun"
  "libopenmpi-dev|command -v mpicc"
  "libhdf5-dev|has_package libhdf5-dev || command -v h5cc || has_header hdf5.h"
  "libboost-dev|has_package libboost-dev || includes boost/version.hpp"
  "nlohmann-json3-dev|has_package nlohmann-json3-dev || has_header nlohmann/json.hpp"
  "libfabric-dev|has_package libfabric-dev || has_header rdma/fabric.h || has_efa_headers"
  "libxxhash-dev|has_package libxxhash-dev || has_header xxhash.h"
  "libhwloc-dev|has_package libhwloc-dev || has_header hwloc.h"
  "libsodium-dev|has_package libsodium-dev || has_header sodium.h"
  "zlib1g-dev|has_package zlib1g-dev || has_header zlib.h"
  "python3-venv|find_uv || can_make_environments || python3 -m pip --version"
)
MPZERO_TEST_PACKAGES=("catch2|has_package catch2")
# Names of these packages in dnf, as in Amazon Linux 2023, whose default g++ is gcc 11.
declare -A MPZERO_DNF_NAMES=(
  [g++]=gcc14-c++ [ccache]=ccache [openmpi-bin]=openmpi [libopenmpi-dev]=openmpi-devel [libhdf5-dev]=hdf5-devel
  [libboost-dev]=boost-devel [nlohmann-json3-dev]=json-devel [libfabric-dev]=libfabric-devel
  [libxxhash-dev]=xxhash-devel [libhwloc-dev]=hwloc-devel [libsodium-dev]=libsodium-devel [zlib1g-dev]=zlib-devel
  [python3-venv]=python3-pip [catch2]=catch2-devel
)
# Without these packages, tests on a virtual Slurm cluster are skipped.
MPZERO_SLURM_PACKAGES=(
  "slurm-wlm|command -v slurmctld && command -v slurmd && command -v sbatch"
  "munge|command -v munged"
  "libpmix-dev|has_package libpmix-dev"
  "iproute2|command -v ip"
)

has_package() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

# includes NAME: the compiler finds a header.
includes() { "$(find_compiler)" -E -x c++ -include "$1" /dev/null; }

# has_header NAME: detects a library by its header on distributions without Debian packages. (On Debian, a header does not imply its
# library.)
has_header() { ! command -v dpkg-query && includes "$1"; }

# The EFA installer's libfabric, where CMakeLists.txt looks for headers. mpzero does not link libfabric.
has_efa_headers() { [[ -f ${EFA_PARENT:-/opt}/amazon/efa/include/rdma/fabric.h ]]; }

# find_compiler: prints the C++ compiler for the build: CXX, or the first gcc 12 or later. Ubuntu 22.04 and Amazon Linux 2023, whose default
# is gcc 11, provide later versions under these names.
find_compiler() {
  local candidate version
  if [[ -n ${CXX:-} ]]; then
    printf '%s\n' "$CXX"
    return
  fi
  for candidate in g++ g++-14 g++-13 g++-12 gcc14-g++; do
    version=$("$candidate" -dumpversion 2>/dev/null) || continue
    if (($(positive_number_or "${version%%.*}" 0) >= 12)); then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

# choose_compiler: passes the compiler to CMake and nvcc if it is not the system's default. CC is the gcc of the same version in the same
# folder.
choose_compiler() {
  local compiler name
  if ! compiler=$(find_compiler) || [[ $compiler == g++ ]]; then return 0; fi
  export CXX=$compiler
  name=${compiler##*/}
  [[ $name =~ (^|-)g\+\+ ]] || return 0 # not clang++
  export CC=${CC:-${compiler%"$name"}${name/g++/gcc}} CUDAHOSTCXX=${CUDAHOSTCXX:-$compiler}
}

# compiler_package: g++, or g++-12 if apt's g++ is gcc 11.
compiler_package() {
  local policy
  policy=$(LC_ALL=C apt-cache policy g++ 2>/dev/null) || true
  if [[ $policy == *'Candidate: 4:11.'* ]]; then echo g++-12; else echo g++; fi
}

# find_mpi: adds the Open MPI of the EFA installer or dnf to PATH if mpirun is not in PATH.
find_mpi() {
  local folder
  ! command -v mpirun >/dev/null || return 0
  for folder in "${EFA_PARENT:-/opt}"/amazon/openmpi{,5}/bin "${LIB64:-/usr/lib64}/openmpi/bin"; do
    if [[ -x $folder/mpirun ]]; then
      export PATH=$folder:$PATH
      return
    fi
  done
}

# missing_packages ENTRY...: names of packages whose test fails, one per line.
missing_packages() {
  local entry
  for entry in "$@"; do
    eval "${entry#*|}" >/dev/null 2>&1 || printf '%s\n' "${entry%%|*}"
  done
}

# Command prefix that runs apt-get or dnf as root; fails if root rights require a password.
install_rights() {
  if [[ $EUID -eq 0 ]]; then
    echo env
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    echo sudo env
  else
    return 1
  fi
}

# install_packages ENTRY...: installs missing packages, or exits with a message that lists them.
install_packages() {
  local -a missing rights
  find_mpi
  mapfile -t missing < <(missing_packages "$@")
  [[ ${#missing[@]} -gt 0 ]] || return 0
  if ! command -v apt-get >/dev/null && command -v dnf >/dev/null; then
    install_with_dnf "${missing[@]}"
    return
  fi
  if ! command -v apt-get >/dev/null; then
    die "apt-get and dnf are not available; install the equivalents of these Debian packages: ${missing[*]}."
  fi
  if [[ ${missing[0]} == g++ ]]; then missing[0]=$(compiler_package); fi
  read -r -a rights < <(install_rights) ||
    die "Packages are missing, and neither root nor passwordless sudo is available: ask an administrator to run 'sudo apt-get install ${missing[*]}'."
  say "Installing ${missing[*]}."
  rights+=(DEBIAN_FRONTEND=noninteractive)
  run_watched "$MPZERO_ROOT/logs/apt.log" "${rights[@]}" apt-get update -q </dev/null ||
    warn "apt-get update failed ($(tail -n 1 "$MPZERO_ROOT/logs/apt.log")); the package lists may be outdated."
  run_watched "$MPZERO_ROOT/logs/apt.log" "${rights[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}" </dev/null ||
    die "apt-get could not install ${missing[*]}; its output is in logs/apt.log."
}

# install_with_dnf PACKAGE...: installs dnf's equivalents of these Debian packages. ccache is optional, because it only speeds up builds.
install_with_dnf() {
  local package name
  local -a names=() missing=() rights
  for package in "$@"; do
    name=${MPZERO_DNF_NAMES[$package]:-}
    if [[ -n $name && -n $(dnf --quiet repoquery "$name" 2>/dev/null) ]]; then
      names+=("$name")
    elif [[ $package == ccache ]]; then
      say "dnf provides no ccache package: building without ccache."
    else
      missing+=("${name:-$package}")
    fi
  done
  ((${#missing[@]} == 0)) ||
    die "The enabled dnf repositories do not contain ${missing[*]}: enable a repository that does (on Amazon Linux 2023, SPAL: https://docs.aws.amazon.com/linux/al2023/ug/configure-spal-repository.html), or install them from source, with headers in the compiler's search path."
  ((${#names[@]} > 0)) || return 0
  read -r -a rights < <(install_rights) ||
    die "Packages are missing, and neither root nor passwordless sudo is available: ask an administrator to run 'sudo dnf install ${names[*]}'."
  say "Installing ${names[*]}."
  run_watched "$MPZERO_ROOT/logs/dnf.log" "${rights[@]}" dnf install --assumeyes "${names[@]}" </dev/null ||
    die "dnf could not install ${names[*]}; its output is in logs/dnf.log."
  find_mpi
}

# find_uv: the path of a working uv. A shim that only prints "not found" is ignored.
find_uv() {
  local candidate
  for candidate in uv "$HOME/.local/bin/uv" "$MPZERO_ROOT/.venv-uv/bin/uv"; do
    if "$candidate" --version >/dev/null 2>&1; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

can_make_environments() { python3 -c 'import ensurepip'; }

# Debian and Ubuntu mark their Python as externally managed (PEP 668), so pip refuses to install packages. uv is therefore installed into
# its own environment, .venv-uv, with the version and checksums of scripts/uv-requirements.txt, or with pip's --target if ensurepip is
# missing.
install_uv() {
  find_uv >/dev/null && return
  command -v python3 >/dev/null || die "python3 is missing: install Python 3.11, 3.12 or 3.13."
  local folder=$MPZERO_ROOT/.venv-uv log=$MPZERO_ROOT/logs/uv.log
  local -a pinned=(--quiet --require-hashes --only-binary :all: --no-deps --requirement "$MPZERO_ROOT/scripts/uv-requirements.txt")
  say "Installing uv into .venv-uv."
  rm -rf "$folder"
  if can_make_environments 2>/dev/null; then
    { python3 -m venv "$folder" && "$folder/bin/python" -m pip install "${pinned[@]}"; } >"$log" 2>&1
  else
    python3 -m pip install "${pinned[@]}" --target "$folder" >"$log" 2>&1
  fi || {
    rm -rf "$folder"
    die "pip could not install uv from scripts/uv-requirements.txt: $(grep -m 1 "^ERROR: " "$log" || tail -n 1 "$log") (full log: logs/uv.log); fix the error, or install uv into a folder in PATH."
  }
  find_uv >/dev/null || die "uv was installed into .venv-uv but does not run; see logs/uv.log."
}

lock_hash() { sha256sum <"$MPZERO_ROOT/uv.lock" | cut -c 1-64; }

# installed_hash: a hash of the names and versions of the packages in .venv.
installed_hash() { find "$MPZERO_VENV"/lib/python3.*/site-packages -maxdepth 1 -name '*.dist-info' -printf '%f\n' 2>/dev/null | LC_ALL=C sort | sha256sum | cut -c 1-64; }

# follow_environment: updates the programs of a copied or moved .venv, which refer to the Python of the original folder. A link to the
# environment of another checkout is left unchanged.
follow_environment() {
  local from="" file first
  [[ ! -L $MPZERO_VENV ]] || return 0
  [[ ! -f $MPZERO_VENV/bin/activate ]] || from=$(sed -n "s/^VIRTUAL_ENV=[\"']\{0,1\}\(\/[^\"']*\).*/\1/p" "$MPZERO_VENV/bin/activate" | head -n 1)
  if [[ -z $from || $from -ef $MPZERO_VENV ]]; then return 0; fi
  say "$MPZERO_VENV was copied or moved from $from: updating the paths in its scripts."
  for file in "$MPZERO_VENV"/bin/*; do
    [[ -f $file && ! -L $file ]] || continue
    first=$(head -c 4096 "$file" | tr -d '\0' | head -n 2)
    [[ $first == "#!"*"$from/bin/python"* || ${file##*/} == activate* ]] || continue
    replace_folder "$from" "$file" || die "$file cannot be changed; run this script as a user who can write to $MPZERO_VENV, or recreate the environment: rm -r $(printf %q "$MPZERO_VENV")."
  done
}

# replace_folder FROM FILE: replaces FROM with MPZERO_VENV in a new file of that name, because FILE may be hard-linked elsewhere.
# The first line of a script cannot contain a path with a space, so it starts sh instead of Python.
replace_folder() {
  local from=$1 file=$2 text
  text=$(cat "$file" && echo .) || return
  text=${text%.}
  if [[ $text == "#!$from/bin/python"* ]]; then
    text="#!/bin/sh"$'\n'"'''exec' '$from/bin/python' \"\$0\" \"\$@\""$'\n'"' '''"$'\n'"${text#*$'\n'}"
  fi
  { cp -p "$file" "$file.$$" && printf '%s' "${text//"$from"/"$MPZERO_VENV"}" >"$file.$$" && mv -f "$file.$$" "$file"; } 2>/dev/null
}

# GPU libraries of torch and the CUDA compiler: 2.2 GB of downloads that programs without GPU kernels do not load.
MPZERO_GPU_WHEELS=(
  nvidia-cublas nvidia-cuda-cccl nvidia-cuda-nvcc nvidia-cuda-nvrtc nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand
  nvidia-cusolver nvidia-cusparse nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx nvidia-nvvm
  triton
)

# without_gpu_wheels: arguments of `uv sync` that exclude these packages, one per line.
without_gpu_wheels() { printf -- '--no-install-package\n%s\n' "${MPZERO_GPU_WHEELS[@]}"; }

# sync_environment GROUP...: runs `uv sync` for these groups and the default groups, from the committed uv.lock. The group cpu, which is not
# in the lock file, is cuda without MPZERO_GPU_WHEELS. The stamp in .venv records the lock file and the groups and, on its second line, the
# installed packages, to detect a plain `uv sync`, which removes other groups. Groups added by other scripts stay (--inexact).
sync_environment() {
  local stamp=$MPZERO_VENV/mpzero-synced hash group uv installed="" without=""
  local -a have=() want=("$@") arguments=()
  follow_environment
  hash=$(lock_hash)
  if [[ -f $stamp ]]; then
    { read -r -a have && read -r installed; } <"$stamp" || true
    if [[ ${have[0]:-} != "$hash" ]]; then
      have=()
    elif [[ $installed != "$(installed_hash)" ]]; then
      say "The packages in .venv have changed: installing missing packages."
      mapfile -t want < <(printf '%s\n' "${have[@]:1}" "${want[@]}" | sort -u)
      have=()
    fi
  fi
  local all_there=true
  if [[ " ${want[*]} ${have[*]:1} " != *" cuda "* && " ${want[*]} " == *" cpu "* ]]; then
    mapfile -t arguments < <(without_gpu_wheels)
    without=", without GPU libraries"
  fi
  for group in "${want[@]}"; do
    [[ " ${have[*]:1} " == *" $group "* || ($group == cpu && " ${have[*]:1} " == *" cuda "*) ]] || all_there=false
    arguments+=(--group "${group/#cpu/cuda}")
  done
  if [[ ${#have[@]} -gt 0 && $all_there == true ]]; then return; fi
  install_uv
  uv=$(find_uv)
  # Unlike uv's own certificates, the system's include those of local proxies. (Older uv releases read the first variable.)
  if [[ -f /etc/ssl/certs/ca-certificates.crt ]]; then
    export UV_NATIVE_TLS=${UV_NATIVE_TLS:-true} UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-true}
  fi
  say "Installing the Python environment from uv.lock into .venv (groups: data ${want[*]}$without)."
  (cd "$MPZERO_ROOT" && unset VIRTUAL_ENV && UV_PROJECT_ENVIRONMENT=$MPZERO_VENV "$uv" sync --frozen --inexact "${arguments[@]}") ||
    die "'uv sync' failed; see its message above."
  mapfile -t have < <(printf '%s\n' "${have[@]:1}" "${want[@]}" | sed '/^$/d' | sort -u)
  printf '%s %s\n%s\n' "$hash" "${have[*]}" "$(installed_hash)" >"$stamp"
}

# lacks_gpu_libraries: succeeds if sync_environment excluded MPZERO_GPU_WHEELS, without which Python cannot import torch.
lacks_gpu_libraries() {
  local groups=""
  [[ ! -f $MPZERO_VENV/mpzero-synced ]] || IFS= read -r groups <"$MPZERO_VENV/mpzero-synced" || true
  [[ -n $groups && " $groups " != *" cuda "* ]]
}

# nvcc searches for its libraries in lib64, but the wheels install them into lib. Without the link, CMake's check of nvcc fails on a host
# without a system CUDA.
complete_cuda_wheel() {
  local folder
  for folder in "$MPZERO_VENV"/lib/python3.*/site-packages/nvidia/cu13; do
    if [[ -d $folder/lib && ! -e $folder/lib64 ]]; then ln -s lib "$folder/lib64"; fi
  done
  link_cuda_runtime
}

# libfabric loads the runtime only by the name libcudart.so. The link has its own folder, so that the loader finds no other library there.
link_cuda_runtime() {
  local runtime folder
  for runtime in "$MPZERO_VENV"/lib/python3.*/site-packages/nvidia/cu13/lib/libcudart.so.[0-9]*; do
    folder=${runtime%/lib/*}/libcudart
    [[ -e $runtime && ! -e $folder/libcudart.so ]] || continue
    { mkdir -p "$folder" && ln -sfn "../lib/${runtime##*/}" "$folder/libcudart.so"; } 2>/dev/null || ! has_efa ||
      warn "cannot create $folder/libcudart.so, which libfabric needs to access GPU memory; run the script once as a user who can write to $MPZERO_VENV."
  done
}

# require_installation: checks the additional requirements of programs in an installed tree.
require_installation() {
  find_mpi
  command -v mpirun >/dev/null || die "mpirun is missing on $(hostname -s); install the Open MPI that mpzero was built with."
  require_environment
}

# require_environment: checks the Python environment, which contains the programs' torch.
require_environment() {
  local python=$MPZERO_VENV/bin/python target
  # uv links to the Python that it found, which may be in the owner's home folder.
  if target=$(readlink "$python") && [[ ! -x $python ]]; then
    die "$python is a symlink to $target, which $(id -un) cannot run on $(hostname -s): make that Python available, or have the owner of $MPZERO_VENV recreate the environment with a Python that all users can run, such as UV_PYTHON=/usr/bin/python3."
  fi
  local remedy="run './train-singlenode.sh --build-only' on a machine that shares this folder"
  if installed; then
    remedy="make it available there, or create one in the installation: (cd $(printf %q "$MPZERO_ROOT") && $(find_uv || echo uv) sync)"
    find_uv >/dev/null || remedy+=" with uv, which is not in PATH here (https://docs.astral.sh/uv)"
  fi
  [[ -x $MPZERO_VENV/bin/python ]] || die "The Python environment $MPZERO_VENV with torch is missing on $(hostname -s); $remedy."
  link_cuda_runtime
}
