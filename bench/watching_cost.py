#!/usr/bin/env python3
"""Measures what Prometheus' endpoint costs a training run.

    bench/watching_cost.py FOLDER --build build --train_data T.h5 [--steps 400] [--turns 3] [--device cuda]

The same training runs in turns without an endpoint and with one (--metrics_port), which is scraped once a second and on
which --idle connections are held that never ask; those that it closes are opened again before the next scrape. With
--control a third side has the same connections and scrapes answered by this program, and no endpoint: what the client
costs, which shares the machine here.

FOLDER gets logs and metrics of each run. The last line is one JSON object: milliseconds of a step (median and mean of
each run: the median over the turns, the least and the greatest) and how each compares with the run without an endpoint
in the same turn. Exits with status 1 if a run fails, or if an endpoint answers no scrape.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import resource
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from measures import read_metrics

REPOSITORY = Path(__file__).resolve().parents[1]
HOST = "127.0.0.1"
PATIENCE_SECONDS = 5  # for one connection or answer
MOST_CONNECTIONS = 64  # of the endpoint: HttpServer::kMostConnections
OTHER_FILES = 200  # that this program has open besides the idle connections


class Client(threading.Thread):
    """Holds connections that do not ask, and scrapes, until it is stopped."""

    def __init__(self, port: int, idle: int, period: float):
        super().__init__(daemon=True)
        self.port, self.wanted, self.period = port, idle, period
        self.idle: list[socket.socket] = []
        self.most_idle = 0
        self.scrapes: list[tuple[float, float]] = []  # when it began (seconds since 1970), how long it took
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(self.period):
            try:
                self.renew()
                began, clock = time.time(), time.monotonic()
                self.scrape()
                self.scrapes.append((began, time.monotonic() - clock))
            except OSError:
                pass  # it is not open yet, or no longer
        for connection in self.idle:
            connection.close()

    def renew(self) -> None:
        """Opens what is missing, and opens again what the endpoint has closed."""
        kept = []
        for connection in self.idle:
            if is_open(connection):
                kept.append(connection)
            else:
                connection.close()
        self.idle = kept
        while len(self.idle) < self.wanted:
            connection = socket.create_connection((HOST, self.port), PATIENCE_SECONDS)
            connection.setblocking(False)
            self.idle.append(connection)
        self.most_idle = max(self.most_idle, len(self.idle))

    def scrape(self) -> None:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise OSError(f"status {answer.status}")
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()

    def stop(self) -> None:
        self.ended.set()
        self.join()


def is_open(connection: socket.socket) -> bool:
    """Nothing is ever sent to such a connection: it can be read once the peer has closed it."""
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


class StandIn(threading.Thread):
    """Answers as the endpoint does: a connection that asks gets a page; of those that do not, the oldest makes room."""

    def __init__(self, port: int):
        super().__init__(daemon=True)
        self.listener = socket.create_server((HOST, port), backlog=4096)
        self.ended = threading.Event()

    def run(self) -> None:
        silent: list[socket.socket] = []
        with selectors.DefaultSelector() as ready:
            ready.register(self.listener, selectors.EVENT_READ)
            while not self.ended.is_set():
                for key, _ in ready.select(0.1):
                    if key.fileobj is self.listener:
                        connection = self.listener.accept()[0]
                        ready.register(connection, selectors.EVENT_READ)
                        silent.append(connection)
                        closed = silent.pop(0) if len(silent) > MOST_CONNECTIONS else None
                    elif key.fileobj in silent:
                        closed = key.fileobj
                        silent.remove(closed)
                        with contextlib.suppress(OSError):
                            if closed.recv(4096):
                                closed.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + b"# no metrics\n" * 1000)
                    else:
                        continue
                    if closed is not None:
                        ready.unregister(closed)
                        closed.close()
        for connection in [self.listener, *silent]:
            connection.close()

    def stop(self) -> None:
        self.ended.set()
        self.join()


@dataclass
class Side:
    """One way to run it."""

    name: str
    endpoint: bool = False  # --metrics_port
    client: bool = False
    medians: list[float] = field(default_factory=list)  # seconds, of each turn
    means: list[float] = field(default_factory=list)
    scrapes: list[float] = field(default_factory=list)  # seconds, those during measured steps
    most_idle: int = 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def config_of(arguments: argparse.Namespace) -> dict:
    """The user's file with micro-batches of one sequence."""
    config = json.loads(arguments.deepspeed_config.read_text())
    config.pop("train_batch_size", None)
    config |= {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}
    if arguments.without_offload:
        config.get("zero_optimization", {}).pop("offload_optimizer", None)
    return config


def command_of(arguments: argparse.Namespace, folder: Path, port: int | None) -> list[str]:
    (folder / "ds_config.json").write_text(json.dumps(config_of(arguments)))
    model = {"model_config": arguments.model_config} if arguments.model_config else {"model_type": arguments.model_type}
    flags = {
        "deepspeed_config": folder / "ds_config.json",
        **model,
        "train_data": arguments.train_data,
        "seq_length": arguments.seq_length,
        "max_steps": arguments.warm_up + arguments.steps,
        "checkpoint_dir": folder / "checkpoints",
        "checkpoint_freq": 0,
        "save_final": "false",
        "logging_freq": 100,
        "metrics_file": folder / "metrics.jsonl",
        "device": arguments.device,
    }
    if port is not None:
        flags["metrics_port"] = port
    mpirun = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", "1"]
    return [*mpirun, str(arguments.build / "bin" / "mpzero"), "train", *(f"--{key}={flags[key]}" for key in flags)]


