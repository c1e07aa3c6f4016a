"""sbatch/node_setup.sh in a scratch root, with stand-ins for what would change this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "sbatch/node_setup.sh"


class Node:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.bin = folder / "bin"
        self.asked = folder / "asked"
        self.bin.mkdir()
        # All that the script may use: nothing is found by accident.
        for name in ("bash", "env", "mkdir", "sed", "hostname"):
            (self.bin / name).symlink_to(f"/usr/bin/{name}")
        self.program("systemctl", "exit 0")
        self.program("apt-get", "exit 0")

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(f'#!/bin/bash\necho "{name} $*" >>{self.asked}\n{text}\n')
        path.chmod(0o755)

    def setup(self, *arguments: str) -> tuple[subprocess.CompletedProcess, list[str]]:
        """The run, and the commands that it has given."""
        self.asked.write_text("")
        result = subprocess.run(
            [str(SCRIPT), *arguments],
            env={"PATH": str(self.bin), "NODE_ROOT": str(self.root)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert result.returncode == 0, result.stderr
        return result, self.asked.read_text().splitlines()


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_jobs_may_lock_all_memory(node):
    _, asked = node.setup()
    unit = node.root / "etc/systemd/system/slurmd.service.d/90-mpzero.conf"
    assert unit.read_text() == "[Service]\nLimitMEMLOCK=infinity\n"
    limits = (node.root / "etc/security/limits.d/90-mpzero.conf").read_text().splitlines()
    assert limits == ["* soft memlock unlimited", "* hard memlock unlimited"]
    assert [line for line in asked if line.startswith("systemctl")] == [
        "systemctl daemon-reload",
        "systemctl --quiet is-active slurmd",
        "systemctl restart slurmd",
    ]


def test_pods_may_lock_all_memory(node):
    _, asked = node.setup("containerd")
    assert (node.root / "etc/systemd/system/containerd.service.d/90-mpzero.conf").exists()
    assert asked[-1] == "systemctl restart containerd"


def test_a_second_run_restarts_nothing(node):
    node.setup()
    _, asked = node.setup()
    assert not [line for line in asked if line.startswith("systemctl")]


def test_a_node_without_slurmd_starts_none(node):
    node.program("systemctl", "[[ $* != *is-active* ]]")
    assert "systemctl restart slurmd" not in node.setup()[1]


@pytest.mark.parametrize("there", ["opt/amazon/openmpi/bin/mpirun", "opt/amazon/openmpi5/bin/mpirun", None])
def test_open_mpi_is_installed_where_there_is_none(node, there):
    if there:
        (node.root / there).parent.mkdir(parents=True)
        (node.root / there).touch()
    installed = [line for line in node.setup()[1] if "install" in line]
    assert installed == ([] if there else ["apt-get install -q -y --no-install-recommends openmpi-bin"])


def test_dnf_installs_it_elsewhere(node):
    (node.bin / "apt-get").unlink()
    node.program("dnf", "exit 0")
    assert "dnf install -q -y openmpi" in node.setup()[1]


@pytest.mark.parametrize(("driver", "warned"), [("570.172.08", True), ("580.95.05", False), ("595.71.05", False)])
def test_an_old_driver_is_named(node, driver, warned):
    node.program("nvidia-smi", f"for gpu in 0 1; do echo {driver}; done")
    result, _ = node.setup()
    assert (driver in result.stderr) == warned
    assert result.stderr.count("\n") == warned
