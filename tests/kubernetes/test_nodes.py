"""The nodes that kubernetes/render asks for: their network interfaces, their limits, where they come from."""

from __future__ import annotations

import csv
import email
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "kubernetes"))

from manifests import cluster, instances
from rendering import KUBERNETES, ROOT, of_kind, render, rendered, variables

LINES = [line for line in (KUBERNETES / "instances.csv").read_text().splitlines() if not line.startswith("#")]
ROWS = {row["type"]: row for row in csv.DictReader(LINES)}
TABLE = (ROOT / "app/machine/ec2_instances.inc").read_text()
# EFA devices, and what the doctor's remedy says of the cards.
EFA = {
    kind: (int(count), text)
    for kind, count, text in re.findall(
        r'^\{"([^"]+)", \d+, "[^"]+", \d+, (\d+), \d+, \d+, \w+, "([^"]+)"', TABLE, re.M
    )
}
JOB = ["--name", "a", "--nodes", "2"]


def node_class(folder: Path, *arguments: str) -> dict[str, Any]:
    return of_kind(rendered(folder, *JOB, *arguments), "EC2NodeClass")["spec"]


def requirements(made: list[dict[str, Any]]) -> dict[str, list[str]]:
    listed = of_kind(made, "NodePool")["spec"]["template"]["spec"]["requirements"]
    return {entry["key"]: entry["values"] for entry in listed}


