"""Cluster resources of the job: nodes (Karpenter), storage (FSx for Lustre), a queue (Kueue)."""

from __future__ import annotations

from typing import Any

from manifests.job import resources
from manifests.request import Request

Manifest = dict[str, Any]

# Containers inherit containerd's limit of locked memory, 8 MiB by systemd's default, and EFA locks the memory that it
# sends. The capability IPC_LOCK has no effect for users other than root. A NodeConfig cannot raise the limit: nodeadm
# converts containerd.baseRuntimeSpec through floating point, which rounds "unlimited" (2^64 - 1) to a number that
# containerd refuses. cloud-init runs this before nodeadm starts containerd.
UNLIMITED_LOCKED_MEMORY = """\
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="BOUNDARY"

--BOUNDARY
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
set -e
mkdir -p /etc/systemd/system/containerd.service.d
printf '[Service]\\nLimitMEMLOCK=infinity\\n' >/etc/systemd/system/containerd.service.d/90-memlock.conf
systemctl daemon-reload
systemctl try-restart containerd

--BOUNDARY--
"""


def node_pool(request: Request) -> Manifest:
    node = request.node
    requirements = [
        requirement("node.kubernetes.io/instance-type", *node.types),
        requirement("karpenter.sh/capacity-type", *capacity_types(request)),
        requirement("topology.kubernetes.io/zone", *request.zones),
        requirement("kubernetes.io/arch", "amd64"),
    ]
    # A capacity block in a placement group often finds no capacity.
    if request.capacity == ("block",):
        requirements.append(requirement("karpenter.k8s.aws/capacity-reservation-type", "capacity-block"))
    elif request.reservation and request.placement_group:
        requirements.append(requirement("karpenter.k8s.aws/capacity-reservation-type", "default"))
    template: Manifest = {
        "metadata": {"labels": {"mpzero.io/pool": request.pool}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": request.pool},
            "requirements": requirements,
            # Replacing an old node would end the run on it.
            "expireAfter": "Never",
            # The time that a pod has to save; then the node is removed, whatever a pod's disruption budget.
            "terminationGracePeriod": f"{request.grace_seconds + 60}s",
        },
    }
    if node.gpus:
        template["metadata"]["labels"]["nvidia.com/gpu.present"] = "true"
        template["spec"]["taints"] = [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": request.pool},
        "spec": {
            "template": template,
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": "10m",
                # A new image would replace nodes during a run: with terminationGracePeriod, drift ignores
                # karpenter.sh/do-not-disrupt and PodDisruptionBudgets. Other reasons have no limit.
                "budgets": [{"nodes": "0", "reasons": ["Drifted"]}],
            },
            "limits": {"nvidia.com/gpu": str(node.gpus * request.nodes)}
            if node.gpus
            else {"cpu": str((node.cpus + 2) * request.nodes)},
        },
    }


def node_class(request: Request) -> Manifest:
    discovery = [{"tags": {"karpenter.sh/discovery": request.cluster}}]
    spec: Manifest = {
        # The GPU image includes NVIDIA's driver; Karpenter selects it for types with GPUs.
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "role": f"KarpenterNodeRole-{request.cluster}",
        "subnetSelectorTerms": discovery,
        # All traffic within the group is allowed, in and out (docs/ec2.md).
        "securityGroupSelectorTerms": discovery,
        # A container is one hop further; mpzero polls for spot notices.
        "metadataOptions": {"httpEndpoint": "enabled", "httpPutResponseHopLimit": 2, "httpTokens": "required"},
        "blockDeviceMappings": [
            {
                "deviceName": "/dev/xvda",
                "ebs": {"volumeSize": "200Gi", "volumeType": "gp3", "encrypted": True, "deleteOnTermination": True},
            }
        ],
        "tags": {"mpzero.io/pool": request.pool},
    }
    if request.node.gpus:
        spec["instanceStorePolicy"] = "RAID0"
    if request.efa_devices:
        spec["networkInterfaces"] = network_interfaces(request.node.efa_cards)
        spec["userData"] = UNLIMITED_LOCKED_MEMORY
    if request.placement_group:
        spec["placementGroupSelector"] = {"name": request.placement_group}
    if request.reservation:
        spec["capacityReservationSelectorTerms"] = [{"id": request.reservation}]
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": request.pool},
        "spec": spec,
    }


def network_interfaces(efa_cards: tuple[int, ...]) -> list[Manifest]:
    """IP only on card 0, and EFA without an IP address on each card that supports it. For a pod that requests EFA,
    Karpenter itself would use EFA with an IP address on the cards from 0 on.
    """
    made = [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}]
    for card in efa_cards:
        device = 1 if card == 0 else 0
        made.append({"networkCardIndex": card, "deviceIndex": device, "interfaceType": "efa-only"})
    return made


def capacity_types(request: Request) -> list[str]:
    """Karpenter's names for capacity types; it tries reserved first, then spot, then on-demand."""
    return ["reserved" if kind == "block" else kind for kind in request.capacity]


def requirement(key: str, *values: str) -> Manifest:
    return {"key": key, "operator": "In", "values": list(values)}


def storage(request: Request) -> list[Manifest]:
    """An existing file system. uid 1000 must be able to write to it."""
    amount = {"storage": f"{request.storage_gib}Gi"}
    name = f"mpzero-fsx-{request.namespace}"
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": amount,
                "volumeMode": "Filesystem",
                "accessModes": ["ReadWriteMany"],
                # mpzero locks its checkpoint folder to exclude a second run.
                "mountOptions": ["flock"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "",
                "claimRef": {"name": "mpzero-fsx", "namespace": request.namespace},
                "csi": {
                    "driver": "fsx.csi.aws.com",
                    "volumeHandle": request.file_system,
                    "volumeAttributes": {
                        "dnsname": f"{request.file_system}.fsx.{request.region}.amazonaws.com",
                        "mountname": request.mount_name,
                    },
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "mpzero-fsx", "namespace": request.namespace},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "volumeName": name,
                "resources": {"requests": amount},
            },
        },
    ]


def queue(request: Request) -> list[Manifest]:
    """Kueue admits all pods of a job or none, within the quota."""
    quotas = [
        {"name": name, "nominalQuota": total(amount, request.nodes)}
        for name, amount in resources(request)["requests"].items()
    ]
    flavor: Manifest = {"nodeLabels": request.node_labels}
    made: list[Manifest] = []
    if request.topology:
        flavor["topologyName"] = request.pool
        made.append(
            kueue("Topology", request.pool, {"levels": [{"nodeLabel": label} for label in topology_levels()]}),
        )
    if request.node.gpus:
        flavor["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    made += [
        kueue("ResourceFlavor", request.pool, flavor),
        kueue(
            "ClusterQueue",
            request.pool,
            {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": request.namespace}},
                "resourceGroups": [
                    {
                        "coveredResources": [quota["name"] for quota in quotas],
                        "flavors": [{"name": request.pool, "resources": quotas}],
                    }
                ],
            },
        ),
        kueue("LocalQueue", request.pool, {"clusterQueue": request.pool}, namespace=request.namespace),
    ]
    return made


def topology_levels() -> list[str]:
    """EKS labels nodes by zone and by three layers of EC2's network."""
    layers = [f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3)]
    return ["topology.kubernetes.io/zone", *layers, "kubernetes.io/hostname"]


def total(amount: str, nodes: int) -> str:
    digits = amount.rstrip("GMi")
    return f"{int(digits) * nodes}{amount[len(digits) :]}"


def kueue(kind: str, name: str, spec: Manifest, namespace: str = "") -> Manifest:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}
