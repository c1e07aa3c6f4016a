"""The configurations and commands of the pages of AWS's clusters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent))

from documents import ROOT, code_blocks, text_of

BLOCKS = code_blocks(text_of("docs/parallelcluster.md"))
CONFIGURATION, BLOCK = (yaml.safe_load(block) for block in BLOCKS if "SubnetIds" in block)


def queues(configuration: Any) -> list[dict[str, Any]]:
    return configuration["Scheduling"]["SlurmQueues"] if isinstance(configuration, dict) else configuration


def test_each_node_of_parallelcluster_runs_the_script_that_is_shipped() -> None:
    for part in (CONFIGURATION["HeadNode"], *queues(CONFIGURATION)):
        script = part["CustomActions"]["OnNodeConfigured"]["Script"]
        assert os.access(ROOT / "sbatch" / Path(script).name, os.X_OK)
        # It may be fetched.
        assert part["Iam"]["S3Access"] == [{"BucketName": script.split("/")[2]}]


def test_queues_of_parallelcluster_have_efa_and_a_placement_group_where_it_may_be() -> None:
    for queue in (*queues(CONFIGURATION), *queues(BLOCK)):
        block = queue.get("CapacityType") == "CAPACITY_BLOCK"
        assert queue["Networking"]["PlacementGroup"]["Enabled"] != block
        assert bool(queue.get("CapacityReservationTarget", {}).get("CapacityReservationId")) == block
        for resource in queue["ComputeResources"]:
            assert resource["Efa"]["Enabled"]
            assert not block or resource["MinCount"] == resource["MaxCount"] > 0
    assert [queue["CapacityType"] for queue in queues(BLOCK)] == ["CAPACITY_BLOCK"]


def test_hyperpod_s_lifecycle_runs_the_script_that_is_shipped(tmp_path) -> None:
    """The page's commands change AWS's on_create.sh, of which this has the lines that count."""
    folder = tmp_path / "base-config"
    folder.mkdir()
    (folder / "on_create.sh").write_text('#!/bin/bash\nset -ex\n\npython3 -u lifecycle_script.py \\\n  -rc "$1"\n')
    (block,) = [block for block in code_blocks(text_of("docs/hyperpod.md")) if "base-config" in block]
    (tmp_path / "sbatch").symlink_to(ROOT / "sbatch")
    subprocess.run(["bash", "-ec", "aws() { :; }\n" + block], cwd=tmp_path, check=True, timeout=60)
    lines = (folder / "on_create.sh").read_text().splitlines()
    (call,) = [line for line in lines if "node_setup" in line]
    assert lines.index(call) < lines.index("python3 -u lifecycle_script.py \\")
    assert (folder / call.split()[1]).exists()
