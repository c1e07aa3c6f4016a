"""The manifests of kubernetes/: what kubernetes/render asks for is what the instance type has, and fields exist."""

from __future__ import annotations

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
from rendering import KUBERNETES, ROOT, manifests, of_kind, render, rendered, variables

PLACES = "--cluster my-cluster --zone us-west-2a --file_system fs-0123456789abcdef0 --mount_name fsx"
EXAMPLES = {
    # Qwen3-0.6B, ZeRO-2, wikitext-2: 2 nodes with 8 GPUs each.
    "qwen3-0-6b": "--instance p5.48xlarge --nodes 2 --set MODEL_TYPE=qwen3_0_6b"
    " --set DS_CONFIG=/opt/mpzero/configs/ds_config.json --set TOKENIZER=Qwen/Qwen3-0.6B"
    " --set DATASET=/fsx/data/wikitext-2 --set DATASET_CONFIG_NAME=en --set LOCAL_DATASET=true"
    " --set CHECKPOINT_FREQ=500",
    # Llama-3-8B, ZeRO-3 with full offload, 256 sequences of 512 tokens per step: 4 nodes with 4 L40S each.
    "llama-3-8b": "--instance g6e.12xlarge --nodes 4 --placement_group mpzero --queue --set MODEL_TYPE=llama_3_8b"
    " --set DS_CONFIG=/opt/mpzero/configs/ds_config_llama3_8b_zero3_offload.json"
    " --set TOKENIZER=meta-llama/Meta-Llama-3-8B --set DATASET=Salesforce/wikitext"
    " --set DATASET_CONFIG_NAME=wikitext-2-raw-v1 --set LOCAL_DATASET=false --set SEQ_LENGTH=512 --set MAX_STEPS=50"
    " --secret HF_TOKEN=hugging-face:token",
    # The bundled small Qwen3 and text, on 4 nodes with AMX.
    "tiny-on-cpus": "--instance m7i.48xlarge --nodes 4 --ranks 2 --set MODEL_TYPE=qwen3_tiny",
}
DEVICES = dict(
    re.findall(r'^\{("[^"]+"), (\d+, "[^"]+", \d+, \d+), ', (ROOT / "app/machine/ec2_instances.inc").read_text(), re.M)
)
GPU_TYPES = {json.loads(kind): (int(row.split(",")[0]), int(row.rsplit(",", 1)[1])) for kind, row in DEVICES.items()}
BUILDERS = (["kubectl", "kustomize"], ["kustomize", "build"])


def builder() -> list[str] | None:
    return next((words for words in BUILDERS if shutil.which(words[0])), None)


needs_kustomize = pytest.mark.skipif(builder() is None, reason="neither kubectl nor kustomize is installed")


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, Path]:
    """The kustomizations of kubernetes/, and the rendered examples."""
    made = {name: KUBERNETES / name for name in ("base", "monitoring")}
    for name, words in EXAMPLES.items():
        made[name] = tmp_path_factory.mktemp(name)
        rendered(made[name], "--name", name, *PLACES.split(), *words.split())
    return made


@pytest.fixture
def shipped(folders) -> list[tuple[str, dict[str, Any]]]:
    return [(name, made) for name, folder in folders.items() for made in manifests(folder)]


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


def test_karpenter_does_not_replace_nodes_that_a_job_runs_on(shipped):
    """With a terminationGracePeriod, Karpenter's drift heeds neither disruption budgets of pods nor do-not-disrupt."""
    pools = [made["spec"] for _, made in shipped if made["kind"] == "NodePool"]
    assert len(pools) == len(EXAMPLES)
    for pool in pools:
        assert pool["template"]["spec"]["expireAfter"] == "Never"
        assert pool["disruption"]["budgets"] == [{"nodes": "0", "reasons": ["Drifted"]}]
        # So that a job's end renews them: empty nodes may all go.
        assert pool["disruption"]["consolidationPolicy"] == "WhenEmpty"


DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
OF_A_NAMESPACE = {"TrainJob", "PodDisruptionBudget", "PersistentVolumeClaim", "LocalQueue"}


