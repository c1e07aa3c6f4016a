#!/usr/bin/env python3
"""Measures the throughput of plain TCP streams between two hosts, for comparison with NCCL over sockets.

    bench/tcp_streams.py serve [--port 5201]                                      on one host
    bench/tcp_streams.py measure HOST [--port 5201] [--streams 1 2 4 8] [--seconds 2]     on the other host
    bench/tcp_streams.py local [--interface eth0]                      both on this machine
    srun --nodes=2 --ntasks=2 bench/tcp_streams.py slurm FILE          the first two nodes of a Slurm job

Uses one process per stream on each side. Prints a JSON object: total gigabytes per second (1e9 bytes) by number of
streams, for each direction and for both directions at once, and the round-trip time of a byte. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import multiprocessing
import os
import signal
import socket
import statistics
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

BUFFER = 1 << 20
# Connection types. The server's process for a connection exits when the connection closes.
SEND, RECEIVE, ECHO = b"S", b"R", b"E"
PATIENCE = 60


def receive_all(connection: socket.socket) -> int:
    buffer = bytearray(BUFFER)
    count = 0
    while received := connection.recv_into(buffer):
        count += received
    return count


def send_until(connection: socket.socket, end: float) -> int:
    """Sends until time.monotonic() reaches `end` or the peer disconnects. Returns the number of bytes."""
    buffer = bytes(BUFFER)
    count = 0
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while time.monotonic() < end:
            count += connection.send(buffer)
    return count


def answer(connection: socket.socket) -> None:
    """Serves one connection."""
    with connection:
        connection.settimeout(PATIENCE)
        what = connection.recv(1)
        if what == SEND:
            receive_all(connection)
        elif what == RECEIVE:
            send_until(connection, time.monotonic() + PATIENCE)
        elif what == ECHO:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while byte := connection.recv(1):
                connection.sendall(byte)


def serve(listening: socket.socket) -> None:
    """Serves each connection in a child process. The child processes are terminated with this process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    workers: list[multiprocessing.Process] = []
    while True:
        connection, _ = listening.accept()
        worker = multiprocessing.Process(target=answer, args=(connection,), daemon=True)
        worker.start()
        connection.close()
        workers = [each for each in workers if each.is_alive()] + [worker]


