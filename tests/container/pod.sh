#!/usr/bin/env bash
# A virtual pod: pod.sh FOLDER NUMBER NAME COMMAND..., in the namespaces of pods_init.sh. Its command is process 1 of namespaces of its own,
# as user 1000 and with this environment; the exit status is the command's.
set -euo pipefail
folder=$1 number=$2 name=$3
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
own=$folder/pod.$name
rm -rf "$own"
mkdir -p "$own"
mkfifo "$own/there" "$own/go"
# What kubelet writes, and what DNS answers: the names of the other pods have the service's name behind a dot, and no pod has a short one.
{
  printf '127.0.0.1 localhost\n'
  awk -v own="$name" '{
    if ($2 == own) print $1, $2 "." $3 ".default.svc.cluster.local", $2
    print $1, $2 "." $3 ".default.svc.cluster.local", $2 "." $3
  }' "$folder/pods"
} >"$own/hosts"
# shellcheck disable=SC2016 # expanded inside the pod
unshare --net --uts --mount --propagation private --pid --fork --kill-child --mount-proc bash -euc '
  own=$0 folder=$1 number=$2 name=$3 root=$4
  shift 4
  hostname "$name"
  mount -t tmpfs tmpfs /dev/shm
  mount -t tmpfs -o mode=1777 tmpfs /tmp
  mount --bind "$own/hosts" /etc/hosts
  mount --bind "$folder/passwd" /etc/passwd
  mount --bind "$folder/group" /etc/group
  echo there >"$own/there"
  read -r _ <"$own/go"
  ip link set lo up
  ip addr add "10.88.0.$number/24" dev eth0
  ip link set eth0 up
  if [[ -n ${MPZERO_TEST_ROOT:-} ]]; then
    # Another system, such as one with Open MPI 5. The checkout and the folder have the same paths there.
    for path in /proc /dev /dev/shm /tmp /etc/hosts /etc/passwd /etc/group "$folder" "$root"; do
      [[ ! -d $path ]] || mkdir -p "$MPZERO_TEST_ROOT$path"
      mount --rbind "$path" "$MPZERO_TEST_ROOT$path"
    done
    # Its own Python; what needs more of the environment is not run there.
    mount -t tmpfs tmpfs "$MPZERO_TEST_ROOT$root/.venv"
    mkdir "$MPZERO_TEST_ROOT$root/.venv/bin"
    ln -s /usr/bin/python3 "$MPZERO_TEST_ROOT$root/.venv/bin/python"
    exec chroot "$MPZERO_TEST_ROOT" /bin/sh -c "cd \"\$0\" && exec setpriv --reuid 1000 --regid 1000 --groups 1000 \"\$@\"" "$folder/home" "$@"
  fi
  # The Python of the checkout may be in the home of its owner, whom the pods do not know.
  python=$(readlink -f "$root/.venv/bin/python" || true)
  if [[ -n $python ]] && ! setpriv --reuid 1000 --regid 1000 --clear-groups test -x "$python"; then
    top=/$(cut -d/ -f2 <<<"$python")
    mkdir "$own/python"
    mount --bind "${python%/bin/*}" "$own/python"
    mount -t tmpfs -o mode=755 tmpfs "$top"
    mkdir -p "${python%/bin/*}"
    mount --bind "$own/python" "${python%/bin/*}"
  fi
  cd "$folder/home"
  exec setpriv --reuid 1000 --regid 1000 --groups 1000 "$@"' "$own" "$folder" "$number" "$name" "$root" "${@:4}" &
pod=$!
read -r _ <"$own/there"
# That of a pod which was killed may still be there.
ip link delete "link$number" 2>/dev/null || true
ip link add "link$number" type veth peer name eth0 netns "$pod"
ip link set "link$number" master bridge up
cat "/proc/$pod/task/$pod/children" >"$own/pid"
echo go >"$own/go"
code=0
wait "$pod" || code=$?
exit "$code"