def pod_specs(made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    patches = of_kind(made, "TrainJob")["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]
    return [job["template"]["spec"]["template"]["spec"] for job in patches["replicatedJobs"]]


@pytest.mark.parametrize("kind", sorted(set(EFA) & set(ROWS)))
def test_efa_is_on_each_card_that_can_have_it_and_takes_no_address(kind):
    made = cluster.network_interfaces(instances.find(kind).efa_cards)
    places = [(entry["networkCardIndex"], entry["deviceIndex"], entry["interfaceType"]) for entry in made]
    assert [place for place in places if place[2] == "interface"] == [(0, 0, "interface")]
    efa = [place for place in places if place[2] == "efa-only"]
    count, text = EFA[kind]
    assert len(efa) == count
    # Device 0 of card 0 is the interface for IP.
    assert all(device == (1 if card == 0 else 0) for card, device, _ in efa)
    between = re.search(r"cards (\d+) to (\d+)$", text)
    first = int(between[1]) if between else 0
    assert [card for card, _, _ in efa] == list(range(first, first + count))


@pytest.mark.parametrize(
    ("kind", "places"),
    [
        ("p5.48xlarge", [(0, 1), *((card, 0) for card in range(1, 32))]),
        ("p6-b300.48xlarge", [(card, 0) for card in range(1, 17)]),
    ],
)
def test_a_node_class_has_the_cards_of_ec2_s_guide(tmp_path, kind, places):
    made = node_class(tmp_path, "--instance", kind)["networkInterfaces"]
    efa = [entry for entry in made if entry["interfaceType"] == "efa-only"]
    assert [(entry["networkCardIndex"], entry["deviceIndex"]) for entry in efa] == places


@pytest.mark.parametrize("arguments", [["--no_efa"], ["--nodes", "1"]])
def test_without_efa_the_node_is_karpenter_s(tmp_path, arguments):
    spec = node_class(tmp_path, "--instance", "p5.48xlarge", *arguments)
    assert "networkInterfaces" not in spec
    assert "userData" not in spec


def test_containers_may_lock_all_memory(tmp_path):
    """The user data is run against a scratch root, as cloud-init would."""
    data = node_class(tmp_path / "job", "--instance", "p5.48xlarge")["userData"]
    (part,) = email.message_from_string(data).get_payload()
    assert part.get_content_type() == "text/x-shellscript"
    script = part.get_payload().replace("/etc/systemd", f"{tmp_path}/etc/systemd")
    stand_in = tmp_path / "systemctl"
    stand_in.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\n')
    stand_in.chmod(0o755)
    subprocess.run(
        ["bash", "-c", script], check=True, timeout=60, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True
    )
    written = (tmp_path / "etc/systemd/system/containerd.service.d/90-memlock.conf").read_text()
    assert written == "[Service]\nLimitMEMLOCK=infinity\n"
    assert (tmp_path / "asked").read_text().splitlines() == ["daemon-reload", "try-restart containerd"]


def test_a_capacity_block_is_only_used_where_it_is_asked_for(tmp_path):
    key = "karpenter.k8s.aws/capacity-reservation-type"
    given = [*JOB, "--instance", "p5.48xlarge", "--reservation", "cr-1"]
    block = requirements(rendered(tmp_path / "a", *given, "--capacity", "block"))
    assert (block["karpenter.sh/capacity-type"], block[key]) == (["reserved"], ["capacity-block"])
    either = requirements(rendered(tmp_path / "b", *given, "--capacity", "reserved"))
    assert either["karpenter.sh/capacity-type"] == ["reserved"]
    assert key not in either
    grouped = [*given, "--capacity", "reserved", "--placement_group", "g"]
    assert requirements(rendered(tmp_path / "c", *grouped))[key] == ["default"]
    assert "cr-1 must be an on-demand reservation" in render(tmp_path / "c", *grouped).stderr


def test_a_pool_of_several_types_zones_and_capacities(tmp_path):
    kinds, zones = "p5.48xlarge,p5e.48xlarge", "us-west-2a,us-west-2b"
    made = rendered(tmp_path / "a", *JOB, "--instance", kinds, "--zone", zones, "--capacity", "spot,on-demand")
    wanted = requirements(made)
    assert wanted["node.kubernetes.io/instance-type"] == kinds.split(",")
    assert wanted["topology.kubernetes.io/zone"] == zones.split(",")
    assert wanted["karpenter.sh/capacity-type"] == ["spot", "on-demand"]
    # The pods fit on either type, and end up on one type in one zone.
    resources = of_kind(made, "TrainJob")["spec"]["trainer"]["resourcesPerNode"]["limits"]
    alone = [rendered(tmp_path / kind, *JOB, "--instance", kind) for kind in kinds.split(",")]
    limits = [of_kind(one, "TrainJob")["spec"]["trainer"]["resourcesPerNode"]["limits"] for one in alone]
    assert int(resources["cpu"]) == min(int(limit["cpu"]) for limit in limits)
    for spec in pod_specs(made):
        assert spec["nodeSelector"] == {"mpzero.io/pool": "mpzero-a"}
        terms = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        keys = {"topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"}
        assert {term["topologyKey"] for term in terms} == keys
        labels = [term["labelSelector"]["matchLabels"] for term in terms]
        assert labels == [{"jobset.sigs.k8s.io/jobset-name": "a"}] * 2
    # Of two types, a name would be wrong on half of the nodes.
    assert "OFI_NCCL_FORCE_PRODUCT_NAME" not in variables(of_kind(made, "TrainJob"))
    for one in alone:
        assert all("affinity" not in spec for spec in pod_specs(one))


def test_hyperpod_s_nodes_are_found_by_its_labels(tmp_path):
    made = rendered(tmp_path, *JOB, "--instance", "ml.p5.48xlarge", "--queue", "--zone", "us-west-2a")
    labels = {
        "node.kubernetes.io/instance-type": "ml.p5.48xlarge",
        "sagemaker.amazonaws.com/node-health-status": "Schedulable",
    }
    assert [spec["nodeSelector"] for spec in pod_specs(made)] == [labels, labels]
    assert of_kind(made, "ResourceFlavor")["spec"]["nodeLabels"] == labels
    # HyperPod makes the nodes.
    assert not {"NodePool", "EC2NodeClass"} & {one["kind"] for one in made}
    job = of_kind(made, "TrainJob")
    assert job["spec"]["trainer"]["resourcesPerNode"]["limits"]["vpc.amazonaws.com/efa"] == "32"
    # NCCL's plugin knows EC2's names.
    assert variables(job)["OFI_NCCL_FORCE_PRODUCT_NAME"] == "p5.48xlarge"
