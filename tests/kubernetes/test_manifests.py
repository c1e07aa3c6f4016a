"""The manifests of kubernetes/: what kubernetes/render asks for is what the instance type has, and fields exist."""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))

import schema

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "kubernetes"
JOBS = sorted(path.name for path in (KUBERNETES / "jobs").iterdir())
DEVICES = dict(
    re.findall(r'^\{("[^"]+"), (\d+, "[^"]+", \d+, \d+), ', (ROOT / "app/machine/ec2_instances.inc").read_text(), re.M)
)
GPU_TYPES = {json.loads(kind): (int(row.split(",")[0]), int(row.rsplit(",", 1)[1])) for kind, row in DEVICES.items()}
BUILDERS = (["kubectl", "kustomize"], ["kustomize", "build"])


def builder() -> list[str] | None:
    return next((words for words in BUILDERS if shutil.which(words[0])), None)


needs_kustomize = pytest.mark.skipif(builder() is None, reason="neither kubectl nor kustomize is installed")


def render(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(KUBERNETES / "render"), *arguments, str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
    )


def rendered(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    result = render(folder, *arguments)
    assert result.returncode == 0, result.stderr
    return manifests(folder)


def manifests(folder: Path) -> list[dict[str, Any]]:
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [made for name in listed for made in yaml.safe_load_all((folder / name).read_text())]


def of_kind(made: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    found = [manifest for manifest in made if manifest["kind"] == kind]
    assert len(found) == 1, kind
    return found[0]


def variables(job: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in job["spec"]["trainer"]["env"]}


def all_shipped() -> list[tuple[str, dict[str, Any]]]:
    folders = [KUBERNETES / "base", KUBERNETES / "monitoring", *(KUBERNETES / "jobs" / name for name in JOBS)]
    return [(str(folder.relative_to(ROOT)), made) for folder in folders for made in manifests(folder)]


@pytest.mark.parametrize("kind", sorted(GPU_TYPES))
@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_each_type_is_asked_for_what_it_has(tmp_path, kind, nodes):
    if kind == "p6e-gb200.36xlarge":
        assert "not known" in render(tmp_path, "--name", "a", "--instance", kind, "--nodes", "1").stderr
        return
    gpus, efa = GPU_TYPES[kind]
    made = rendered(tmp_path, "--name", "a", "--instance", kind, "--nodes", str(nodes), "--queue")
    job = of_kind(made, "TrainJob")
    trainer = job["spec"]["trainer"]
    asked = trainer["resourcesPerNode"]
    assert asked["requests"] == asked["limits"]
    assert asked["limits"]["nvidia.com/gpu"] == str(gpus)
    assert trainer["numProcPerNode"] == gpus
    assert trainer["numNodes"] == nodes
    # One node talks to no other.
    assert asked["limits"].get("vpc.amazonaws.com/efa", "0") == str(efa if nodes > 1 else 0)
    given = variables(job)
    assert (given["MPZERO_NODES"], given["MPZERO_GPUS"]) == (str(nodes), str(gpus))
    assert given["MPZERO_EFA"] == asked["limits"].get("vpc.amazonaws.com/efa", "0")
    assert given.get("NETWORK") == ("efa" if nodes > 1 else None)
    assert job["spec"]["runtimeRef"]["name"] == ("mpzero" if nodes > 1 else "mpzero-one-node")
    # An image here would be the launcher's alone.
    assert "image" not in trainer
    assert of_kind(made, "PodDisruptionBudget")["spec"]["minAvailable"] == nodes
    pool = of_kind(made, "NodePool")["spec"]
    wanted = {entry["key"]: entry["values"] for entry in pool["template"]["spec"]["requirements"]}
    assert wanted["node.kubernetes.io/instance-type"] == [kind]
    assert len(wanted["topology.kubernetes.io/zone"]) == 1
    assert pool["limits"]["nvidia.com/gpu"] == str(gpus * nodes)
    quota = of_kind(made, "ClusterQueue")["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    assert {entry["name"]: entry["nominalQuota"] for entry in quota}["nvidia.com/gpu"] == str(gpus * nodes)


def test_a_pod_fits_on_its_node_beside_the_node_s_own(tmp_path):
    for line in (KUBERNETES / "instances.csv").read_text().splitlines():
        if line.startswith(("#", "type,")):
            continue
        kind, vcpus, millis, memory = line.split(",")
        asked = of_kind(rendered(tmp_path / kind, "--name", "a", "--instance", kind, "--nodes", "2"), "TrainJob")[
            "spec"
        ]["trainer"]["resourcesPerNode"]["limits"]
        assert int(asked["cpu"]) * 1000 <= int(millis) - 1000 < int(vcpus) * 1000
        # And no second pod beside it.
        assert int(asked["cpu"]) * 2000 > int(millis)
        assert 0.9 * int(memory) < int(asked["memory"].removesuffix("Gi")) * 1024 < 0.96 * int(memory)


def test_the_shipped_jobs_are_what_render_writes(tmp_path):
    subprocess.run([str(KUBERNETES / "render_examples"), str(tmp_path)], check=True, timeout=60)
    for name in JOBS:
        compared = filecmp.dircmp(KUBERNETES / "jobs" / name, tmp_path / name)
        assert compared.left_list == compared.right_list
        assert compared.diff_files == [], "run kubernetes/render_examples"


def test_the_users_two_set_ups_are_there():
    qwen = of_kind(manifests(KUBERNETES / "jobs/qwen3-0-6b"), "TrainJob")
    assert qwen["spec"]["trainer"]["numNodes"] * qwen["spec"]["trainer"]["numProcPerNode"] == 16
    llama = of_kind(manifests(KUBERNETES / "jobs/llama-3-8b"), "TrainJob")
    assert llama["spec"]["trainer"]["numNodes"] * llama["spec"]["trainer"]["numProcPerNode"] == 16
    config = json.loads((ROOT / "configs" / Path(variables(llama)["DS_CONFIG"]).name).read_text())
    sequences = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * 16
    assert sequences == 256
    assert variables(llama)["SEQ_LENGTH"] == "512"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--instance", "g6e.12xlage"], ["g6e.12xlage is not known", "did you mean g6e.12xlarge?"]),
        (["--name", "Llama_3"], ["--name Llama_3", "small letters"]),
        (["--name", "a" * 41], ["at most 40"]),
        (["--nodes", "0"], ["--nodes 0 must be at least 1"]),
        (["--set", "MPZERO_NODES=3"], ["--set MPZERO_NODES", "--nodes"]),
        (["--set", "OMPI_MCA_orte_default_hostfile=x"], ["Kubeflow Trainer refuses"]),
        (["--set", "MAX_STEPS"], ["--set MAX_STEPS is not VARIABLE=VALUE"]),
        (["--secret", "HF_TOKEN=hugging-face"], ["VARIABLE=SECRET:KEY"]),
        (["--capacity", "reserved"], ["--reservation"]),
        (["--reservation", "cr-1"], ["--capacity reserved"]),
        (["--topology"], ["--queue"]),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, arguments, words):
    given = ["--name", "a", "--instance", "p5.48xlarge", "--nodes", "2", *arguments]
    result = render(tmp_path / "job", *given)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1, result.stderr
    for word in words:
        assert word in result.stderr
    assert not (tmp_path / "job").exists()


def test_what_is_left_to_fill_in_is_said(tmp_path):
    said = render(tmp_path, "--name", "a", "--instance", "p5.48xlarge", "--nodes", "2", "--zone", "eu-west-1b").stderr
    assert "--cluster is not given" in said
    assert "--file_system is not given" in said
    assert "--zone" not in said
    volume = of_kind(manifests(tmp_path), "PersistentVolume")
    assert ".fsx.eu-west-1.amazonaws.com" in volume["spec"]["csi"]["volumeAttributes"]["dnsname"]


def test_memory_gives_room_to_huge_pages(tmp_path):
    given = ["--name", "a", "--instance", "p5.48xlarge", "--nodes", "2"]
    plain = of_kind(rendered(tmp_path / "a", *given), "TrainJob")
    large = of_kind(rendered(tmp_path / "b", *given, "--hugepages_mib", "5120"), "TrainJob")
    assert variables(plain)["FI_EFA_USE_HUGE_PAGE"] == "0"
    assert "FI_EFA_USE_HUGE_PAGE" not in variables(large)
    limits = [job["spec"]["trainer"]["resourcesPerNode"]["limits"] for job in (plain, large)]
    assert limits[1]["hugepages-2Mi"] == "5120Mi"
    assert int(limits[0]["memory"][:-2]) - int(limits[1]["memory"][:-2]) == 5


def variants(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Jobs with what the shipped ones leave out."""
    given = ["--name", "a", "--instance", "p5.48xlarge", "--nodes", "2"]
    reserved = ["--queue", "--topology", "--capacity", "reserved", "--reservation", "cr-0abc", "--placement_group", "p"]
    more = ["--hugepages_mib", "5120", "--secret", "HF_TOKEN=a:b", "--flag", "async_save=false"]
    sets = {"reserved": [*given, *reserved, *more], "spot": [*given, "--capacity", "spot", "--no_efa"]}
    return [(name, made) for name, words in sets.items() for made in rendered(folder / name, *words)]


def test_fields_are_those_of_the_kinds(tmp_path):
    known = schema.table()
    wrong = []
    for where, made in [*all_shipped(), *variants(tmp_path)]:
        key = schema.key_of(made)
        assert key in known, f"{where}: {key} is not in {schema.TABLE.name}"
        wrong += [f"{where}: {made['kind']}{error}" for error in schema.errors(made, known[key])]
    assert wrong == []


@pytest.mark.skipif("MPZERO_CRDS" not in os.environ, reason="MPZERO_CRDS names no folder of CustomResourceDefinitions")
def test_fields_are_those_of_the_complete_definitions(tmp_path):
    known = schema.definitions(Path(os.environ["MPZERO_CRDS"]))
    wrong = []
    seen = set()
    for where, made in [*all_shipped(), *variants(tmp_path)]:
        key = schema.key_of(made)
        if key in known:
            seen.add(key)
            wrong += [f"{where}: {made['kind']}{error}" for error in schema.errors(made, known[key])]
    assert wrong == []
    assert "trainer.kubeflow.org/v1alpha1 TrainJob" in seen


def test_a_wrong_field_would_be_found():
    known = schema.table()
    job = of_kind(manifests(KUBERNETES / "jobs/llama-3-8b"), "TrainJob")
    key = schema.key_of(job)
    job["spec"]["trainer"]["numNode"] = 4
    assert schema.errors(job, known[key]) == [".spec.trainer.numNode is no field"]
    del job["spec"]["trainer"]["numNode"], job["spec"]["runtimeRef"]
    assert schema.errors(job, known[key]) == [".spec.runtimeRef is missing"]
    job["spec"]["runtimeRef"] = {"name": "mpzero"}
    job["spec"]["trainer"]["numNodes"] = "4"
    assert schema.errors(job, known[key]) == [".spec.trainer.numNodes is no integer: '4'"]


def runtime(name: str) -> dict[str, Any]:
    return next(
        made
        for _, made in all_shipped()
        if made["kind"] == "ClusterTrainingRuntime" and made["metadata"]["name"] == name
    )


def replicated(name: str) -> dict[str, dict[str, Any]]:
    jobs = runtime(name)["spec"]["template"]["spec"]["replicatedJobs"]
    return {job["name"]: job for job in jobs}


def test_the_runtimes_have_the_same_launcher_and_no_image_of_their_own():
    assert replicated("mpzero")["launcher"] == replicated("mpzero-one-node")["launcher"]
    assert set(replicated("mpzero")) == {"node", "launcher"}
    assert set(replicated("mpzero-one-node")) == {"launcher"}
    for job in replicated("mpzero").values():
        containers = job["template"]["spec"]["template"]["spec"]["containers"]
        # Kubeflow Trainer changes the container of this name alone, and kustomization.yaml names the image.
        assert [(container["name"], container["image"]) for container in containers] == [("node", "mpzero")]


def test_a_runtime_asks_for_one_launcher():
    """mlPolicy.numNodes is the number of its pods; a TrainJob's numNodes changes that of the job "node"."""
    for name in ("mpzero", "mpzero-one-node"):
        policy = runtime(name)["spec"]["mlPolicy"]
        assert policy["numNodes"] == 1
        assert policy["mpi"]["runLauncherAsNode"] is True


def test_each_exit_status_of_the_launcher_has_its_rule():
    # As Kubernetes' Job controller words them.
    ended = (
        "Container node for pod default/a-launcher-0-0-xyz failed with exit code {} matching FailJob rule at index {}"
    )
    evicted = "Pod default/a-node-0-1-xyz has condition DisruptionTarget matching FailJob rule at index 0"
    for name in ("mpzero", "mpzero-one-node"):
        launcher = replicated(name)["launcher"]["template"]["spec"]
        codes = [set(rule["onExitCodes"]["values"]) for rule in launcher["podFailurePolicy"]["rules"][:2]]
        assert codes == [{2, 77}, {75}]
        rules = runtime(name)["spec"]["template"]["spec"]["failurePolicy"]["rules"]

        def action(message: str, rules=rules) -> str:
            matching = [
                rule for rule in rules if any(re.search(p, message) for p in rule["onJobFailureMessagePatterns"])
            ]
            return matching[0]["action"] if matching else "RestartJobSet"

        assert action(ended.format(2, 0)) == action(ended.format(77, 0)) == "FailJobSet"
        assert action(ended.format(75, 1)) == action(evicted) == "RestartJobSetAndIgnoreMaxRestarts"
        assert action("Job has reached the specified backoff limit") == "RestartJobSet"
        # Other statuses match none of the Job's rules.
        assert action(ended.format(1, 1)) == action(ended.format(22, 1)) == "RestartJobSet"
        script = (ROOT / "container/launch").read_text()
        assert all(f"#   {code} " in script for code in (0, 2, 75, 77))


def test_pods_end_after_the_ranks_have_saved():
    for _, made in all_shipped():
        if made["kind"] != "TrainJob":
            continue
        patches = made["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        grace = {patch["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] for patch in patches}
        assert len(grace) == 1
        assert int(variables(made)["GRACE_PERIOD"]) + 30 <= grace.pop()


@needs_kustomize
@pytest.mark.parametrize("folder", ["base", "monitoring", *(f"jobs/{name}" for name in JOBS)])
def test_kustomize_builds_it(folder):
    built = subprocess.run([*builder(), str(KUBERNETES / folder)], capture_output=True, text=True, timeout=60)
    assert built.returncode == 0, built.stderr
    made = [manifest for manifest in yaml.safe_load_all(built.stdout) if manifest]
    assert len(made) == len(manifests(KUBERNETES / folder))


@needs_kustomize
def test_one_name_of_the_image_reaches_all_pods():
    built = subprocess.run([*builder(), str(KUBERNETES / "base")], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"\bimage: (\S+)", built)) == {"registry.example.com/mpzero:latest"}
    assert len(re.findall(r"\bimage: ", built)) == 3
