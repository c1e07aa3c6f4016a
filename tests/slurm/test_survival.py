"""The real mpzero stopped, preempted, hung, robbed of a node: each run ends with the bits of an undisturbed one."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import BUILD, Run
from virtual_slurm import VirtualSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("built")]

STEPS = 12


@pytest.fixture(scope="session")
def slow_library(tmp_path_factory) -> Path:
    if not shutil.which("mpicc"):
        pytest.skip("mpicc is not installed")
    library = tmp_path_factory.mktemp("slow") / "slow_steps.so"
    source = Path(__file__).with_name("slow_steps.c")
    subprocess.run(["mpicc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return library


class SlowRun(Run):
    """A run whose steps take `seconds` until go_on()."""

    def __init__(self, cluster: VirtualSlurm, folder: Path, library: Path, seconds: float):
        super().__init__(cluster, folder)
        self.slow = folder / "slow"
        self.slow.touch()
        slowly = f"LD_PRELOAD={library} SLOW_FILE={self.slow} SLOW_SECONDS={seconds}"
        self.replace_program(f'[[ $1 != train ]] || export {slowly}\nexec {BUILD}/bin/mpzero "$@"\n')
        self.variables["MAX_STEPS"] = str(STEPS)

    def started(self, job, steps: int = 3):
        return job.wait_until(lambda: len(self.lines("checkpoints/metrics.jsonl")) >= steps)

    def go_on(self) -> None:
        self.slow.unlink()

    def result(self) -> tuple:
        assert self.steps() == list(range(1, STEPS + 1))
        assert self.tag() == f"qwen3_tiny-{STEPS}steps"
        return tuple((entry["loss"], entry["grad_norm"]) for entry in self.metrics())


@pytest.fixture
def slow_run(idle, tmp_path, slow_library):
    return SlowRun(idle, tmp_path, slow_library, 2)


@pytest.fixture(scope="session")
def undisturbed(cluster, slow_library, tmp_path_factory):
    run = SlowRun(cluster, tmp_path_factory.mktemp("undisturbed"), slow_library, 0)
    job = run.submit()
    assert (job.state, job.restarts) == ("COMPLETED", 0), job.text()
    return run.result()


def test_a_preempted_run_ends_with_the_same_bits(slow_run, undisturbed):
    job = slow_run.start()
    slow_run.started(job)
    urgent = slow_run.cluster.submit(
        ["--partition=urgent", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap", "true"], cwd=slow_run.folder
    )
    urgent.wait()
    slow_run.go_on()
    job.wait()
    assert (urgent.state, job.state, job.restarts) == ("COMPLETED", "COMPLETED", 1), job.text()
    assert "Resumed from checkpoint at step" in job.text()
    assert slow_run.result() == undisturbed


def test_a_rank_that_hangs_is_named_and_its_node_left_out(slow_run, undisturbed):
    job = slow_run.start(STUCK_AFTER="10")
    slow_run.started(job)
    job.update()
    hosts = slow_run.cluster.run(["scontrol", "show", "hostnames", job.fields["NodeList"]]).stdout.split()
    last = int(hosts[-1].removeprefix("node"))
    ranks = sorted(
        pid for pid, command in slow_run.cluster.processes(last) if command.startswith(f"{BUILD}/bin/mpzero")
    )
    assert len(ranks) == 2
    os.kill(ranks[-1], signal.SIGSTOP)
    slow_run.go_on()
    job.wait()
    assert (job.state, job.restarts) == ("COMPLETED", 1), job.text()
    assert f"Excluded from now on: node{last}." in job.text()
    assert job.fields["ExcNodeList"] == f"node{last}"
    reports = [line for line in job.text().splitlines() if "The run failed with status" in line]
    assert len(reports) == 1 and f"node{last}" in reports[0] and ("rank 2" in reports[0] or "rank 3" in reports[0])
    assert slow_run.result() == undisturbed


def test_a_run_whose_node_dies_continues_with_another(tmp_path, slow_library, undisturbed):
    with VirtualSlurm(nodes=3, cpus=2) as cluster:
        run = SlowRun(cluster, tmp_path, slow_library, 2)
        job = run.start()
        run.started(job)
        cluster.kill_node(1)
        run.go_on()
        job.wait()
        assert (job.state, job.restarts) == ("COMPLETED", 1), job.text()
        assert job.fields["NodeList"] == "node[0,2]"
        assert run.result() == undisturbed


@pytest.mark.nightly
def test_a_run_that_loses_the_node_of_its_batch_shell_continues(tmp_path, slow_library, undisturbed):
    with VirtualSlurm(nodes=3, cpus=2) as cluster:
        run = SlowRun(cluster, tmp_path, slow_library, 2)
        job = run.start()
        run.started(job)
        cluster.kill_node(0)
        run.go_on()
        job.wait()
        assert (job.state, job.restarts) == ("COMPLETED", 1), job.text()
        assert job.fields["NodeList"] == "node[1-2]"
        assert run.result() == undisturbed
