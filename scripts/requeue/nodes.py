"""Maps host names to Slurm nodes, and determines the nodes that can be excluded from a job. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from requeue.log import counted

NONE = "(null)"  # sinfo's empty value
SIMPLE_CONSTRAINT = re.compile(r"[A-Za-z0-9_.-]+([&,][A-Za-z0-9_.-]+)*")


@dataclass(frozen=True)
class Node:
    """Slurm's name and host name of a node."""

    name: str
    host: str = ""


def nodes_of_hosts(hosts: Iterable[str], nodes: Iterable[Node]) -> tuple[str, ...]:
    """Returns the names of the nodes with these host names, with or without a domain, in the order of `nodes`."""
    wanted = {short(host) for host in hosts}
    return tuple(
        node.name for node in nodes if short(node.name) in wanted or (node.host and short(node.host) in wanted)
    )


def short(name: str) -> str:
    return name.partition(".")[0]


@dataclass(frozen=True)
class NodeState:
    """A node as reported by sinfo."""

    state: str  # "idle", "down*"
    gres: str = NONE  # "gpu:h100:8(S:0-1)"
    features: str = NONE  # "p5,rack1"


def suitable(
    nodes: Mapping[str, NodeState], features: str, wants_gres: bool, own: Iterable[str]
) -> dict[str, NodeState]:
    """Returns the nodes that satisfy the job's --constraint (`features`; empty: none) and, if the job requests GPUs or
    other generic resources, provide them. `own`: the nodes of the job's latest start, which satisfy both."""
    had = [nodes[name] for name in own if name in nodes]
    gres = {without_sockets(node.gres) for node in had}
    names = set(re.split("[&,]", features)) if SIMPLE_CONSTRAINT.fullmatch(features) else None

    def has_features(node: NodeState) -> bool:
        if names is not None:
            return names <= set(node.features.split(","))
        # For a constraint with counts or alternatives, accept only nodes with the same features as the job's nodes.
        return not features or node.features in {other.features for other in had}

    return {
        name: node
        for name, node in nodes.items()
        if has_features(node) and (not wants_gres or without_sockets(node.gres) in gres)
    }


def without_sockets(gres: str) -> str:
    """ "gpu:h100:8" for "gpu:h100:8(S:0-1)"."""
    return gres if gres == NONE else re.sub(r"\([^)]*\)", "", gres)


# States of `sinfo --format=%T` in which Slurm allocates a node, immediately or after its current jobs. A node in any
# other state, including states of later Slurm versions, requires manual intervention.
USABLE = frozenset(
    [
        "allocated", "completing", "idle", "mixed", "planned", "powered_down", "powering_down", "powering_up", "reboot",
        "rebooting",
    ]
)  # fmt: skip
# Additional states for a job with a reservation.
OF_RESERVATION = frozenset(["maint", "reserved"])
# States from which an administrator can return a node to service with State=RESUME.
RESUMABLE = frozenset(["down", "drained", "draining", "fail", "failing"])
NOT_RESPONDING, MAINTENANCE = "*", "$"
MOST_NAMED = 8


def is_down(state: str) -> bool:
    """Returns True if a node in this state is broken, and False if it works but does not accept jobs."""
    return NOT_RESPONDING in state or kind_of(state) in ("down", "error", "fail", "failing")


@dataclass(frozen=True)
class Placement:
    """The nodes on which a job may start."""

    required: frozenset[str]  # --nodelist
    excluded: frozenset[str]  # --exclude and earlier exclusions
    states: Mapping[str, str]  # by node of the partition or of the job's reservation
    least: int  # number of nodes that the job needs
    partition: str
    reservation: str = ""  # empty: none

    @property
    def pool(self) -> str:
        return f"reservation {self.reservation}" if self.reservation else f"partition {self.partition}"

    def can_run(self, node: str) -> bool:
        """Returns True if Slurm can allocate the node to the job once the node is free."""
        state = self.states[node]
        letters = kind_of(state)
        if NOT_RESPONDING in state:
            return False
        if self.reservation:
            return letters in USABLE | OF_RESERVATION
        return letters in USABLE and MAINTENANCE not in state

    def left(self, nodes: Iterable[str] = ()) -> list[str]:
        """Returns the nodes on which the job can start if `nodes` are also excluded."""
        return [name for name in self.states if name not in self.excluded | set(nodes) and self.can_run(name)]

    def unusable(self) -> list[str]:
        """Returns the nodes whose current state prevents the job from using them."""
        return [name for name in self.states if name not in self.excluded and not self.can_run(name)]


def kind_of(state: str) -> str:
    """Returns the state without Slurm's suffix characters: "down" for "down*"."""
    return re.match("[a-z_]*", state.lower()).group()


def why_not_excluded(place: Placement, nodes: tuple[str, ...], required: str) -> str:
    """Returns the reason why these nodes cannot be excluded; empty if they can be. (Slurm accepts exclusions that can
    never be satisfied, and the job then waits forever.) `required`: the text of --nodelist."""
    names = " ".join(nodes)
    if place.required & (place.excluded | set(nodes)):
        return (
            f"cannot exclude {names}, because the job requires {required} (--nodelist): the job will start on these "
            "nodes again."
        )
    left = len(place.left(nodes))
    if left < place.least:
        return (
            f"cannot exclude {names}, because only {counted(left, 'other node')} in {place.pool} can run a job of "
            f"{counted(place.least, 'node')}{with_states(place)}: the job may start on these nodes again. To exclude "
            f"them, add nodes or submit with 'sbatch --nodes=1-{place.least}'.{how_to_resume(place)}"
        )
    return ""


def why_waiting(place: Placement) -> str:
    """Returns the reason why the job waits for manual intervention, regardless of exclusions; empty if it does not
    wait."""
    missing = place.least - len(place.left())
    if missing <= 0:
        return ""
    return (
        f"The job is waiting for {counted(missing, 'more node')} in {place.pool}: it needs "
        f"{place.least}{with_states(place)}.{how_to_resume(place)}"
    )


def with_states(place: Placement) -> str:
    """Returns the nodes that cannot run the job, in parentheses with a leading space; empty if there are none."""
    names = place.unusable()
    words = [f"{name} is {place.states[name]}" for name in names[:MOST_NAMED]]
    if len(names) > MOST_NAMED:
        words.append(f"{len(names) - MOST_NAMED} more nodes cannot run the job")
    return f" ({', '.join(words)})" if words else ""


def how_to_resume(place: Placement) -> str:
    names = [name for name in place.unusable() if kind_of(place.states[name]) in RESUMABLE]
    if not names:
        return ""
    more = ",..." if len(names) > MOST_NAMED else ""
    return (
        " After repairing nodes, an administrator returns them to service with 'scontrol update "
        f"NodeName={','.join(names[:MOST_NAMED])}{more} State=RESUME'."
    )
