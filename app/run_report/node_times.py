"""GPU and network values of rank 0's node over a run, from node.jsonl."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from run_files.values import as_number, as_time

MOST_GPUS = 64
# Chart title, unit, scale factor and axis options by key of a line.
GPU_VALUES = {
    "utilization_ratio": ("GPU utilization", "fraction of time with kernels running", 1, {"tickformat": ".0%"}),
    "power_watts": ("GPU power", "W", 1, {}),
    "temperature_celsius": ("GPU temperature", "degrees Celsius", 1, {}),
    "sm_clock_hertz": ("GPU clock", "MHz, SM clock", 1e-6, {}),
    "memory_used_bytes": ("GPU memory in use", "GiB, all processes", 2**-30, {}),
}


@dataclass
class NodeTimes:
    """Readings in chronological order."""

    host: str = ""  # host of the newest reading
    time: np.ndarray = field(default_factory=lambda: np.empty(0))  # Unix time in seconds
    gpus: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)  # by GPU and key
    # Bytes per second since the previous reading of the same start; NaN: none.
    sent: np.ndarray = field(default_factory=lambda: np.empty(0))
    received: np.ndarray = field(default_factory=lambda: np.empty(0))

    def gpu_names(self) -> list[str]:
        return sorted({gpu for gpu, _ in self.gpus}, key=lambda name: (len(name), name))


def node_times_of(lines: Iterable[dict], run_id: str | None) -> NodeTimes:
    """Returns the readings of the run. Skips invalid lines."""
    lines = [line for line in lines if line.get("run") == run_id and math.isfinite(as_time(line.get("time")))]
    time = column(lines, "time")
    starts = [str(line.get("start")) for line in lines]
    readings = [line["gpus"] if isinstance(line.get("gpus"), dict) else {} for line in lines]
    names = sorted({name for gpus in readings for name in gpus})[:MOST_GPUS]
    gpus = {}
    for name in names:
        of_gpu = [of_line[name] if isinstance(of_line.get(name), dict) else {} for of_line in readings]
        gpus |= {(name, key): column(of_gpu, key) for key in GPU_VALUES}
    return NodeTimes(
        host=str(lines[-1].get("host", "")) if lines else "",
        time=time,
        gpus={key: values for key, values in gpus.items() if np.isfinite(values).any()},
        sent=rate(column(lines, "sent_bytes"), time, starts),
        received=rate(column(lines, "received_bytes"), time, starts),
    )


def column(lines: list[dict], key: str) -> np.ndarray:
    return np.array([as_number(line.get(key)) for line in lines], dtype=float)


def rate(bytes_: np.ndarray, time: np.ndarray, starts: list[str]) -> np.ndarray:
    result = np.full(len(time), np.nan)
    for at in range(1, len(time)):
        seconds, more = time[at] - time[at - 1], bytes_[at] - bytes_[at - 1]
        if starts[at] == starts[at - 1] and seconds > 0 and more >= 0:
            result[at] = more / seconds
    return result
