"""The network NCCL uses between nodes: two ranks on one machine, which NCCL treats as two nodes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from tiny_run import TinyRun
from trainer import BUILD, ENVIRONMENT, num_gpus

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(num_gpus() < 2, reason="fewer than 2 GPUs")]

# A libnccl-net-ofi.so of aws-ofi-nccl whose libfabric the loader finds and has a provider for TCP.
PLUGIN = os.environ.get("MPZERO_TEST_NET_PLUGIN")
needs_plugin = pytest.mark.skipif(PLUGIN is None, reason="no aws-ofi-nccl in MPZERO_TEST_NET_PLUGIN")


class TwoNodes:
    def __init__(self, folder: Path) -> None:
        self.run = TinyRun(folder, bf16=True, device="cuda", ranks=2)
        self.folder = folder

    def train(self, network: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Two steps, with a file of NCCL's log for each rank."""
        words = ["mpirun", "--oversubscribe"]
        for rank in range(2):
            words += [":"] if rank > 0 else []
            words += ["-n", "1", "env", f"NCCL_HOSTID=node{rank}"]
            words += [str(BUILD / "bin" / "mpzero"), "train", *map(str, self.run.flags())]
            words += ["--max_steps=2", f"--network={network}"]
        log = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(self.folder / "nccl.%p")}
        environment = {**os.environ, **ENVIRONMENT, **log, **variables}
        return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300, check=False)

    def networks(self) -> list[str]:
        """The network that NCCL names for each communicator of each rank."""
        logs = [path.read_text() for path in self.folder.glob("nccl.*")]
        return [name for log in logs for name in re.findall(r"Using network (\S+)", log)]


@pytest.mark.parametrize("network", ["auto", "socket"])
def test_without_efa_tcp_is_used_and_logged(tmp_path: Path, network: str) -> None:
    nodes = TwoNodes(tmp_path)
    result = nodes.train(network)
    assert result.returncode == 0, result.stderr
    assert "Network: Socket" in result.stdout
    assert "NCCL uses TCP" in result.stderr
    # Two ranks, and a communicator each for parameters and gradients.
    assert nodes.networks() == ["Socket"] * 4


def test_missing_efa_is_refused_before_nccl_starts(tmp_path: Path) -> None:
    nodes = TwoNodes(tmp_path)
    result = nodes.train("efa")
    assert result.returncode == 2
    assert "no EFA device" in result.stderr
    assert nodes.networks() == []


@needs_plugin
def test_training_uses_the_plugin_that_was_proven(tmp_path: Path) -> None:
    """NCCL 2.28 forgets NCCL_NET_PLUGIN if its last communicator ends before the next one begins."""
    nodes = TwoNodes(tmp_path)
    result = nodes.train("auto", NCCL_NET_PLUGIN=str(PLUGIN), FI_PROVIDER="tcp")
    assert result.returncode == 0, result.stderr
    assert re.search(r"^Network: Libfabric \(aws-ofi-nccl [\d.]+\), provider tcp", result.stdout, re.MULTILINE)
    assert "NCCL uses TCP" in result.stderr
    assert nodes.networks() == ["Libfabric"] * 4


@needs_plugin
def test_sockets_are_used_on_request_despite_a_plugin(tmp_path: Path) -> None:
    nodes = TwoNodes(tmp_path)
    result = nodes.train("socket", NCCL_NET_PLUGIN=str(PLUGIN), FI_PROVIDER="tcp")
    assert result.returncode == 0, result.stderr
    assert nodes.networks() == ["Socket"] * 4


@needs_plugin
def test_a_plugin_without_efa_is_not_efa(tmp_path: Path) -> None:
    nodes = TwoNodes(tmp_path)
    result = nodes.train("efa", NCCL_NET_PLUGIN=str(PLUGIN), FI_PROVIDER="tcp")
    assert result.returncode == 2
    assert nodes.networks() == []
