"""sbatch train.sbatch and train-singlenode.sh HOST on a virtual cluster with the real programs."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import BUILD, REPOSITORY
from own_build import reason_to_skip

pytestmark = pytest.mark.slurm


@pytest.fixture
def ready() -> None:
    if reason := reason_to_skip():
        pytest.skip(reason)


def test_a_cluster_whose_owner_is_killed_is_removed(cluster):
    program = (
        f"import sys, time; sys.path.insert(0, {str(Path(__file__).parent)!r}); "
        "from virtual_slurm import VirtualSlurm; c = VirtualSlurm(nodes=1); print(c.folder, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    folder = Path(owner.stdout.readline().strip())

    def processes() -> list[str]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            # A process may end while its command line is read.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if str(folder).encode() in (command := path.read_bytes()):
                    found.append(command.decode())
        return found

    try:
        assert len(processes()) > 2
        owner.kill()
        owner.wait()
        deadline = time.monotonic() + 30
        while processes():
            assert time.monotonic() < deadline, processes()
            time.sleep(0.1)
    finally:
        owner.kill()
        owner.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.usefixtures("built")
def test_two_nodes_train_resume_by_themselves_and_stop_when_finished(run):
    first = run.submit(MAX_STEPS="4")
    assert first.state == "COMPLETED", first.text()
    assert first.output == run.folder / f"logs/qwen3_tiny-mpzero_{first.number}.out"
    output = first.output.read_text()
    assert "2 nodes (node[0-1]) with 2 ranks each" in output
    assert output.count("mpzero: MPI uses the network eth0 ") == 1
    assert "Loss: " in output
    assert "lr: " in output
    # Tensors travel beside computing between hosts, too; else a warning says why not.
    assert "communication does not overlap" not in output
    assert run.steps() == [1, 2, 3, 4]
    tag = (run.folder / "checkpoints/latest").read_text().strip()
    assert tag == "qwen3_tiny-4steps"
    shards = list((run.folder / "checkpoints" / tag).glob("*zero_pp_rank_*_optim_states.h5"))
    assert len(shards) == 4, shards
    view = run.cluster.run([str(BUILD / "bin/mpzero"), "top", str(first.number)]).stdout
    assert "4 ranks on 2 hosts\nfinished\n" in view and "step 4 of 4 (100%)" in view, view

    second = run.submit(MAX_STEPS="6")
    assert second.state == "COMPLETED", second.text()
    assert "Resumed from checkpoint at step 4" in second.text()
    assert run.steps() == [1, 2, 3, 4, 5, 6]

    third = run.submit(MAX_STEPS="6")
    assert third.state == "COMPLETED", third.text()
    assert run.steps() == [1, 2, 3, 4, 5, 6]


@pytest.mark.usefixtures("built")
def test_a_rank_that_is_late_in_mpi_init_is_waited_for(run):
    if not shutil.which("mpicc"):
        pytest.skip("mpicc is not installed")
    library = run.folder / "late_fence.so"
    source = Path(__file__).with_name("late_fence.c")
    subprocess.run(["mpicc", "-shared", "-fPIC", "-pthread", "-o", library, source, "-ldl"], check=True)
    run.replace_program(f'LD_PRELOAD={library} exec {BUILD}/bin/mpzero "$@"\n')
    job = run.submit(MAX_STEPS="1", MAX_RESTARTS="0")
    assert (job.state, job.restarts) == ("COMPLETED", 0), job.text()
    assert run.steps() == [1]


@pytest.mark.usefixtures("built")
def test_without_pmix_the_ranks_start_through_mpirun(run):
    job = run.submit(MAX_STEPS="2", PATH=run.path_without_pmix())
    assert job.state == "COMPLETED", job.text()
    assert "no PMIx plugin" in job.text()
    assert len(list(run.folder.glob("checkpoints/qwen3_tiny-2steps/*zero_pp_rank_*_optim_states.h5"))) == 4


# Each rank of either command leaves a line: its node, the GPUs that it sees, which of them it may not open, and a
# variable that the script has set.
LOOK_AROUND = """
denied() {
  local gpu
  for gpu in ${CUDA_VISIBLE_DEVICES//,/ }; do
    [[ $({ : <"${SLURM_CONF%/*}/gpu$gpu"; } 2>&1) != *"not permitted"* ]] || printf ' denied:%s' "$gpu"
  done
}
look_around() { echo "$(hostname) ${CUDA_VISIBLE_DEVICES-none}$(denied) ${OMP_NUM_THREADS-none}" >>"$folder/$1.ranks"; }
doctor() { look_around doctor; }
train() { look_around train; }
"""


def ranks_of(gpus: str, count: int, threads: int = 1, nodes: tuple[str, ...] = ("node0", "node1")) -> list[str]:
    return sorted(f"{node} {gpus} {threads}" for node in nodes for _ in range(count))


@pytest.mark.parametrize(
    ("options", "ranks"),
    [
        ((), ranks_of("0,1", 2)),
        (("--gpus-per-node=1",), ranks_of("0", 1, threads=2)),
        (("--gres=gpu:1",), ranks_of("0", 1, threads=2)),
        (("--gpus-per-task=1", "--ntasks-per-node=2"), ranks_of("0,1", 2)),
        (("--ntasks-per-gpu=1", "--gpus=4", "--gpu-bind=single:1", "--cpus-per-gpu=1"), ranks_of("0,1", 2)),
    ],
    ids=["all", "per node", "gres", "per task", "tasks per GPU"],
)
def test_every_rank_sees_the_gpus_that_its_node_has_for_the_job(run, options, ranks):
    run.stand_in(LOOK_AROUND)
    job = run.submit(*options, TRAIN_DATA="/dev/null")
    assert job.state == "COMPLETED", job.text()
    assert (sorted(run.lines("doctor.ranks")), sorted(run.lines("train.ranks"))) == (ranks, ranks)
    flags = run.lines("train.flags")
    assert flags[flags.index("--device") + 1] == "cuda"


@pytest.mark.parametrize("mpi", ["pmix", "none"])
def test_ranks_get_the_environment_of_a_job_that_was_given_little_of_it(run, mpi):
    run.stand_in(LOOK_AROUND)
    variables = {**run.variables, "TRAIN_DATA": "/dev/null"}
    if mpi == "none":
        variables["PATH"] = run.path_without_pmix()
    job = run.submit("--export=" + ",".join(f"{name}={value}" for name, value in variables.items()))
    assert job.state == "COMPLETED", job.text()
    assert sorted(run.lines("train.ranks")) == ranks_of("0,1", 2)


@pytest.mark.usefixtures("built")
def test_nodes_that_lack_what_the_ranks_need_are_named_before_them(run):
    """Each lacks something else: the toolkit of CUDA_VERSION, and torch's libraries."""
    toolkit = run.folder / "toolkits/cuda-12.9"
    toolkit.mkdir(parents=True)
    listed = subprocess.run(["ldd", BUILD / "bin/mpzero"], capture_output=True, text=True, check=True).stdout
    torch = Path(re.search(r"=> (\S+)/libtorch_cpu\.so ", listed)[1]).resolve()
    # Folders that hide what is in them on one node alone.
    hidden = [(run.cluster.node_process(1), toolkit.parent), (run.cluster.node_process(2), torch)]
    try:
        for node, folder in hidden:
            run.cluster.inside(node, ["mount", "-t", "tmpfs", "tmpfs", str(folder)])
        job = run.submit("--nodes=3", CUDA_VERSION="12.9", CUDA_PARENT=str(toolkit.parent))
    finally:
        for node, folder in hidden:
            run.cluster.inside(node, ["umount", str(folder)])
    assert (job.state, job.exit_code, job.restarts) == ("FAILED", 2, 0), job.text()
    lines = job.error.read_text().splitlines()
    assert len(lines) == 1, lines
    assert "node1: CUDA_VERSION=12.9" in lines[0] and "node0" not in lines[0]
    missing = lines[0][lines[0].index("node2: ") :]
    assert "bin/mpzero" in missing and "libtorch_cpu.so" in missing and "mount that folder" in missing
    assert run.steps() == [] and "Checking" not in job.text()


@pytest.mark.usefixtures("built")
def test_gpus_that_slurm_gives_and_no_driver_shows_end_the_job(run):
    run.flags.remove("--device")
    run.flags.remove("cpu")
    refused = run.submit("--nodes=1", MAX_RESTARTS="0")
    assert (refused.state, refused.exit_code) == ("FAILED", 1), refused.text()
    assert "node0 is rejected: " in refused.text() and "2 GPUs" in refused.text()
    # Each start blames its node and has it left out, until there was one too many.
    job = run.submit("--nodes=1", CHECK_NODES="false", MAX_RESTARTS="1")
    assert (job.state, job.exit_code) == ("FAILED", 1), job.text()
    failures = [line for line in job.text().splitlines() if "CUDA" in line and "2 GPUs" in line]
    assert all(any(node in line for line in failures) for node in ("node0", "node1")), job.text()
    assert "Excluded from now on: node0." in job.text()
    assert run.steps() == []


@pytest.mark.usefixtures("built")
def test_ranks_that_srun_did_not_join_say_so_in_one_sentence(cluster):
    command = ["srun", "--mpi=none", "--nodes=2", "--ntasks-per-node=2", f"{BUILD}/bin/mpzero", "train"]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    result = cluster.run(command, check=False, **root)
    assert result.returncode == 2
    lines = [line for line in result.stderr.splitlines() if "srun: error:" not in line]
    assert len(lines) == 1, lines
    assert "srun started 4 tasks" in lines[0] and "srun --mpi=pmix" in lines[0]


@pytest.mark.usefixtures("built")
def test_a_node_that_would_spoil_the_run_is_refused_and_left_out(run):
    node = run.cluster.node_process(1)
    # A checkpoint folder that is full on this node alone is its own fault.
    place = run.folder / "checkpoints"
    place.mkdir()
    run.cluster.inside(node, ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)])
    try:
        job = run.submit(MAX_STEPS="2")
    finally:
        run.cluster.inside(node, ["umount", str(place)])
    assert (job.state, job.restarts) == ("COMPLETED", 1), job.text()
    assert "node1 is rejected: " in job.text()
    assert job.fields["NodeList"] == "node[0,2]"
    assert run.steps() == [1, 2]


