#!/usr/bin/env bash
# The first hour on one machine, on Debian 13: installs and builds a clone in a root file system of its own, and runs its journeys there.
#
#   tests/journeys/on_debian13.sh FOLDER
#
# Needs root, mmdebstrap and a network; 12 GB in FOLDER. The first start takes a quarter of an hour. A later one uses what is there.
set -euo pipefail

folder=${1:?say where the root file system is to be made}
checkout=$(git -C "$(dirname "${BASH_SOURCE[0]}")" rev-parse --show-toplevel)

if [[ ! -d $folder/etc ]]; then
  # What the README asks for: git and Python 3.
  mmdebstrap --variant=minbase --include=git,python3,ca-certificates trixie "$folder" http://deb.debian.org/debian
fi
mkdir -p "$folder/usr/local/share/ca-certificates"
cp /etc/resolv.conf "$folder/etc/"
find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$folder/usr/local/share/ca-certificates/" \;
if [[ -d $folder/root/mpzero ]]; then
  git -C "$folder/root/mpzero" pull --quiet
else
  git clone --quiet "$checkout" "$folder/root/mpzero"
fi

# The mounts are gone with the process.
inside() {
  # shellcheck disable=SC2016 # the new shell expands it
  unshare --mount --pid --fork bash -c '
    mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" &&
      exec chroot "$0" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash -ec "$1"' "$folder" "$1"
}
inside 'update-ca-certificates >/dev/null 2>&1; cd /root/mpzero && ./train-singlenode.sh --build-only'
# shellcheck disable=SC2016 # the new shell expands it
inside 'cd /root/mpzero && uv=.venv-uv/bin/uv && UV_NATIVE_TLS=true $uv pip install --quiet --python .venv/bin/python pytest tensorboard'
inside 'cd /root/mpzero && .venv/bin/python -m pytest -q -p no:cacheprovider tests/journeys/test_scripts_one_machine.py'
