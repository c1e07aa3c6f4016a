"""The user's request to kubernetes/render."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from manifests.instances import Node


@dataclass(frozen=True)
class Request:
    name: str
    node: Node
    nodes: int
    namespace: str
    variables: dict[str, str]  # see docs/slurm.md
    secrets: dict[str, tuple[str, str]]  # (Secret, key) by variable
    flags: tuple[str, ...]  # flags of mpzero train
    ranks: int  # ranks per node without GPUs
    grace_seconds: int
    hugepages_mib: int
    capacity: tuple[str, ...]
    zones: tuple[str, ...]
    cluster: str
    placement_group: str
    reservation: str  # id of a capacity reservation or block
    file_system: str
    mount_name: str
    storage_gib: int
    queue: bool
    topology: bool
    efa: bool

    @property
    def efa_devices(self) -> int:
        """Number of EFA devices per node; 0 for a single node."""
        return self.node.efa if self.efa and self.nodes > 1 else 0

    @property
    def kept_together(self) -> tuple[str, ...]:
        """Node labels that must have the same value for all pods of the job."""
        if self.nodes == 1:
            return ()
        # EFA does not work across zones, and the slowest instance type would limit the speed.
        zone = ("topology.kubernetes.io/zone",) if len(self.zones) > 1 else ()
        return zone + (("node.kubernetes.io/instance-type",) if len(self.node.types) > 1 else ())

    @property
    def node_labels(self) -> dict[str, str]:
        """Labels by which the job's pods and Kueue's flavor select nodes."""
        kind = {"node.kubernetes.io/instance-type": self.node.name} if len(self.node.types) == 1 else {}
        if self.node.hyperpod:
            # HyperPod's agents change this value on nodes that they test or replace.
            return kind | {"sagemaker.amazonaws.com/node-health-status": "Schedulable"}
        return kind | {"mpzero.io/pool": self.pool}

    @property
    def ranks_per_node(self) -> int:
        return self.node.gpus or self.ranks

    @property
    def runtime(self) -> str:
        return "mpzero" if self.nodes > 1 else "mpzero-one-node"

    @property
    def pool(self) -> str:
        """Name of the job's cluster-wide NodePool, node class, flavor and queues; a DNS label."""
        other = "" if self.namespace == "default" else "-" + sha256(self.namespace.encode()).hexdigest()[:8]
        return f"mpzero-{self.name}{other}"
