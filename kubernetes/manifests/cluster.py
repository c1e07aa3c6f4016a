"""Generates the job's cluster resources: nodes (Karpenter), storage (FSx for Lustre) and a queue (Kueue)."""

from __future__ import annotations

from typing import Any

from manifests.job import resources
from manifests.request import Request

Manifest = dict[str, Any]

# Containers inherit containerd's limit on locked memory (systemd's default: 8 MiB), but EFA locks the memory that it
# sends. The capability IPC_LOCK has no effect for non-root users. A NodeConfig cannot raise the limit, because nodeadm
# converts containerd.baseRuntimeSpec through floating point, which rounds "unlimited" (2^64 - 1) to a number that
# containerd refuses. cloud-init runs this script before nodeadm starts containerd.
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
    # EC2 often cannot find capacity for a capacity block in a placement group.
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
            # Time for pods to save. The node is then removed regardless of disruption budgets.
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
                # A new image would replace nodes during a run, because with terminationGracePeriod, drift ignores
                # karpenter.sh/do-not-disrupt and PodDisruptionBudgets.
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
        # Karpenter selects the GPU image, which includes NVIDIA's driver, for instance types with GPUs.
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "role": f"KarpenterNodeRole-{request.cluster}",
        "subnetSelectorTerms": discovery,
        # The group must allow all traffic within itself, inbound and outbound (docs/ec2.md).
        "securityGroupSelectorTerms": discovery,
        # mpzero polls EC2's metadata service for spot notices, and containers need one more hop to reach it.
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
    """Returns an IP interface on card 0, and EFA-only interfaces on all cards that support EFA. By default, Karpenter
    creates EFA interfaces with IP addresses for a pod that requests EFA.
    """
    made = [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}]
    for card in efa_cards:
        device = 1 if card == 0 else 0
        made.append({"networkCardIndex": card, "deviceIndex": device, "interfaceType": "efa-only"})
    return made


def capacity_types(request: Request) -> list[str]:
    """Returns Karpenter's capacity types. Karpenter prefers reserved, then spot, then on-demand."""
    return ["reserved" if kind == "block" else kind for kind in request.capacity]


def requirement(key: str, *values: str) -> Manifest:
    return {"key": key, "operator": "In", "values": list(values)}


def storage(request: Request) -> list[Manifest]:
    """Returns a volume and a claim for an existing file system, which must be writable by uid 1000."""
    amount, region = {"storage": f"{request.storage_gib}Gi"}, request.zones[0][:-1]
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
                        "dnsname": f"{request.file_system}.fsx.{region}.amazonaws.com",
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
    """Returns the Kueue resources. Kueue admits either all pods of a job or none, within the quota."""
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
    """Returns the node labels on EKS: the zone, three layers of EC2's network, and the host."""
    layers = [f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3)]
    return ["topology.kubernetes.io/zone", *layers, "kubernetes.io/hostname"]


def total(amount: str, nodes: int) -> str:
    digits = amount.rstrip("GMi")
    return f"{int(digits) * nodes}{amount[len(digits) :]}"


def kueue(kind: str, name: str, spec: Manifest, namespace: str = "") -> Manifest:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}
