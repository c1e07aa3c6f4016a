"""What reaches the ranks of a job from the options and the environment in which it was submitted: a table.

The steps of each job have the job's nodes, ranks, memory and GPUs, whatever srun would read from the environment.
"""

import pytest
from conftest import BUILD

pytestmark = pytest.mark.slurm

# Each rank leaves its number, its node and its GPUs; rank 0 also the memory of its step, where srun has started it, and
# what of the environment srun would take for an option.
FACTS = """
facts() {
  echo "$rank $(hostname) ${CUDA_VISIBLE_DEVICES-none}" >>"$folder/$command.ranks"
  [[ $rank == 0 && -z ${OMPI_COMM_WORLD_RANK:-} ]] || return 0
  step=$(scontrol show step "$SLURM_JOB_ID.$SLURM_STEP_ID")
  [[ ! $step =~ mem=([0-9]+)M ]] || echo "${BASH_REMATCH[1]}" >>"$folder/$command.memory"
}
doctor() { facts; }
train() { facts; }
"""

# srun's input variables, which a shell of srun or a user's profile may export, with values that spoil a step.
OPTIONS = {
    "SLURM_DISTRIBUTION": "cyclic", "SLURM_MEM_PER_CPU": "1", "SLURM_MEM_PER_NODE": "1", "SLURM_HINT": "nomultithread",
    "SLURM_EXACT": "1", "SLURM_NTASKS": "1", "SLURM_NPROCS": "1", "SLURM_NTASKS_PER_NODE": "1",
    "SLURM_TIMELIMIT": "nonsense", "SLURM_STDOUTMODE": "none", "SLURM_LABELIO": "1", "SLURM_MPI_TYPE": "none",
    "SLURM_STEP_GRES": "gpu:9", "SLURM_GPUS_PER_TASK": "1", "SLURM_THREADS": "1",
    "SLURM_REMOTE_CWD": "/nowhere", "SLURM_EXPORT_ENV": "NONE", "SRUN_EXPORT_ENV": "NONE", "SRUN_CPUS_PER_TASK": "99",
    "SLURM_CPU_BIND": "nonsense", "SLURM_MEM_BIND": "nonsense", "SLURM_THREADS_PER_CORE": "9", "SLURM_IMMEDIATE": "1",
    "SLURM_NETWORK": "nonsense", "SLURM_RESERVATION": "nonsense", "SLURM_TASK_PROLOG": "/nowhere", "SLURM_WAIT": "1",
    "SQUEUE_STATES": "PENDING", "SQUEUE_FORMAT": "nonsense", "SINFO_FORMAT": "nonsense", "SLURM_HET_SIZE": "2",
    "PMIX_RANK": "7", "PMI_RANK": "7", "PMI_FD": "7", "SLURM_STEP_ID": "3", "SLURM_PROCID": "5",
}  # fmt: skip

PER_CPU = "--mem-per-cpu=100M"  # 2 cores on each of 2 nodes
KINDS = {
    "plain": ((), (), {}, None),
    "memory per core": ((), (PER_CPU,), {}, 400),
    "memory per node": ((), ("--mem=300M",), {}, 600),
    "salloc": (("salloc", "--quiet", "--nodes=1", "--mem=100M"), (), {}, None),
    "salloc, memory per core": (("salloc", "--quiet", "--nodes=1", PER_CPU), (), {}, None),
    "salloc, both": (("salloc", "--quiet", "--nodes=1", "--mem=100M"), (PER_CPU,), {}, 400),
    "srun": (("srun", "--mpi=pmix", "--nodes=1", "--mem=100M", "--gpus-per-node=1"), (), {}, None),
    "exported": ((), (), OPTIONS, None),
}


def memory_of_nodes(run) -> int:
    """MB of two of them, which are alike."""
    return 2 * int(run.cluster.ask(["sinfo", "--noheader", "--format=%m"]).split()[0])


@pytest.mark.parametrize(("within", "options", "variables", "memory"), KINDS.values(), ids=KINDS)
def test_steps_have_what_the_job_has(run, within, options, variables, memory):
    run.stand_in(FACTS)
    job = run.start(*options, within=within, TRAIN_DATA="/dev/null", **variables).wait()
    assert (job.state, job.restarts) == ("COMPLETED", 0), job.text()
    nodes = run.cluster.ask(["scontrol", "show", "hostnames", job.fields["NodeList"]]).split()
    for command in ("doctor", "train"):
        assert sorted(run.lines(f"{command}.ranks")) == [f"{rank} {nodes[rank // 2]} 0,1" for rank in range(4)]
        assert run.lines(f"{command}.memory") == [str(memory or memory_of_nodes(run))]
    # Less than a tenth of the nodes' memory is worth a line.
    assert (memory is not None) == ("--mem=0" in job.text())


def test_the_daemons_of_mpirun_have_it_too(run):
    run.stand_in(FACTS)
    path = run.path_without_pmix()
    job = run.submit(PER_CPU, TRAIN_DATA="/dev/null", **{**OPTIONS, "PATH": path})
    assert (job.state, job.restarts) == ("COMPLETED", 0), job.text()
    assert sorted(run.lines("train.ranks")) == [f"{rank} node{rank // 2} 0,1" for rank in range(4)]


def test_a_heterogeneous_job_is_refused(run):
    run.stand_in(FACTS)
    job = run.submit("--nodes=1", ":", "--nodes=1", TRAIN_DATA="/dev/null")
    assert (job.state, job.exit_code, job.restarts) == ("FAILED", 2, 0), job.text()
    assert job.text().count("mpzero: error:") == 1 and "heterogeneous" in job.text()
    assert run.lines("doctor.ranks") == []


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_an_mpi_that_cannot_connect_is_a_mistake_in_the_job(run, launcher):
    # The doctor's ranks are the first to start, or the run's.
    variables = {"CHECK_NODES": "false", "PATH": run.path_without_pmix()} if launcher == "mpirun" else {}
    job = run.submit(OMPI_MCA_btl="self", MAX_STEPS="1", **variables)
    assert (job.state, job.exit_code, job.restarts) == ("FAILED", 2, 0), job.text()
    errors = [line for line in job.text().splitlines() if line.startswith("mpzero: error: ")]
    assert len(errors) == 1 and "OMPI_MCA_btl" in errors[0], job.text()
    assert run.steps() == [] and not list(run.folder.glob("checkpoints/mpi_start*"))


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("mpi", ["none", "pmix"])
def test_a_shell_of_srun_starts_mpzero_more_than_once(cluster, mpi):
    # As one process, which is no task of the step.
    program = f"{BUILD}/bin/mpzero doctor --quick --device cpu"
    shell = f"for i in 1 2; do {program} >/dev/null && echo well; done; echo end"
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    result = cluster.run(["srun", "--nodes=1", f"--mpi={mpi}", "bash", "-c", shell], check=False, **root)
    assert result.stdout.split() == ["well", "well", "end"], result.stderr
