"""What kubernetes/render refuses, and what it makes of arguments that meet."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from rendering import of_kind, render, render_apart, rendered


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--instance", "g6e.12xlage"], ["g6e.12xlage is not known", "did you mean g6e.12xlarge?"]),
        (["--name", "Llama_3"], ["--name Llama_3", "lowercase letters"]),
        (["--name", "a" * 41], ["at most 40"]),
        (["--nodes", "0"], ["--nodes 0 must be at least 1"]),
        (["--set", "MPZERO_NODES=3"], ["--set MPZERO_NODES", "--nodes"]),
        (["--set", "OMPI_MCA_orte_default_hostfile=x"], ["Kubeflow Trainer refuses"]),
        (["--set", "MAX_STEPS"], ["--set MAX_STEPS must be VARIABLE=VALUE"]),
        (["--secret", "HF_TOKEN=hugging-face"], ["VARIABLE=SECRET:KEY"]),
        (["--capacity", "reserved"], ["--reservation"]),
        (["--reservation", "cr-1"], ["--capacity reserved"]),
        (["--capacity", "block"], ["--reservation"]),
        (["--capacity", "spot,free"], ["--capacity free", "on-demand"]),
        (["--capacity", "reserved,spot", "--reservation", "cr-1"], ["--capacity reserved,spot", "alone"]),
        (["--capacity", "block", "--reservation", "cr-1", "--placement_group", "g"], ["--placement_group g", "block"]),
        (["--zone", "us-west-2a,us-west-2b", "--placement_group", "g"], ["--placement_group g", "one zone"]),
        (["--zone", "us-west-2a,eu-west-1b"], ["us-west-2a,eu-west-1b", "regions"]),
        (["--instance", "p5.48xlarge,p4d.24xlarge"], ["p5.48xlarge and p4d.24xlarge", "EFA"]),
        (["--instance", "p5.48xlarge,ml.p5e.48xlarge"], ["ml.p5e.48xlarge", "HyperPod"]),
        (["--instance", "ml.p5.48xlage"], ["ml.p5.48xlage", "did you mean ml.p5.48xlarge?"]),
        (["--instance", "ml.p5.48xlarge", "--capacity", "spot"], ["--capacity spot", "HyperPod"]),
        (["--instance", "ml.p5.48xlarge", "--placement_group", "g"], ["--placement_group g", "HyperPod"]),
        (["--instance", "ml.p5.48xlarge,ml.p5e.48xlarge"], ["ml.p5.48xlarge,ml.p5e.48xlarge"]),
        (["--topology"], ["--queue"]),
        (["--hugepages_mib", "99999999"], ["--hugepages_mib 99999999", "p5.48xlarge", "GiB"]),
        (["--hugepages_mib", "5121"], ["--hugepages_mib 5121", "2 MiB"]),
        (["--namespace", "Foo Bar"], ["--namespace Foo Bar", "lowercase letters"]),
        (["--namespace", "n" * 64], ["at most 63"]),
        (["--flag=--overwrite"], ["--flag --overwrite", "without"]),
        (["--flag", "max steps=3"], ["--flag max steps=3"]),
        (["--zone", "us-east-1-bos-1a"], ["--zone us-east-1-bos-1a", "us-west-2a"]),
        (["--zone", "us-east-1"], ["--zone us-east-1 "]),
        (["--secret", "HF=a:b", "--set", "HF=c"], ["--set HF", "--secret HF"]),
        (["--secret", "HF=a:b", "--secret", "HF=a:c"], ["--secret HF", "twice"]),
        (["--set", "HF=a", "--set", "HF=b"], ["--set HF", "twice"]),
        (["--secret", "MPZERO_NODES=a:b"], ["--secret MPZERO_NODES"]),
        (["--no_efa", "--set", "NETWORK=efa"], ["NETWORK=efa", "--no_efa"]),
        (["--instance", "m7i.48xlarge", "--set", "NETWORK=efa"], ["NETWORK=efa", "m7i.48xlarge"]),
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


def test_each_variable_has_one_entry(tmp_path):
    """Those that kubernetes/render sets give way to the user's."""
    given = ["--name", "a", "--instance", "p5.48xlarge", "--nodes", "2"]
    job = of_kind(rendered(tmp_path, *given, "--secret", "HF_HOME=a:b", "--set", "DATA_DIR=/d"), "TrainJob")
    entries = job["spec"]["trainer"]["env"]
    names = [entry["name"] for entry in entries]
    assert len(names) == len(set(names))
    assert {"name": "HF_HOME", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}} in entries
    assert {"name": "DATA_DIR", "value": "/d"} in entries


@pytest.mark.parametrize(
    ("zone", "region"), [("us-gov-west-1a", "us-gov-west-1"), ("ap-southeast-2c", "ap-southeast-2")]
)
def test_the_file_system_is_in_the_region_of_the_zone(tmp_path, zone, region):
    given = ["--name", "a", "--instance", "p5.48xlarge", "--nodes", "2", "--zone", zone]
    volume = of_kind(rendered(tmp_path, *given), "PersistentVolume")
    assert f".fsx.{region}.amazonaws.com" in volume["spec"]["csi"]["volumeAttributes"]["dnsname"]


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "POSIXLY_CORRECT": "1"}


def test_the_locale_changes_no_manifest(tmp_path):
    needed = ["--name", "job", "--instance", "g6e.12xlarge", "--nodes", "2", "--set", "DATASET=/data/Bücher"]
    usual, ascii_only = tmp_path / "usual", tmp_path / "Bücher"
    for folder, variables in ((usual, {}), (ascii_only, ASCII)):
        result = render_apart(folder, *needed, **variables)
        assert result.returncode == 0, result.stderr
    names = sorted(path.name for path in usual.iterdir())
    assert sorted(path.name for path in ascii_only.iterdir()) == names
    assert all((usual / name).read_bytes() == (ascii_only / name).read_bytes() for name in names)
    mistake = render_apart(tmp_path / "x", *needed, "--set", "DATASET=ü", **ASCII)
    assert mistake.returncode == 2 and mistake.stderr.count("\n") == 1
