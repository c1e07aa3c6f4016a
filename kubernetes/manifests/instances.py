"""What a node of an EC2 instance type has: devices by the program's table, the rest by instances.csv."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1]
DEVICES = FOLDER.parent / "app/machine/ec2_instances.inc"
OFFERED = FOLDER / "instances.csv"
# Columns of ec2_instances.inc: type, GPUs, their name, their memory, EFA devices, ...
ROW = re.compile(r'^\{"([^"]+)", (\d+), "[^"]+", \d+, (\d+), ', re.MULTILINE)
# SageMaker HyperPod's name of a type, and the label of its nodes, begin with it.
HYPERPOD = "ml."

# What each node's own pods need: CNI, kube-proxy, the device plugins, the drivers of storage, exporters.
RESERVED_CPUS = 1
RESERVED_MEMORY = 0.05  # of the memory for pods, and for what Karpenter's estimate lacks


class UnknownInstance(ValueError):
    pass


@dataclass(frozen=True)
class Node:
    """What a node has; of several types, what a node of each of them has."""

    types: tuple[str, ...]  # EC2's names
    gpus: int
    efa: int
    efa_cards: tuple[int, ...]  # the network cards that can have EFA
    cpus: int  # that a pod which has the node to itself asks for
    memory_gib: int
    hyperpod: bool = False

    @property
    def name(self) -> str:
        """Of one type, the node's label node.kubernetes.io/instance-type."""
        return ",".join(f"{HYPERPOD if self.hyperpod else ''}{kind}" for kind in self.types)


def known_types() -> list[str]:
    return [row["type"] for row in offered()]


def offered() -> list[dict[str, str]]:
    lines = [line for line in OFFERED.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def devices() -> dict[str, tuple[int, int]]:
    """GPUs and EFA devices of each type that has GPUs."""
    return {kind: (int(gpus), int(efa)) for kind, gpus, efa in ROW.findall(DEVICES.read_text(encoding="utf-8"))}


def find(names: str) -> Node:
    """One type, or several with commas between them whose nodes can replace each other."""
    first, *others = [find_one(name) for name in dict.fromkeys(names.split(","))]
    for other in others:
        if (other.gpus, other.efa_cards, other.hyperpod) != (first.gpus, first.efa_cards, first.hyperpod):
            raise UnknownInstance(
                f"--instance {names}: {first.name} and {other.name} differ in GPUs, EFA devices or HyperPod;"
                " give types that have the same."
            )
        cpus, memory = min(first.cpus, other.cpus), min(first.memory_gib, other.memory_gib)
        first = replace(first, types=first.types + other.types, cpus=cpus, memory_gib=memory)
    return first


def find_one(name: str) -> Node:
    kind = name.removeprefix(HYPERPOD)
    row = next((row for row in offered() if row["type"] == kind), None)
    if row is None:
        near = get_close_matches(kind, known_types(), n=1)
        prefix = name[: len(name) - len(kind)]
        advice = f"did you mean {prefix}{near[0]}?" if near else f"{OFFERED.name} lists those that are known."
        raise UnknownInstance(f"--instance {name} is not known; {advice}")
    gpus, efa = devices().get(kind, (0, 1))
    first, _, last = row["efa_cards"].partition("-")
    return Node(
        types=(kind,),
        gpus=gpus,
        efa=efa,
        efa_cards=tuple(range(int(first), int(last or first) + 1)),
        cpus=int(row["cpu_millis"]) // 1000 - RESERVED_CPUS,
        memory_gib=int(int(row["memory_mib"]) * (1 - RESERVED_MEMORY)) // 1024,
        hyperpod=kind != name,
    )
