"""Generates the TrainJob and its protection against eviction."""

from __future__ import annotations

from typing import Any

from manifests.request import Request

Manifest = dict[str, Any]

# Part of terminationGracePeriodSeconds that is reserved for the launcher's exit.
SECONDS_TO_END = 30


def resources(request: Request) -> Manifest:
    """Returns the resources of each pod that runs ranks: all resources of its node."""
    node = request.node
    amounts: Manifest = {"cpu": str(node.cpus), "memory": f"{node.memory_gib - memory_of_hugepages(request)}Gi"}
    if node.gpus:
        amounts["nvidia.com/gpu"] = str(node.gpus)
    if request.efa_devices:
        amounts["vpc.amazonaws.com/efa"] = str(request.efa_devices)
    if request.hugepages_mib:
        amounts["hugepages-2Mi"] = f"{request.hugepages_mib}Mi"
    # Requests and limits for devices and huge pages must be equal. Equal CPU and memory limits make the pod Guaranteed.
    return {"requests": amounts, "limits": dict(amounts)}


def memory_of_hugepages(request: Request) -> int:
    """Returns the memory for huge pages in GiB, rounded up."""
    return -(-request.hugepages_mib // 1024)


def environment(request: Request) -> list[Manifest]:
    values = {
        "MPZERO_NODES": str(request.nodes),
        "MPZERO_GPUS": str(request.node.gpus),
        "MPZERO_EFA": str(request.efa_devices),
        "GRACE_PERIOD": str(request.grace_seconds - SECONDS_TO_END),
        "CHECKPOINT_DIR": f"/fsx/checkpoints/{request.name}",
        "DATA_DIR": "/fsx/data",
        "HF_HOME": "/fsx/huggingface",
    }
    if request.efa_devices and not request.hugepages_mib:
        # On a node with huge pages, a pod that uses huge pages without requesting them is killed with a bus error.
        values["FI_EFA_USE_HUGE_PAGE"] = "0"
    if request.efa_devices and len(request.node.types) == 1:
        # The NCCL plugin and mpzero doctor read the instance type from a file that may be hidden in a container.
        values["OFI_NCCL_FORCE_PRODUCT_NAME"] = request.node.types[0]
    values.update(request.variables)
    made: list[Manifest] = [
        {"name": name, "value": value} for name, value in values.items() if name not in request.secrets
    ]
    for name, (secret, key) in request.secrets.items():
        made.append({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
    return made


def pod_patch(request: Request, name: str) -> Manifest:
    """Returns this job's changes to the runtime's pods."""
    template: Manifest = {
        "spec": {
            "nodeSelector": request.node_labels,
            "terminationGracePeriodSeconds": request.grace_seconds,
        }
    }
    if request.kept_together:
        own = {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": request.name}}
        terms = [{"labelSelector": own, "topologyKey": label} for label in request.kept_together]
        template["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    if request.topology:
        template["metadata"] = {
            "annotations": {
                "kueue.x-k8s.io/podset-required-topology": "topology.kubernetes.io/zone",
                "kueue.x-k8s.io/podset-group-name": request.name,
            }
        }
    return {"name": name, "template": {"spec": {"template": template}}}


def train_job(request: Request) -> Manifest:
    metadata: Manifest = {"name": request.name, "namespace": request.namespace}
    if request.queue:
        metadata["labels"] = {"kueue.x-k8s.io/queue-name": request.pool}
    jobs = ["launcher"] if request.nodes == 1 else ["node", "launcher"]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": {
            "runtimeRef": {"name": request.runtime},
            "runtimePatches": [
                {
                    "manager": "mpzero.io/render",
                    "trainingRuntimeSpec": {
                        "template": {"spec": {"replicatedJobs": [pod_patch(request, job) for job in jobs]}}
                    },
                }
            ],
            "trainer": {
                "numNodes": request.nodes,
                "numProcPerNode": request.ranks_per_node,
                "resourcesPerNode": resources(request),
                "args": ["--metrics_port", "9464", "--metrics_address", "0.0.0.0", *request.flags],
                "env": environment(request),
            },
        },
    }


def disruption_budget(request: Request) -> Manifest:
    """Makes `kubectl drain` wait until the job is stopped or suspended, because losing a pod restarts the run."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": request.name, "namespace": request.namespace},
        "spec": {
            # Kubernetes supports only an integer minAvailable for pods without a Deployment or a similar controller.
            "minAvailable": request.nodes,
            "selector": {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": request.name}},
        },
    }