@pytest.mark.usefixtures("ready")
def test_a_host_trains_through_srun(run):
    result = run.cluster.run(
        [str(REPOSITORY / "train-singlenode.sh"), "node1", "--", *run.flags],
        **run.variables,
        MAX_STEPS="2",
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert run.steps() == [1, 2]
    assert "zero_to_fp32" in result.stdout
    jobs = run.cluster.run(["scontrol", "show", "job"]).stdout
    record = next(text for text in jobs.split("\n\n") if "JobName=train-singlenode.sh" in text)
    assert " NodeList=node1\n" in record


@pytest.mark.usefixtures("ready")
def test_a_host_run_sees_all_gpus_of_the_node(run):
    run.stand_in(LOOK_AROUND)
    command = [str(REPOSITORY / "train-singlenode.sh"), "node1"]
    result = run.cluster.run(command, **run.variables, TRAIN_DATA="/dev/null", check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert run.lines("train.ranks") == ranks_of("0,1", 2, nodes=("node1",))
    flags = run.lines("train.flags")
    assert flags[flags.index("--device") + 1] == "cuda"


@pytest.mark.usefixtures("ready")
def test_a_host_run_that_is_interrupted_saves(run):
    process = run.cluster.start(
        [str(REPOSITORY / "train-singlenode.sh"), "node1", "--", *run.flags], **run.variables, MAX_STEPS="100000"
    )
    deadline = time.monotonic() + 120
    while len(run.lines("checkpoints/metrics.jsonl")) < 3:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.1)
    script = next(pid for pid, command in run.cluster.processes() if "train-singlenode.sh node1" in command)
    os.kill(script, signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 75, output + errors
    assert run.tag() == f"qwen3_tiny-{run.steps()[-1]}steps"
    assert f"resumes from {run.folder}/checkpoints/{run.tag()}" in output
