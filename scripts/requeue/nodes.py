"""From host names to Slurm's nodes, and which nodes a job can be kept off. Nothing here asks anybody."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class Node:
    """Slurm's name of a node, and the host name that Slurm knows of it."""

    name: str
    host: str = ""


def nodes_of_hosts(hosts: Iterable[str], nodes: Iterable[Node]) -> tuple[str, ...]:
    """The names of those nodes that the host names mean, with or without a domain, in the order of `nodes`."""
    wanted = {short(host) for host in hosts}
    return tuple(
        node.name for node in nodes if short(node.name) in wanted or (node.host and short(node.host) in wanted)
    )


def short(name: str) -> str:
    return name.partition(".")[0]


class Unreached(Enum):
    """Why srun could not start tasks on nodes."""

    SICK = "the nodes that it names are to blame"
    BY_OWN = "the node that srun runs on is"
    BY_ALL = "something that the nodes share is"


def nodes_without_tasks(named: tuple[str, ...], nodes: tuple[str, ...], own: str) -> Unreached:
    """`named`: the nodes of the job that srun names; `own`: the one that it runs on. A single node of two is sick."""
    found = {node for node in nodes if short(node) in {short(name) for name in named}}
    if len(found) < 2 or 2 * len(found) < len(nodes):
        return Unreached.SICK
    return Unreached.BY_OWN if found == set(nodes) - {own} else Unreached.BY_ALL


@dataclass(frozen=True)
class Placement:
    """Where a job may start: lists of nodes, one name each."""

    required: frozenset[str]  # --nodelist
    excluded: frozenset[str]  # --exclude, and earlier exclusions
    partition: frozenset[str]
    least: int  # the nodes that the job needs


def nodes_left(place: Placement, nodes: Iterable[str]) -> int:
    """How many nodes the job can start on without these."""
    return len(place.partition - place.excluded - set(nodes))


def why_not_excluded(place: Placement, nodes: tuple[str, ...], partition: str, required: str) -> str:
    """Why the job cannot be kept off these nodes; empty: it can. (Slurm accepts an exclusion that can never be met,
    and the job then waits for ever.) `required` is the text of --nodelist."""
    names = " ".join(nodes)
    if place.required & (place.excluded | set(nodes)):
        return f"{names} should be left out, but the job asks for {required} (--nodelist): it starts there again."
    left = nodes_left(place, nodes)
    if left < place.least:
        return (
            f"{names} should be left out, but only {left} other nodes of partition {partition} are there for a job of "
            f"{place.least}: it may start there again. More nodes, or 'sbatch --nodes=1-{place.least}', would let it."
        )
    return ""
