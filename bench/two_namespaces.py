"""Emulates two hosts on one machine: network namespaces connected by a link with limited rate and added latency.

The kernel's token bucket filter (tbf) limits the rate. A process that delays packets adds the latency, because netem,
which supports both, is not available in every kernel. Requires root and Linux. The hosts and their link are removed
when the process that created them exits for any reason, unless programs are still running on them.

The sender's queue is long enough to never drop packets, because TCP limits its packets in this queue. (With a short
queue, TCP would wait for its 200 ms probe timer, and not count a retransmission.)
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import fcntl
import multiprocessing
import os
import select
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Address range for network benchmarks (RFC 2544).
NETWORK = "198.18.7.0/24"
ADDRESSES = ("198.18.7.1", "198.18.7.2")
HOSTS = ("limited0", "limited1")
# Not "veth…", because mpzero ignores the addresses of such interfaces, which usually lead to containers.
INTERFACE = "eth0"
MTU = 9001  # as between EC2 instances
PACKET = 65536 + 64
# Queue size in bytes. A TCP connection queues at most net.ipv4.tcp_limit_output_bytes (1 or 4 MiB) on its own host.
QUEUE = 1 << 30

CLONE_NEWNET = 0x40000000
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
TUN_F_CSUM, TUN_F_TSO4 = 0x01, 0x02


@dataclass(frozen=True)
class Link:
    gigabits: float | None = None  # Gb/s per direction; None: unlimited
    milliseconds: float = 0  # additional one-way latency

    @property
    def name(self) -> str:
        rate = "no limit" if self.gigabits is None else f"{self.gigabits:g} Gb/s"
        return f"{rate}, {self.milliseconds:g} ms"

    def bucket(self) -> str:
        """Returns tbf's arguments for the rate."""
        # One millisecond of traffic, so that a timer delay of up to 1 ms does not reduce the rate. TCP's largest
        # packet must fit.
        burst = max(256 << 10, round(self.gigabits * 1e9 / 8 * 1e-3))
        return f"tbf rate {self.gigabits:g}gbit burst {burst} limit {QUEUE}"


def reason_to_skip() -> str | None:
    """Returns the reason why the hosts cannot be created, or None."""
    if os.geteuid() != 0:
        return "network namespaces require root"
    for program in ("unshare", "nsenter", "ip", "tc", "mpirun"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    try:
        with two_hosts(Link(gigabits=1)):
            pass
    except OSError as error:
        return f"network namespaces with a limited link are not allowed here: {error}"
    return None


class Hosts:
    def __init__(self, pids: list[int]):
        self.pids = pids

    def inside(self, host: int, command: list[str]) -> list[str]:
        """Returns the command line that runs a command on a host, in the current working directory."""
        spaces = ["nsenter", f"--target={self.pids[host]}", "--net", "--uts", "--mount"]
        return [*spaces, "env", f"--chdir={Path.cwd()}", *command]

    def run(self, host: int, command: str) -> str:
        """Runs a command on a host and returns the output. Raises OSError with the command's message on failure."""
        words = self.inside(host, shlex.split(command))
        done = subprocess.run(words, capture_output=True, text=True, check=False, encoding="utf-8")
        if done.returncode != 0:
            raise OSError(f"{command}: {done.stderr.strip() or done.returncode}")
        return done.stdout

    def sent_bytes(self, host: int) -> int:
        """Returns the bytes sent by the interface, including headers and acknowledgments."""
        return int(self.run(host, "cat /proc/net/dev").split(f"{INTERFACE}:")[1].split()[8])

    def mpirun(self, agent: Path, *, gpus: bool = False) -> list[str]:
        """Returns an mpirun command with a rank on each host and TCP between the hosts.

        `agent`: path for the script that starts the second host. `gpus`: each host has one of the first two GPUs.
        """
        own = [["env", *([f"CUDA_VISIBLE_DEVICES={host}"] if gpus else [])] for host in range(2)]
        enter = shlex.join(self.inside(1, [*own[1], "sh", "-c"]))
        agent.write_text(f'#!/bin/sh\n# Replaces ssh HOST COMMAND.\nshift\nexec {enter} "$*"\n', encoding="utf-8")
        agent.chmod(0o755)
        settings = {
            "plm": "rsh",
            "plm_rsh_agent": str(agent),
            "pml": "ob1",
            "btl": "self,tcp",
            "btl_tcp_if_include": NETWORK,
            "oob_tcp_if_include": NETWORK,
            # Two ranks exchange halves. By default, Open MPI sends all data to one rank and half of it back.
            "coll_tuned_use_dynamic_rules": "1",
            "coll_tuned_reduce_scatter_block_algorithm": "3",
        }
        words = [word for name, value in settings.items() for word in ("--mca", name, value)]
        return self.inside(
            0, [*own[0], "mpirun", "--bind-to", "none", "--host", ",".join(ADDRESSES), "-n", "2", *words]
        )


@contextlib.contextmanager
def two_hosts(link: Link) -> Iterator[Hosts]:
    """Yields two hosts. Raises OSError if the system does not permit them."""
    delaying = None
    nodes: list[subprocess.Popen] = []
    try:
        with tempfile.NamedTemporaryFile("w", prefix="hosts_", encoding="utf-8") as names:
            # Lets each host resolve the other host's name. The bind mounts keep the file until the hosts exit.
            lines = [("127.0.0.1", "localhost"), *zip(ADDRESSES, HOSTS, strict=True)]
            names.write("".join(f"{address} {name}\n" for address, name in lines))
            names.flush()
            Path(names.name).chmod(0o644)
            for name in HOSTS:
                steps = f"mount --bind {names.name} /etc/hosts && hostname {name} && echo there && exec cat"
                # Each host exits when its standard input is closed, at the latest when this process exits.
                words = ["unshare", "--net", "--uts", "--mount", "sh", "-c", steps]
                pipe = subprocess.PIPE
                nodes.append(subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, encoding="utf-8"))
            for node in nodes:
                if node.stdout.readline() != "there\n":
                    raise OSError(node.stderr.read().strip())
        hosts = Hosts([node.pid for node in nodes])
        if link.milliseconds > 0:
            delaying = delay_line(hosts, link.milliseconds / 1e3)
        else:
            hosts.run(0, f"ip link add {INTERFACE} type veth peer name {INTERFACE} netns {hosts.pids[1]}")
        for host, address in enumerate(ADDRESSES):
            configure(hosts, host, address, link)
        yield hosts
    finally:
        if delaying is not None:
            delaying.terminate()
            delaying.join()
        for node in nodes:
            node.communicate()