def named(made: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The objects as the API server tells them apart."""
    return {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one["spec"] for one in made}


def test_no_job_writes_over_another_s_objects(tmp_path):
    given = ["--instance", "g6e.12xlarge", "--nodes", "2", "--queue", "--topology"]
    long = ["--name", "n" * 40, "--namespace", "s" * 63]
    jobs = [
        named(rendered(tmp_path / str(number), *given, *words))
        for number, words in enumerate(
            [
                ["--name", "a"],
                ["--name", "b", "--capacity", "spot", "--nodes", "4"],
                ["--name", "a", "--namespace", "team", "--nodes", "3"],
                long,
            ]
        )
    ]
    for job in jobs:
        for kind, namespace, name in job:
            assert DNS_LABEL.fullmatch(name) or kind == "PersistentVolume", name
            assert bool(namespace) == (kind in OF_A_NAMESPACE)
    for number, job in enumerate(jobs):
        for other in jobs[:number]:
            # The claim of a namespace is one, with one content.
            assert all(other[key] == job[key] for key in job.keys() & other.keys())
            shared = {kind for kind, _, _ in job.keys() & other.keys()}
            assert shared <= {"PersistentVolume", "PersistentVolumeClaim"}


def test_a_job_runs_on_the_nodes_of_its_own_pool(tmp_path):
    made = rendered(tmp_path, "--name", "a", "--instance", "p5.48xlarge", "--nodes", "2", "--queue")
    job = of_kind(made, "TrainJob")
    patches = job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    labels = of_kind(made, "NodePool")["spec"]["template"]["metadata"]["labels"]
    for patch in patches:
        assert patch["template"]["spec"]["template"]["spec"]["nodeSelector"]["mpzero.io/pool"] == "mpzero-a"
    assert labels["mpzero.io/pool"] == "mpzero-a"
    assert of_kind(made, "ResourceFlavor")["spec"]["nodeLabels"]["mpzero.io/pool"] == "mpzero-a"
    flavor = of_kind(made, "ClusterQueue")["spec"]["resourceGroups"][0]["flavors"][0]["name"]
    assert flavor == of_kind(made, "ResourceFlavor")["metadata"]["name"]
    queue = of_kind(made, "LocalQueue")
    assert queue["metadata"]["name"] == job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    assert queue["spec"]["clusterQueue"] == of_kind(made, "ClusterQueue")["metadata"]["name"]


def test_a_pod_fits_on_its_node_beside_the_node_s_own(tmp_path):
    for line in (KUBERNETES / "instances.csv").read_text().splitlines():
        if line.startswith(("#", "type,")):
            continue
        kind, millis, memory, _ = line.split(",")
        asked = of_kind(rendered(tmp_path / kind, "--name", "a", "--instance", kind, "--nodes", "2"), "TrainJob")[
            "spec"
        ]["trainer"]["resourcesPerNode"]["limits"]
        assert int(asked["cpu"]) * 1000 <= int(millis) - 1000
        # And no second pod beside it.
        assert int(asked["cpu"]) * 2000 > int(millis)
        assert 0.9 * int(memory) < int(asked["memory"].removesuffix("Gi")) * 1024 < 0.96 * int(memory)


def test_the_users_two_set_ups_are_there(folders):
    qwen = of_kind(manifests(folders["qwen3-0-6b"]), "TrainJob")
    assert qwen["spec"]["trainer"]["numNodes"] * qwen["spec"]["trainer"]["numProcPerNode"] == 16
    llama = of_kind(manifests(folders["llama-3-8b"]), "TrainJob")
    assert llama["spec"]["trainer"]["numNodes"] * llama["spec"]["trainer"]["numProcPerNode"] == 16
    config = json.loads((ROOT / "configs" / Path(variables(llama)["DS_CONFIG"]).name).read_text())
    sequences = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * 16
    assert sequences == 256
    assert variables(llama)["SEQ_LENGTH"] == "512"


def test_what_is_left_to_fill_in_is_said(tmp_path):
    said = render(tmp_path, "--name", "a", "--instance", "p5.48xlarge", "--nodes", "2", "--zone", "eu-west-1b").stderr
    assert "--cluster is not set" in said
    assert "--file_system is not set" in said
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
    mixed = [
        "--instance",
        "p5.48xlarge,p5e.48xlarge",
        "--zone",
        "us-west-2a,us-west-2b",
        "--capacity",
        "spot,on-demand",
    ]
    sets = {
        "reserved": [*given, *reserved, *more],
        "spot": [*given, "--capacity", "spot", "--no_efa"],
        "block": [*given, "--capacity", "block", "--reservation", "cr-0abc"],
        "mixed": [*given, *mixed],
        "hyperpod": [*given, "--instance", "ml.p5.48xlarge", "--queue"],
    }
    return [(name, made) for name, words in sets.items() for made in rendered(folder / name, *words)]


def test_fields_are_those_of_the_kinds(shipped, tmp_path):
    known = schema.table()
    wrong = []
    for where, made in [*shipped, *variants(tmp_path)]:
        key = schema.key_of(made)
        assert key in known, f"{where}: {key} is not in {schema.TABLE.name}"
        wrong += [f"{where}: {made['kind']}{error}" for error in schema.errors(made, known[key])]
    assert wrong == []


@pytest.mark.skipif("MPZERO_CRDS" not in os.environ, reason="MPZERO_CRDS names no folder of CustomResourceDefinitions")
def test_fields_are_those_of_the_complete_definitions(shipped, tmp_path):
    known = schema.definitions(Path(os.environ["MPZERO_CRDS"]))
    wrong = []
    seen = set()
    for where, made in [*shipped, *variants(tmp_path)]:
        key = schema.key_of(made)
        if key in known:
            seen.add(key)
            wrong += [f"{where}: {made['kind']}{error}" for error in schema.errors(made, known[key])]
    assert wrong == []
    assert "trainer.kubeflow.org/v1alpha1 TrainJob" in seen


def test_a_wrong_field_would_be_found(folders):
    known = schema.table()
    job = of_kind(manifests(folders["llama-3-8b"]), "TrainJob")
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
        for made in manifests(KUBERNETES / "base")
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
        failed, disrupted = launcher["podFailurePolicy"]["rules"]
        assert set(failed["onExitCodes"]["values"]) == {2, 75, 77} and "onPodConditions" in disrupted
        rules = runtime(name)["spec"]["template"]["spec"]["failurePolicy"]["rules"]

        def action(message: str, rules=rules) -> str:
            matching = [
                rule for rule in rules if any(re.search(p, message) for p in rule["onJobFailureMessagePatterns"])
            ]
            return matching[0]["action"] if matching else "RestartJobSet"

        assert action(ended.format(2, 0)) == action(ended.format(77, 0)) == "FailJobSet"
        assert action(ended.format(75, 0)) == action(evicted) == "RestartJobSetAndIgnoreMaxRestarts"
        assert action("Job has reached the specified backoff limit") == "RestartJobSet"
        # Other statuses match none of the Job's rules.
        assert action(ended.format(1, 0)) == action(ended.format(22, 0)) == "RestartJobSet"
        script = (ROOT / "container/launch").read_text()
        assert all(f"#   {code} " in script for code in (0, 2, 75, 77))


def test_pods_end_after_the_ranks_have_saved(shipped):
    for _, made in shipped:
        if made["kind"] != "TrainJob":
            continue
        patches = made["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        grace = {patch["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] for patch in patches}
        assert len(grace) == 1
        assert int(variables(made)["GRACE_PERIOD"]) + 30 <= grace.pop()


@needs_kustomize
@pytest.mark.parametrize("name", ["base", "monitoring", *EXAMPLES])
def test_kustomize_builds_it(folders, name):
    built = subprocess.run([*builder(), str(folders[name])], capture_output=True, text=True, timeout=60)
    assert built.returncode == 0, built.stderr
    made = [manifest for manifest in yaml.safe_load_all(built.stdout) if manifest]
    both = (made, manifests(folders[name]))
    names = [sorted((one["kind"], one["metadata"]["name"]) for one in some) for some in both]
    assert names[0] == names[1]


@needs_kustomize
def test_one_name_of_the_image_reaches_all_pods():
    built = subprocess.run([*builder(), str(KUBERNETES / "base")], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"\bimage: (\S+)", built)) == {"registry.example.com/mpzero:latest"}
    assert len(re.findall(r"\bimage: ", built)) == 3
