#!/usr/bin/env bash
# Carries the programs of this checkout's build to a Debian without the packages of the build, and trains two ranks there.
#
#   tests/journeys/on_bare_debian.sh FOLDER SUITE     SUITE: bookworm, trixie
#
# The root file system in FOLDER has libc, libstdc++ and Open MPI; it sees the checkout and its Python's environment read-only. Needs root,
# debootstrap and a network; 400 MB.
set -euo pipefail

folder=${1:?say where the root file system is to be made} suite=${2:?name a release of Debian}
checkout=$(git -C "$(dirname "${BASH_SOURCE[0]}")" rev-parse --show-toplevel)

[[ -d $folder/etc ]] || debootstrap --variant=minbase --include=openmpi-bin "$suite" "$folder" http://deb.debian.org/debian >&2
mkdir -p "$folder$checkout"
# The mounts are gone with the process.
# shellcheck disable=SC2016 # the new shell expands it
unshare --mount --pid --fork bash -ec '
  mount -t proc proc "$0/proc"
  mount --rbind /dev "$0/dev"
  mount --bind "$1" "$0$1"
  mount -o remount,bind,ro "$0$1"
  exec chroot "$0" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 OMP_NUM_THREADS=1 \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=^tcp bash -ec "$2" "$1"' "$folder" "$checkout" '
  ! compgen -G "/usr/lib/x86_64-linux-gnu/libhdf5*" >/dev/null
  "$0/build/bin/mpzero" --version
  data=$(compgen -G "$0/data/tiny_corpus-bytes/train.h5")
  rm -rf /tmp/checkpoints
  mpirun --oversubscribe -n 2 "$0/build/bin/mpzero" train --model_type qwen3_tiny --deepspeed_config "$0/configs/ds_config_tiny.json" \
    --train_data "$data" --seq_length 256 --max_steps 4 --logging_freq 1 --checkpoint_dir /tmp/checkpoints
  "$0/build/bin/zero_to_fp32" /tmp/checkpoints /tmp/weights'
