"""container/launch with the Open MPI of another system, in MPZERO_TEST_ROOT, and a stand-in for mpzero.

Debian 13 has Open MPI 5: mmdebstrap --variant=minbase \
  --include=openmpi-bin,openssh-server,openssh-client,python3,iproute2,procps,hostname trixie FOLDER
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from virtual_pods import VirtualPods, reason_to_skip

REASON = reason_to_skip() or (
    None if os.environ.get("MPZERO_TEST_ROOT") else "MPZERO_TEST_ROOT names no root file system with another Open MPI"
)
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")

STAND_IN = """#!/bin/bash
[[ " $* " != *" --dry_run"* && $1 == train ]] || exit 0
printf 'rank %s of %s on %s as %s, HF_TOKEN %s\\n' \\
  "$OMPI_COMM_WORLD_RANK" "$OMPI_COMM_WORLD_SIZE" "$(hostname)" "$MPZERO_HOST" "${HF_TOKEN:-none}"
if [[ -n ${MPZERO_STAND_IN_WAITS:-} ]]; then
  trap 'exit 75' USR1
  echo "$OMPI_COMM_WORLD_RANK waits"
  while :; do sleep 0.1; done
fi
exit "${MPZERO_STAND_IN_ENDS:-0}"
"""


@pytest.fixture
def pods():
    with VirtualPods(nodes=3, ranks=2) as made:
        program = made.folder / "build/bin/mpzero"
        program.parent.mkdir(parents=True)
        program.write_text(STAND_IN)
        program.chmod(0o755)
        made.start_nodes(BUILD_DIR=str(made.folder / "build"))
        yield made


def launch(pods, **variables: str):
    given = {"CHECK_NODES": "false", "TRAIN_DATA": "/dev/null", "TOKENIZER": "bytes", "MODEL_TYPE": "qwen3_tiny"}
    return pods.launch(BUILD_DIR=str(pods.folder / "build"), HF_TOKEN="abc", **{**given, **variables})


def test_ranks_run_on_all_pods_and_know_their_names(pods):
    launcher = launch(pods)
    assert launcher.wait() == 0, launcher.output()
    ranks = re.findall(r"rank (\d) of 6 on (\S+) as (\S+), HF_TOKEN abc", launcher.output())
    names = [pods.launcher_name, *pods.node_names]
    assert sorted(ranks) == [
        (str(rank), names[rank // 2], f"{names[rank // 2]}.tiny.default.svc.cluster.local") for rank in range(6)
    ]


def test_the_status_of_a_rank_is_the_pod_s(pods):
    launcher = launch(pods, MPZERO_STAND_IN_ENDS="2")
    assert launcher.wait() == 2, launcher.output()


def test_sigterm_reaches_the_ranks_of_all_pods(pods):
    launcher = launch(pods, MPZERO_STAND_IN_WAITS="1")
    for rank in range(6):
        launcher.wait_for(f"\n{rank} waits\n")
    launcher.signal("TERM")
    assert launcher.wait() == 75, launcher.output()


def test_what_the_controller_sets_is_not_enough_for_open_mpi_5(pods):
    """Where this fails, container/launch has one reason less to set variables of its own."""
    command = 'mpirun --version; mpirun -n 6 --map-by :oversubscribe bash -c "echo here \\$(hostname)"'
    launcher = pods.launch("-c", command, program="/bin/bash")
    assert launcher.wait() == 0, launcher.output()
    if "Open MPI) 5" not in launcher.output():
        pytest.skip("this is no Open MPI 5")
    assert re.findall(r"here (\S+)", launcher.output()) == [pods.launcher_name] * 6