def configure(hosts: Hosts, host: int, address: str, link: Link) -> None:
    hosts.run(host, "ip link set lo up")
    hosts.run(host, f"ip addr add {address}/24 dev {INTERFACE}")
    hosts.run(host, f"ip link set {INTERFACE} mtu {MTU} txqueuelen 10000 up")
    if link.gigabits is not None:
        hosts.run(host, f"tc qdisc add dev {INTERFACE} root {link.bucket()}")
        keep_order(hosts, host)


def all_cores(count: int) -> str:
    """Returns a mask of all cores in the kernel's format: groups of 32 bits."""
    mask = (1 << count) - 1
    return ",".join(f"{mask >> shift & 0xFFFFFFFF:x}" for shift in reversed(range(0, count, 32)))


def keep_order(hosts: Hosts, host: int) -> None:
    """Assigns all received packets of a connection to one core, like the queues of a network card.

    By default, the core that dequeues a packet also receives it, and this can be any sending core. Packets are then
    reordered, so TCP retransmits packets that were not lost and slows down.
    """
    # /sys belongs to the machine. This mount shows the interfaces of the host.
    file = f"/tmp/class/net/{INTERFACE}/queues/rx-0/rps_cpus"
    write = f"echo {all_cores(os.cpu_count())} > {file}"
    steps = f"mount -t sysfs host_sys /tmp && {write}; status=$?; umount /tmp; exit $status"
    hosts.run(host, f"sh -c {shlex.quote(steps)}")


def delay_line(hosts: Hosts, seconds: float) -> multiprocessing.Process:
    """Creates the interfaces of both hosts, and a process that forwards packets between them with a delay."""
    ready, child = multiprocessing.Pipe()
    process = multiprocessing.Process(target=pass_on, args=(hosts.pids, seconds, child), daemon=True)
    process.start()
    # Closing the pipe makes the exit of the process detectable.
    child.close()
    try:
        error = ready.recv()
    except EOFError:
        error = "the delay process has ended"
    if error:
        process.join()
        raise OSError(error)
    return process


def pass_on(pids: list[int], seconds: float, ready) -> None:
    try:
        ends = [open_tun(pid) for pid in pids]
    except OSError as error:
        ready.send(str(error))
        return
    ready.send("")
    parent = os.getppid()
    queues: list[collections.deque] = [collections.deque(), collections.deque()]
    while os.getppid() == parent:
        now = time.monotonic()
        dues = [queue[0][0] for queue in queues if queue]
        wait = min(dues) - now if dues else 1.0
        readable = select.select(ends, [], [], max(0.0, wait))[0]
        for end in readable:
            queue = queues[ends.index(end)]
            due = time.monotonic() + seconds
            with contextlib.suppress(BlockingIOError):
                for _ in range(64):
                    queue.append((due, os.read(end, PACKET)))
        now = time.monotonic()
        for queue, to in zip(queues, reversed(ends), strict=True):
            while queue and queue[0][0] <= now:
                with contextlib.suppress(OSError):  # packets are lost while an interface is down
                    os.write(to, queue.popleft()[1])


def open_tun(pid: int) -> int:
    """Creates an interface in the network namespace of a process, with TSO. Returns its file descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/proc/{pid}/ns/net").open(encoding="utf-8") as space:
        if libc.setns(space.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns: " + os.strerror(ctypes.get_errno()))
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), IFF_TUN | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(tun, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4)
    return tun


if __name__ == "__main__":
    print(reason_to_skip() or "supported on this machine", file=sys.stderr)
