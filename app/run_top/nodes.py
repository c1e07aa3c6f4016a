"""Reads the Prometheus endpoints of a run's nodes."""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

from run_files.values import is_whole

from run_top.reading import RunView

MOST_NODES = 32
PATIENCE_SECONDS = 0.8
MOST_BYTES = 4 << 20
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
RECEIVED, SENT = (
    [f"mpzero_rdma_{short}_bytes_total", f"mpzero_network_{long}_bytes_total"]
    for short, long in (("rx", "receive"), ("tx", "transmit"))
)

Labels = dict[str, str]
Samples = list[tuple[str, Labels, float]]  # name of the metric, labels, value


@dataclass
class NodeView:
    """Metrics of a node; rates are averages between two scrapes. None: not reported."""

    host: str
    problem: str = ""  # reason for missing values
    cpu: float | None = None  # share of all cores
    memory_available: float | None = None
    sent: float | None = None  # bytes per second over all RDMA devices, else over all network interfaces
    received: float | None = None
    gpus: dict[int, dict[str, float]] = field(default_factory=dict)  # GPU index -> metric without mpzero_gpu_ -> value


def samples_of(page: str) -> Samples:
    """Parses samples in Prometheus' text format. Skips invalid lines."""
    samples = []
    for found in map(SAMPLE.fullmatch, page.split("\n")):
        try:
            if found:
                samples.append((found.group(1), dict(LABEL.findall(found.group(2) or "")), float(found.group(3))))
        except ValueError:
            continue
    return samples


def total(samples: Samples, name: str, counts: Callable[[Labels], bool] = lambda _: True) -> float | None:
    values = [value for metric, labels, value in samples if metric == name and counts(labels)]
    return sum(values) if values else None


def view_of(host: str, before: Samples, now: Samples, seconds: float) -> NodeView:
    """Computes rates from two scrapes. `seconds`: time from `before` to `now`."""

    def rate(name: str, counts: Callable[[Labels], bool] = lambda _: True) -> float | None:
        first, last = total(before, name, counts), total(now, name, counts)
        is_known = first is not None and last is not None and last >= first and seconds > 0
        return (last - first) / seconds if is_known else None

    def of_network(names: list[str]) -> float | None:
        rates = (rate(name, lambda labels: labels.get("device") != "lo") for name in names)
        return next((found for found in rates if found is not None), None)

    node = NodeView(host, memory_available=total(now, "mpzero_host_memory_available_bytes"))
    if all_modes := rate("mpzero_host_cpu_seconds_total"):
        node.cpu = (
            1 - (rate("mpzero_host_cpu_seconds_total", lambda labels: labels.get("mode") == "idle") or 0) / all_modes
        )
    node.sent, node.received = of_network(SENT), of_network(RECEIVED)
    for metric, labels, value in now:
        if metric.startswith("mpzero_gpu_") and re.fullmatch("[0-9]{1,4}", labels.get("gpu", "")):
            key = metric[len("mpzero_gpu_") :]
            is_fault = key != "throttled" or (value > 0 and "slowdown" in labels.get("reason", ""))
            node.gpus.setdefault(int(labels["gpu"]), {}).update({key: value} if is_fault else {})
    return node


class Nodes:
    """Scrapes the endpoints of a run concurrently."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, Samples]] = {}  # last scrape by host: (time, samples)
        self._asked: dict[str, threading.Thread] = {}

    def look(self, run: RunView) -> list[NodeView]:
        port = run.start.get("metrics_port")
        if not is_whole(port) or port == 0 or run.end:
            return []
        hosts = sorted(set(run.hosts))
        answers: dict[str, Samples | str] = {}
        deadline = time.monotonic() + PATIENCE_SECONDS
        for host in hosts[:MOST_NODES]:
            # Do not repeat a request that hangs, e.g. in a name lookup. Its daemon thread ends with this process.
            if host not in self._asked or not self._asked[host].is_alive():
                words = (answers, host, address_of(host, run), port, run.start.get("run"))
                self._asked[host] = threading.Thread(target=ask, args=words, daemon=True)
                self._asked[host].start()
        for host in hosts[:MOST_NODES]:
            self._asked[host].join(max(0, deadline - time.monotonic()))
        nodes = [self._view(host, port, answers.get(host, "timed out")) for host in hosts[:MOST_NODES]]
        if len(hosts) > MOST_NODES:
            nodes.append(NodeView(f"{len(hosts) - MOST_NODES} more hosts", problem="not queried"))
        return nodes

    def _view(self, host: str, port: int, answer: Samples | str) -> NodeView:
        if isinstance(answer, str):
            self._before.pop(host, None)
            return NodeView(host, problem=f"cannot read metrics from port {port}: {answer}")
        now = time.monotonic()
        then, before = self._before.get(host, (now, []))
        self._before[host] = now, answer
        return view_of(host, before, answer, now - then)


def address_of(host: str, run: RunView) -> str:
    """Returns the address of a host's endpoint; for this host, the address in --metrics_address."""
    address = str(run.start.get("metrics_address") or "0.0.0.0")
    if host != socket.gethostname():
        return host
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)


def ask(answers: dict[str, Samples | str], host: str, address: str, port: int, run: object) -> None:
    """Stores the samples or an error in `answers`. Rejects samples from another run, which may use the same port."""
    try:
        with closing(http.client.HTTPConnection(address, port, timeout=PATIENCE_SECONDS)) as connection:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            page = answer.read(MOST_BYTES).decode(errors="replace")
    except (OSError, ValueError, http.client.HTTPException) as error:
        answers[host] = str(error) or type(error).__name__
        return
    samples = samples_of(page)
    run_of_page = next((labels.get("run_id") for name, labels, _ in samples if name == "mpzero_up"), None)
    if answer.status != http.client.OK:
        answers[host] = f"HTTP status {answer.status}"
    elif run_of_page != run:
        answers[host] = f"the port serves run {run_of_page}" if run_of_page else "the port does not serve a run"
    else:
        answers[host] = samples
