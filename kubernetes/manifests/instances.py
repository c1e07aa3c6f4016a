"""Resources of a node by EC2 instance type: devices from mpzero's table, other resources from instances.csv."""

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
# Prefix of instance types in SageMaker HyperPod and in the labels of its nodes.
HYPERPOD = "ml."

# Reserved on each node for system pods: CNI, kube-proxy, device plugins, storage drivers and exporters.
RESERVED_CPUS = 1
RESERVED_MEMORY = 0.05  # fraction of memory for system pods and errors in Karpenter's estimate


class Mistake(ValueError):
    """A user error; the message is one sentence."""


@dataclass(frozen=True)
class Node:
    """Resources of a node; for several types, the minimum over all types."""

    types: tuple[str, ...]  # EC2's names
    gpus: int
    efa: int
    efa_cards: tuple[int, ...]  # network cards that support EFA
    cpus: int  # CPUs that a pod requests if it uses the full node
    memory_gib: int
    hyperpod: bool = False

    @property
    def name(self) -> str:
        """The value of the nodes' label node.kubernetes.io/instance-type, if there is only one type."""
        return ",".join(f"{HYPERPOD if self.hyperpod else ''}{kind}" for kind in self.types)


def offered() -> dict[str, dict[str, str]]:
    """Returns the rows of instances.csv by instance type."""
    lines = [line for line in OFFERED.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {row["type"]: row for row in csv.DictReader(lines)}


def devices() -> dict[str, tuple[int, int]]:
    """Returns the numbers of GPUs and EFA devices by instance type, for types with GPUs."""
    return {kind: (int(gpus), int(efa)) for kind, gpus, efa in ROW.findall(DEVICES.read_text(encoding="utf-8"))}


def find(names: str) -> Node:
    """Returns the resources of a type, or of several comma-separated types with interchangeable nodes."""
    first, *others = [find_one(name) for name in dict.fromkeys(names.split(","))]
    for other in others:
        if (other.gpus, other.efa_cards, other.hyperpod) != (first.gpus, first.efa_cards, first.hyperpod):
            raise Mistake(
                f"--instance {names}: {first.name} and {other.name} differ in GPUs, EFA devices or use of HyperPod;"
                " pass interchangeable types."
            )
        cpus, memory = min(first.cpus, other.cpus), min(first.memory_gib, other.memory_gib)
        first = replace(first, types=first.types + other.types, cpus=cpus, memory_gib=memory)
    return first


def find_one(name: str) -> Node:
    kind = name.removeprefix(HYPERPOD)
    rows = offered()
    if kind not in rows:
        near = get_close_matches(kind, rows, n=1)
        prefix = name[: len(name) - len(kind)]
        advice = f"did you mean {prefix}{near[0]}?" if near else f"{OFFERED.name} lists known types."
        raise Mistake(f"--instance {name} is not known; {advice}")
    row = rows[kind]
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