def run_once(side: Side, turn: int, arguments: argparse.Namespace) -> None:
    """One run of a side, whose steps after the warm-up are added to it."""
    folder = arguments.folder / f"turn-{turn}-{side.name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    port = free_port()
    stand_in = StandIn(port) if side.client and not side.endpoint else None
    if stand_in is not None:
        stand_in.start()
    client = Client(port, arguments.idle, arguments.scrape_seconds) if side.client else None
    log = folder / "log.txt"
    if client is not None:
        client.start()
    try:
        with log.open("w") as stream:
            status = subprocess.run(
                command_of(arguments, folder, port if side.endpoint else None),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
    finally:
        if client is not None:
            client.stop()
        if stand_in is not None:
            stand_in.stop()
    if status != 0:
        sys.exit(f"{folder.name}: mpzero ended with status {status}; the end of {log}:\n{log.read_text()[-2000:]}")
    lines = read_metrics(folder / "metrics.jsonl")[arguments.warm_up :]
    seconds = [line["step_seconds"] for line in lines]
    side.medians.append(statistics.median(seconds))
    side.means.append(statistics.fmean(seconds))
    if client is None:
        return
    began = lines[0]["time"] - seconds[0]
    answered = [took for when, took in client.scrapes if began <= when <= lines[-1]["time"]]
    if not answered:
        sys.exit(f"{folder.name}: no scrape was answered in {sum(seconds):.1f} s; raise --steps, or see {log}")
    side.scrapes += answered
    side.most_idle = max(side.most_idle, client.most_idle)


def spread(values: list[float], digits: int) -> dict:
    """Over the turns."""
    return {
        "median": round(statistics.median(values), digits),
        "least": round(min(values), digits),
        "greatest": round(max(values), digits),
    }


def figures_of(sides: list[Side]) -> dict:
    """`sides`: the first is what the others are compared with, turn by turn."""
    first = sides[0]
    figures: dict = {}
    for side in sides:
        figures[side.name] = {
            "median_step_ms": spread([value * 1e3 for value in side.medians], 4),
            "mean_step_ms": spread([value * 1e3 for value in side.means], 4),
        }
        if side is not first:
            pairs = {"median": (side.medians, first.medians), "mean": (side.means, first.means)}
            figures[side.name]["ratio"] = {
                name: spread([one / other for one, other in zip(*both, strict=True)], 5) for name, both in pairs.items()
            }
        if side.scrapes:
            figures[side.name]["scrapes"] = {
                "answered": len(side.scrapes),
                "median_ms": round(statistics.median(side.scrapes) * 1e3, 2),
                "longest_ms": round(max(side.scrapes) * 1e3, 2),
            }
            figures[side.name]["idle_connections"] = side.most_idle
    return figures


def allow_connections(count: int) -> None:
    """Both ends of a connection are files of this program where it answers, too."""
    wanted = 2 * count + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        sys.exit(
            f"--idle {count} needs {wanted} open files, and this machine allows {hard}: lower it or raise ulimit -n"
        )
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build")
    parser.add_argument("--train_data", type=Path, required=True)
    parser.add_argument("--model_type", default="qwen3_0_6b")
    parser.add_argument("--model_config", type=Path, help="a config.json instead of --model_type")
    parser.add_argument("--deepspeed_config", type=Path, default=REPOSITORY / "configs" / "ds_config.json")
    parser.add_argument("--without_offload", action="store_true", help="leave offload_optimizer out of that file")
    parser.add_argument("--seq_length", type=int, default=512)
    parser.add_argument("--steps", type=int, default=400, help="of each run, after the warm-up (default: 400)")
    parser.add_argument("--warm_up", type=int, default=50, help="steps that do not count (default: 50)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--idle", type=int, default=1000, help="connections that never ask (default: 1000)")
    parser.add_argument("--scrape_seconds", type=float, default=1.0, help="between two scrapes (default: 1)")
    parser.add_argument("--control", action="store_true", help="a third side: the client alone")
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    allow_connections(arguments.idle)
    os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    sides = [Side("without"), Side("watched", endpoint=True, client=True)]
    if arguments.control:
        sides.append(Side("client_alone", client=True))
    for turn in range(1, arguments.turns + 1):
        # Back and forth, so that a machine that warms up favours none.
        for side in sides if turn % 2 == 1 else reversed(sides):
            run_once(side, turn, arguments)
            print(
                f"turn {turn} {side.name}: median {side.medians[-1] * 1e3:.3f} ms, mean {side.means[-1] * 1e3:.3f} ms"
            )
    asked = ("model_type", "seq_length", "steps", "turns", "scrape_seconds", "device", "without_offload")
    settings = {key: getattr(arguments, key) for key in asked}
    if arguments.model_config:
        settings["model_type"] = str(arguments.model_config)
    print(json.dumps({"measure": "watching_cost", **settings, **figures_of(sides)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
