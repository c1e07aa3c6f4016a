"""What the user asks of kubernetes/render."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

from manifests.instances import Node


@dataclass(frozen=True)
class Request:
    name: str
    node: Node
    nodes: int
    namespace: str = "default"
    variables: dict[str, str] = field(default_factory=dict)  # of docs/slurm.md
    secrets: dict[str, tuple[str, str]] = field(default_factory=dict)  # a variable's Secret and key
    flags: tuple[str, ...] = ()  # of mpzero train
    ranks: int = 0  # of a node without GPUs
    grace_seconds: int = 600
    hugepages_mib: int = 0
    capacity: str = "on-demand"
    zone: str = "us-west-2a"
    cluster: str = "my-cluster"
    placement_group: str = ""
    reservation: str = ""  # id of a capacity reservation or block
    file_system: str = "fs-0123456789abcdef0"
    mount_name: str = "fsx"
    region: str = "us-west-2"
    storage_gib: int = 1200
    queue: bool = False
    topology: bool = False
    efa: bool = True

    @property
    def efa_devices(self) -> int:
        """Of a node: one node alone does without."""
        return self.node.efa if self.efa and self.nodes > 1 else 0

    @property
    def ranks_per_node(self) -> int:
        return self.node.gpus or self.ranks

    @property
    def runtime(self) -> str:
        return "mpzero" if self.nodes > 1 else "mpzero-one-node"

    @property
    def pool(self) -> str:
        """Name of the job's NodePool, node class, flavor and queues, which belong to the whole cluster: a DNS label."""
        other = "" if self.namespace == "default" else "-" + sha256(self.namespace.encode()).hexdigest()[:8]
        return f"mpzero-{self.name}{other}"
