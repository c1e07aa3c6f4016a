"""What a node of an EC2 instance type has: devices by the program's table, CPUs and memory by instances.csv."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1]
DEVICES = FOLDER.parent / "app/machine/ec2_instances.inc"
OFFERED = FOLDER / "instances.csv"
# Columns of ec2_instances.inc: type, GPUs, their name, their memory, EFA devices, ...
ROW = re.compile(r'^\{"([^"]+)", (\d+), "[^"]+", \d+, (\d+), ', re.MULTILINE)

# What each node's own pods need: CNI, kube-proxy, the device plugins, the drivers of storage, exporters.
RESERVED_CPUS = 1
RESERVED_MEMORY = 0.05  # of the memory for pods, and for what Karpenter's estimate lacks


class UnknownInstance(ValueError):
    pass


@dataclass(frozen=True)
class Node:
    type: str
    gpus: int
    efa: int
    cpus: int  # that a pod which has the node to itself asks for
    memory_gib: int


def known_types() -> list[str]:
    return [row["type"] for row in offered()]


def offered() -> list[dict[str, str]]:
    lines = [line for line in OFFERED.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def devices() -> dict[str, tuple[int, int]]:
    """GPUs and EFA devices of each type that has GPUs."""
    return {kind: (int(gpus), int(efa)) for kind, gpus, efa in ROW.findall(DEVICES.read_text(encoding="utf-8"))}


def find(kind: str) -> Node:
    row = next((row for row in offered() if row["type"] == kind), None)
    if row is None:
        near = get_close_matches(kind, known_types(), n=1)
        advice = f"did you mean {near[0]}?" if near else f"{OFFERED.name} lists those that are known."
        raise UnknownInstance(f"--instance {kind} is not known; {advice}")
    gpus, efa = devices().get(kind, (0, 1))
    memory = int(row["memory_mib"]) * (1 - RESERVED_MEMORY)
    return Node(kind, gpus, efa, int(row["cpu_millis"]) // 1000 - RESERVED_CPUS, int(memory) // 1024)
