#!/usr/bin/env bash
# Makes the image's two stages as root file systems of Debian 12, by the steps of container/Containerfile, and trains in the second one.
#
#   tests/container/image_on_debian.sh FOLDER [GPU_ARCHITECTURES]
#
# Needs root, mmdebstrap and a network; 20 GB in FOLDER, and as long as a build takes. A later start uses what is there. With
# MPZERO_BUILT=true the checkout and its built .venv and build are used as they are, by the path that they have here, and nothing is compiled:
# for a machine that is a Debian 12 itself. UV_CACHE_DIR and CCACHE_DIR are the caches of this machine, which then serve the image, too.
set -euo pipefail

folder=${1:?say where the root file systems are to be made}
architectures=${2:-none}
checkout=$(git -C "$(dirname "${BASH_SOURCE[0]}")" rev-parse --show-toplevel)
source=/usr/src/mpzero

# inside ROOT COMMAND: the mounts are gone with the process.
inside() {
  # shellcheck disable=SC2016 # the new shell expands it
  unshare --mount --pid --fork bash -c '
    mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount -t tmpfs tmpfs "$0/tmp"
    if [[ -n $4 ]]; then mkdir -p "$0/root/.cache/uv" && mount --bind "$4" "$0/root/.cache/uv"; fi
    if [[ -n $5 ]]; then mkdir -p "$0$5" && mount --bind "$5" "$0$5"; fi
    if [[ $3 == true ]]; then
      mkdir -p "$0$2" && mount --bind "$2" "$0$2"
      python=$(readlink -f "$2/.venv/bin/python")
      mkdir -p "$0${python%/bin/*}" && mount --bind "${python%/bin/*}" "$0${python%/bin/*}"
    fi
    exec chroot "$0" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 ${5:+"CCACHE_DIR=$5"} bash -ec "$1"' \
    "$1" "$2" "$checkout" "${MPZERO_BUILT:-false}" "${UV_CACHE_DIR:-}" "${CCACHE_DIR:-}"
}

mkdir -p "$folder"
if [[ ! -d $folder/base/etc ]]; then
  # Without what Docker's debian:12-slim leaves out.
  mmdebstrap --variant=minbase --include=ca-certificates --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' bookworm "$folder/base" http://deb.debian.org/debian
fi
for stage in build runtime; do
  [[ -d $folder/$stage ]] || cp -a "$folder/base" "$folder/$stage"
  cp /etc/resolv.conf "$folder/$stage/etc/"
  mkdir -p "$folder/$stage/usr/local/share/ca-certificates"
  find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$folder/$stage/usr/local/share/ca-certificates/" \;
  inside "$folder/$stage" 'update-ca-certificates >/dev/null 2>&1'
done
inside "$folder/build" 'command -v git >/dev/null || { apt-get update -qq && apt-get install -qq -y --no-install-recommends git python3 >/dev/null; }'
if [[ ${MPZERO_BUILT:-false} == true ]]; then
  source=$checkout
elif [[ -d $folder/build$source ]]; then
  git -C "$folder/build$source" pull --quiet
else
  git clone --quiet "$checkout" "$folder/build$source"
fi
if [[ ! -f $folder/build/opt/mpzero/installation || ! -f $folder/build/opt/mpzero/system-packages ]]; then
  inside "$folder/build" "UV_PYTHON=/usr/bin/python3 $source/container/install build /opt/mpzero $architectures"
fi
rm -rf "$folder/runtime/opt/mpzero"
cp -a "$folder/build/opt/mpzero" "$folder/runtime/opt/"
unset MPZERO_BUILT
inside "$folder/runtime" '/opt/mpzero/container/install runtime /opt/mpzero'
printf 'The image has %s MiB, of which the environment %s.\n' \
  "$(du -sxm "$folder/runtime" | cut -f 1)" "$(du -sxm "$folder/runtime/opt/mpzero/.venv" | cut -f 1)"
inside "$folder/runtime" '/opt/mpzero/.venv/bin/python -c "import datasets, h5py, matplotlib.pyplot, numpy, pandas, plotly, pyarrow.dataset, pyarrow.parquet, tokenizers, xxhash"'
# As the runtime starts it: the user, and a hostfile of one pod.
# shellcheck disable=SC2016 # the new shell expands it
inside "$folder/runtime" '
  ! command -v gcc cc g++ || { echo "a compiler is in the image" >&2; exit 1; }
  printf "%s slots=2\n" "$(hostname -s)" >/tmp/hostfile
  exec setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/home/mpzero MPZERO_NODES=1 MPZERO_GPUS=0 MPZERO_HOSTFILE=/tmp/hostfile \
    MODEL_TYPE=qwen3_tiny SEQ_LENGTH=32 MAX_STEPS=3 CHECKPOINT_DIR=/tmp/checkpoints DATA_DIR=/tmp/data \
    /opt/mpzero/container/launch --logging_freq 1'
