"""Two hosts, each a network namespace, whose ranks meet over the network that scripts/network.sh chooses."""

import os
import shlex
import shutil
import subprocess

import pytest
from trainer import BUILD, REPOSITORY

pytestmark = pytest.mark.e2e

# HyperPod's agent has this interface, with this address, on every node. Each name has an end of its own in the host.
DUPLICATE = "ip link add veth_def_agent type veth peer name agent_end && ip addr add 169.254.0.1/16 dev veth_def_agent"
# Each host has an address in a network whose other end drops everything.
DEAD = "ip link add eth1 type veth peer name dead_end && ip addr add 10.5.0.{host}/24 dev eth1"
# As p5 has: the other cards' addresses are in the network of the first.
CARDS = (
    "for i in $(seq 2 31); do ip link add card$i type veth peer name end$i && "
    "ip addr add 10.9.0.$((100 * {host} + i))/24 dev card$i metric 5$i; done"
)
UP = "for link in /sys/class/net/*; do ip link set ${link##*/} up; done"


@pytest.fixture
def hosts():
    """The commands that enter the hosts h0 and h1, connected by eth0."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "ip", "mpirun", "ompi_info"))):
        pytest.skip("needs root, ip and Open MPI")
    words = ["unshare", "--net", "--uts", "--mount", "sh", "-c"]
    pipe = subprocess.PIPE
    nodes = [
        subprocess.Popen(
            # /sys shows the interfaces of the namespace that mounts it.
            [*words, f"hostname h{host} && ip link set lo up && mount -t sysfs sys /sys && echo there && exec cat"],
            stdin=pipe, stdout=pipe, stderr=pipe, text=True,
        )
        for host in (0, 1)
    ]  # fmt: skip
    try:
        if [node.stdout.readline() for node in nodes] != ["there\n"] * 2:
            pytest.skip("network namespaces are not allowed here")
        enter = [["nsenter", f"--target={node.pid}", "--net", "--uts", "--mount"] for node in nodes]
        on(enter[0], f"ip link add eth0 type veth peer name eth0 netns {nodes[1].pid}")
        yield enter
    finally:
        for node in nodes:
            node.communicate()


def on(enter: list[str], command: str) -> str:
    done = subprocess.run([*enter, "bash", "-euc", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def chosen(enter: list[list[str]], addresses: list[str]) -> list[str]:
    """What a job exports, as NAME=VALUE, if Slurm knows the hosts by these addresses."""
    source = f"MPZERO_ROOT={REPOSITORY}; cd $MPZERO_ROOT; for part in common network; do . scripts/$part.sh; done; "
    routes = [on(words, f"{source} route_to '{addresses[0]}'").strip() for words in enter]
    lines = shlex.join(f"h{host} {route}" for host, route in enumerate(routes))
    return [
        line for line in on(enter[0], f"{source} set_mpi_network {lines}; env").splitlines() if "_if_include=" in line
    ]


@pytest.mark.parametrize("network", ["IPv6 alone", "equal addresses, a dead network and 32 cards"])
def test_ranks_meet_over_the_chosen_network(hosts, network, tmp_path):
    if not (BUILD / "bin/mpzero").exists():
        pytest.skip(f"{BUILD} holds no mpzero")
    ipv6 = network == "IPv6 alone"
    said = subprocess.run(["ompi_info", "--parsable"], capture_output=True, text=True).stdout
    if ipv6 and "options:ipv6:yes" not in said:
        pytest.skip("this Open MPI has no IPv6")
    addresses = ["fd00:9::1", "fd00:9::2"] if ipv6 else ["10.9.0.1", "10.9.0.2"]
    names = tmp_path / "hosts"
    names.write_text("127.0.0.1 localhost\n" + "".join(f"{a} h{host}\n" for host, a in enumerate(addresses)))
    for host, enter in enumerate(hosts):
        on(enter, f"mount --bind {names} /etc/hosts; ip link set eth0 up")
        if ipv6:
            on(enter, f"ip addr add {addresses[host]}/64 dev eth0 nodad; ip route add default via fd00:9::fe dev eth0")
        else:
            # The cards first: the kernel lists their routes first, too.
            more = "\n".join(words.format(host=host + 1) for words in (CARDS, DUPLICATE, DEAD))
            on(enter, f"{more}\n{UP}\nip addr add {addresses[host]}/24 dev eth0 metric 50")
    variables = chosen(hosts, [""] if ipv6 else addresses)
    assert sorted(line.split("=")[1] for line in variables) == ["eth0"] * 3
    agent = tmp_path / "agent"
    both = [
        *variables,
        "OMPI_ALLOW_RUN_AS_ROOT=1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
        f"OMPI_MCA_plm_rsh_agent={agent}",
    ]
    remote = shlex.join([*hosts[1], "env", *both, "sh", "-c"])
    agent.write_text(f'#!/bin/sh\n# In place of ssh HOST COMMAND.\nshift\nexec {remote} "$*"\n')
    agent.chmod(0o755)
    doctor = [BUILD / "bin/mpzero", "doctor", "--quick", "--device", "cpu", "--json", tmp_path / "doctor.json"]
    options = ["--bind-to", "none", "--mca", "plm", "rsh", "--mca", "pml", "ob1", "--mca", "btl", "self,tcp"]
    mpirun = ["mpirun", *options, "--timeout", "50", "--host", "h0,h1", "-n", "2"]
    done = subprocess.run(
        [*hosts[0], "env", *both, f"--chdir={tmp_path}", *mpirun, *doctor], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
