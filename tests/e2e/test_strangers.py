"""Strangers that connect to the ranks' ports, and send nothing or the wrong data, do not disturb the run."""

from __future__ import annotations

import re
import resource
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from live_run import LiveRun
from tiny_run import TinyRun

pytestmark = pytest.mark.e2e

LISTENS = "0A"
FILES = 1024
SILENT = 1100


@pytest.fixture(autouse=True)
def only_the_ranks_own_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open MPI's own ports would be on every address."""
    monkeypatch.setenv("OMPI_MCA_btl", "self,vader")


@pytest.fixture
def many_files() -> Iterator[None]:
    """For this process, which acts as the strangers."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def listening(pid: int) -> list[tuple[str, int]]:
    """The IPv4 addresses and ports on which a process listens."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        found = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
        if found:
            inodes.add(found.group(1))
    places = []
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == LISTENS and words[9] in inodes:
            address, port = words[1].split(":")
            places.append((socket.inet_ntoa(struct.pack("<I", int(address, 16))), int(port, 16)))
    return places


def port_of(live: LiveRun, rank: int) -> int:
    (port,) = {port for _, port in listening(live.ranks()[rank])}
    return port


def silent_stranger(port: int) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), timeout=60)
    one.setblocking(False)
    return one


def is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def nonsense() -> list[bytes]:
    code = b"0" * 64
    return [
        b"GET / HTTP/1.1\r\n\r\n",
        b"hello 1 " + code + b" " + code + b"\n",  # another key
        b'{"t":"hello","rank":1,"token":""}\n',
        b"hello 1 ",  # half open
        b"x" * 1_000_000,
        b"\xff\x00" * 400,
        b"\n" * 100,
        b"",
    ]


@contextmanager
def talking_strangers(ports: list[int]) -> Iterator[list[int]]:
    """Connects, sends nonsense and connects again, until the block ends. Counts the connections."""
    ends = threading.Event()
    count = [0]

    def talk() -> None:
        while not ends.is_set():
            for port in ports:
                for words in nonsense():
                    try:
                        with socket.create_connection(("127.0.0.1", port), timeout=5) as one:
                            one.sendall(words)
                            count[0] += 1
                    except OSError:
                        continue  # closed while it sent, or the run is over
            ends.wait(0.01)

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        yield count
    finally:
        ends.set()
        thread.join()


@pytest.mark.usefixtures("many_files")
def test_a_flood_of_strangers_costs_no_save(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    steps, every = 2000, 100
    with LiveRun(run, f"--max_steps={steps}", f"--checkpoint_freq={every}", "--keep_last=0") as live:
        live.wait_for_step(3)
        live.signal(signal.SIGSTOP, 0, 1)
        for pid in live.ranks():
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        ports = [port_of(live, rank) for rank in (0, 1)]
        silent = [silent_stranger(ports[0]) for _ in range(SILENT)]
        assert len(run.metrics()) < steps - 10 * every
        with talking_strangers(ports) as count:
            live.signal(signal.SIGCONT, 0, 1)
            # All but those of two ranks and 16.
            live.wait_for(lambda: sum(map(is_closed, silent)) >= SILENT - 18, "closed connections")
            live.wait_for(lambda: count[0] >= 100, "nonsense")
            for pid in live.ranks():
                assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < FILES // 2
            status = live.finish()
    for one in silent:
        one.close()
    assert status == 0, live.errors
    assert live.output.count("Saved checkpoint: ") == steps // every, live.output + live.errors
    assert "could not be saved" not in live.errors
    # Each rank reports the first immediately, and the others much later.
    for rank in (0, 1):
        text = rf"warning: rank {rank} on \S+ has closed a connection from 127\.0\.0\.1:\d+(?: and \d+ more)?, because "
        assert len(re.findall(text, live.errors)) == 1, live.errors


def test_ranks_listen_only_at_the_addresses_that_others_know(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    with LiveRun(run, "--max_steps=100000", "--checkpoint_freq=0") as live:
        live.wait_for_step(3)
        for pid in live.ranks():
            places = listening(pid)
            assert ("127.0.0.1", port_of(live, live.ranks().index(pid))) in places
            assert "0.0.0.0" not in dict(places)
        live.signal(signal.SIGUSR1, 0)
        assert live.finish() == 75, live.errors