def listen(address: str, port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((address, port))
    listening.listen(256)
    return listening


def connect(address: tuple[str, int], what: bytes) -> socket.socket:
    connection = socket.create_connection(address, timeout=PATIENCE)
    connection.sendall(what)
    return connection


def stream(address: tuple[str, int], what: bytes, seconds: float, barrier, rates) -> None:
    """Runs one stream and reports its bytes per second after the first half second."""
    with connect(address, what) as connection:
        barrier.wait(PATIENCE)
        count, begun = 0, time.monotonic()
        settled = begun + min(0.5, seconds / 4)
        end = begun + seconds
        if what == SEND:
            send_until(connection, settled)
            start = time.monotonic()
            count = send_until(connection, end)
        else:
            buffer = bytearray(BUFFER)
            while time.monotonic() < settled:
                connection.recv_into(buffer)
            start = time.monotonic()
            while time.monotonic() < end:
                count += connection.recv_into(buffer)
        rates.put(count / (time.monotonic() - start))


def rate_of(address: tuple[str, int], kinds: list[bytes], seconds: float) -> float:
    """Returns the bytes per second of concurrent streams, one for each entry in `kinds`."""
    barrier = multiprocessing.Barrier(len(kinds))
    rates: multiprocessing.Queue = multiprocessing.Queue()
    arguments = [(address, kind, seconds, barrier, rates) for kind in kinds]
    workers = [multiprocessing.Process(target=stream, args=each, daemon=True) for each in arguments]
    for worker in workers:
        worker.start()
    total = sum(rates.get(timeout=seconds + PATIENCE) for _ in workers)
    for worker in workers:
        worker.join()
    return total


def round_trip(address: tuple[str, int], count: int = 200) -> float:
    """Returns the median round-trip time in seconds."""
    times = []
    with connect(address, ECHO) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            start = time.monotonic()
            connection.sendall(b"x")
            connection.recv(1)
            times.append(time.monotonic() - start)
    return statistics.median(times)


def measure(address: tuple[str, int], streams: list[int], seconds: float) -> dict:
    kinds = {"sent": [SEND], "received": [RECEIVE], "both_ways": [SEND, RECEIVE]}
    found: dict = {"address": address[0], "round_trip_us": round(round_trip(address) * 1e6, 1)}
    for name, kind in kinds.items():
        found[name] = {str(n): round(rate_of(address, kind * n, seconds) / 1e9, 3) for n in streams}
    found["gigabytes_per_second"] = max(found["sent"].values())
    return found


def address_of(interface: str) -> str:
    """Returns the IPv4 address of an interface of this machine."""
    siocgifaddr = 0x8915
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("256s", interface.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(any_socket.fileno(), siocgifaddr, request)[20:24])


@contextlib.contextmanager
def server(address: str) -> Iterator[int]:
    """Yields the port of a server that runs in a child process."""
    with listen(address, 0) as listening:
        # The server starts child processes, so it cannot be a daemon.
        process = multiprocessing.Process(target=serve, args=(listening,))
        process.start()
        try:
            yield listening.getsockname()[1]
        finally:
            process.terminate()
            process.join()


def local(interface: str | None, streams: list[int], seconds: float) -> dict:
    address = address_of(interface) if interface else "127.0.0.1"
    with server(address) as port:
        return measure((address, port), streams, seconds)


def between_two_nodes(file: Path, streams: list[int], seconds: float) -> None:
    """Task 0 of a Slurm step serves. Task 1 measures and writes the file, which both tasks must be able to access."""
    meeting = file.with_suffix(".address")
    if os.environ["SLURM_PROCID"] == "0":
        meeting.unlink(missing_ok=True)
        file.unlink(missing_ok=True)
        host = socket.gethostname()
        with server("0.0.0.0") as port:
            meeting.with_suffix(".new").write_text(
                json.dumps([host, port, os.environ["SLURM_STEP_ID"]]), encoding="utf-8"
            )
            meeting.with_suffix(".new").rename(meeting)
            wait_for(file)
        meeting.unlink()
        return
    host, port, step = json.loads(wait_for(meeting))
    while step != os.environ["SLURM_STEP_ID"]:
        # The file is from an earlier step.
        time.sleep(0.2)
        host, port, step = json.loads(wait_for(meeting))
    text = json.dumps(measure((host, port), streams, seconds), indent=1)
    file.with_suffix(".new").write_text(text, encoding="utf-8")
    file.with_suffix(".new").rename(file)


def wait_for(file: Path) -> str:
    end = time.monotonic() + 5 * PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(FileNotFoundError):
            return file.read_text(encoding="utf-8")
        time.sleep(0.2)
    raise SystemExit(f"tcp_streams.py: {file} is missing: the other node has not started, or does not share this path")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("serve", "measure", "local", "slurm"):
        command = commands.add_parser(name)
        if name in ("serve", "measure"):
            command.add_argument("--port", type=int, default=5201)
        if name == "serve":
            continue
        command.add_argument("--streams", type=int, nargs="+", default=[1, 2, 4, 8])
        command.add_argument("--seconds", type=float, default=2.0, help="duration per number of streams and direction")
        if name == "measure":
            command.add_argument("host")
        if name == "local":
            command.add_argument("--interface", help="default: loopback")
        if name == "slurm":
            command.add_argument("file", type=Path)
    args = parser.parse_args(arguments)
    if args.command == "serve":
        with contextlib.suppress(KeyboardInterrupt):
            serve(listen("0.0.0.0", args.port))
        return 0
    what = (args.streams, args.seconds)
    try:
        if args.command == "slurm":
            between_two_nodes(args.file, *what)
        elif args.command == "local":
            print(json.dumps(local(args.interface, *what), indent=1))
        else:
            print(json.dumps(measure((args.host, args.port), *what), indent=1))
    except OSError as error:
        print(f"tcp_streams.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
