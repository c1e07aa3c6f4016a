"""The commands of docs/eks.md that make a cluster agree with what kubernetes/render writes. They are not run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs"))
sys.path.insert(0, str(Path(__file__).parent))

from documents import ROOT, section, text_of
from rendering import manifests

WALK = section(text_of("docs/eks.md"), "From an empty account to a loss curve")
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", WALK, re.MULTILINE | re.DOTALL)
# What the shell would have found out.
VALUES = {"cluster": "my-cluster", "AWS_REGION": "us-west-2", "account": "123456789012", "zone": "us-west-2a"}
VALUES |= {"file_system": "fs-0123456789abcdef0", "mount_name": "abcdefgh"}


def filled(text: str) -> str:
    return re.sub(r"\$(\w+)", lambda found: VALUES[found[1]], text)


def documents_in_place() -> list[dict]:
    return [
        yaml.safe_load(filled(text)) for text in re.findall(r"<<'?EOF'?\n(.*?)^EOF$", WALK, re.DOTALL | re.MULTILINE)
    ]


def rendered(folder: Path) -> dict[str, dict]:
    """The manifests of the first job, by kind."""
    (line,) = re.findall(r"^kubernetes/render (.*?[^\\])\n", WALK, re.MULTILINE | re.DOTALL)
    words = shlex.split(filled(line.replace("\\\n", " ")))[:-1]
    done = subprocess.run(
        [sys.executable, str(ROOT / "kubernetes/render"), *words, str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return {made["kind"]: made for path in folder.glob("*.yaml") for made in yaml.safe_load_all(path.read_text())}


def test_every_command_can_be_read() -> None:
    assert len(BLOCKS) >= 8
    for block in BLOCKS:
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), block


def test_the_cluster_has_what_the_node_class_looks_for(tmp_path: Path) -> None:
    cluster = next(made for made in documents_in_place() if made["kind"] == "ClusterConfig")
    made = rendered(tmp_path)
    spec = made["EC2NodeClass"]["spec"]
    assert cluster["iamIdentityMappings"][0]["arn"].endswith(f":role/{spec['role']}")
    for terms in (spec["subnetSelectorTerms"], spec["securityGroupSelectorTerms"]):
        assert terms == [{"tags": cluster["metadata"]["tags"]}]
    zones = [
        entry["values"]
        for entry in made["NodePool"]["spec"]["template"]["spec"]["requirements"]
        if entry["key"] == "topology.kubernetes.io/zone"
    ]
    assert zones == [[VALUES["zone"]]]
    assert VALUES["zone"] in cluster["availabilityZones"]
    assert spec["placementGroupSelector"]["name"] in WALK


def test_the_folders_are_made_where_the_job_looks_for_them(tmp_path: Path) -> None:
    pod = next(made for made in documents_in_place() if made["kind"] == "Pod")
    made = rendered(tmp_path)
    claim = pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert claim == made["PersistentVolumeClaim"]["metadata"]["name"]
    folders = [word for word in pod["spec"]["containers"][0]["command"] if word.startswith("/fsx/")]
    asked = {entry["name"]: entry.get("value", "") for entry in made["TrainJob"]["spec"]["trainer"]["env"]}
    for name in ("CHECKPOINT_DIR", "DATA_DIR", "HF_HOME"):
        assert any(f"{asked[name]}/".startswith(f"{folder}/") for folder in folders)


def test_versions_are_those_that_the_cluster_needs() -> None:
    needs = section(text_of("docs/eks.md"), "Cluster requirements")
    for row, command in (
        ("Karpenter", r"karpenter=(\d+\.\d+)\.\d+"),
        ("Kubeflow Trainer", r"charts/kubeflow-trainer --version (\d+\.\d+)\.\d+"),
        ("Kueue", r"charts/kueue --version (\d+\.\d+)\.\d+"),
    ):
        (version,) = re.findall(command, WALK)
        assert re.search(rf"^\| {row}[^|]*\| {re.escape(version)}\b", needs, re.MULTILINE), (row, version)


def test_the_image_of_the_runtimes_is_replaced() -> None:
    (script,) = re.findall(r'^sed -i "(.*)" (?:\S+)$', WALK, re.MULTILINE)
    base = (ROOT / "kubernetes/base/kustomization.yaml").read_text()
    script = script.replace('\\"', '"').replace("$registry", "registry.test")
    changed = subprocess.run(["sed", script], input=base, capture_output=True, text=True, check=True, timeout=60).stdout
    assert yaml.safe_load(changed)["images"] == [{"name": "mpzero", "newName": "registry.test/mpzero", "newTag": "1"}]


def test_the_rules_are_applied_as_they_are_and_read_the_pods(tmp_path: Path) -> None:
    (command,) = re.findall(r"^\{ printf .*?\|\n  kubectl apply [^\n]*$", WALK, re.MULTILINE | re.DOTALL)
    stand_in = "kubectl() { cat; }\n"
    done = subprocess.run(["bash", "-ec", stand_in + command], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    made = yaml.safe_load(done.stdout)
    rules = yaml.safe_load((ROOT / "monitoring/rules.yml").read_text())
    assert made["kind"] == "PrometheusRule" and made["spec"] == rules
    # The rules name the job, which is the value of this label of the pods.
    jobs = set(re.findall(r'\bjob="([^"]+)"', (ROOT / "monitoring/rules.yml").read_text()))
    monitor = yaml.safe_load((ROOT / "kubernetes/monitoring/pod_monitor.yaml").read_text())
    assert jobs == {monitor["spec"]["selector"]["matchLabels"][monitor["spec"]["jobLabel"]]}


def test_sick_nodes_are_found_and_replaced() -> None:
    cluster = next(made for made in documents_in_place() if made["kind"] == "ClusterConfig")
    assert "eks-node-monitoring-agent" in {addon["name"] for addon in cluster["addons"]}
    (karpenter,) = re.findall(r"^helm upgrade --install karpenter .*?[^\\]\n", WALK, re.MULTILINE | re.DOTALL)
    assert "settings.featureGates.nodeRepair=true" in shlex.split(karpenter)


def test_the_logs_of_all_pods_are_collected_and_no_others() -> None:
    path = ROOT / "kubernetes/logging/fluent_bit.values.yaml"
    values = yaml.safe_load(path.read_text())
    (rule,) = re.findall(r"Regex +\$kubernetes\['labels'\]\['([^']+)'\] \^(\w+)\$", values["additionalFilters"])
    jobs = [
        job["template"]["spec"]["template"]
        for runtime in manifests(ROOT / "kubernetes/base")
        if runtime["kind"] == "ClusterTrainingRuntime"
        for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]
    ]
    assert len(jobs) == 3
    assert all(job["metadata"]["labels"][rule[0]] == rule[1] for job in jobs)
    # On the nodes that jobs run on.
    taint = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert taint in values["tolerations"]
    assert str(path.relative_to(ROOT)) in WALK
