"""scripts/allocation.sh and what scripts/launch.sh makes of it, on records as Slurm 22.05 and 24.05 print them."""

import gzip
import re
import subprocess
from pathlib import Path

import pytest

RECORD = """JobId=7 JobName=qwen3_0_6b-mpzero
   NumNodes=2 NumCPUs=384 NumTasks={tasks} CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   ReqTRES=cpu=384,mem=1,node=2,billing=384,gres/gpu=16
   Socks/Node=* NtasksPerN:B:S:C={tasks_per_node}:0:*:* CoreSpec=*
   JOB_GRES=gpu:16
{nodes}
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
   Command=/fsx/mpzero/train.sbatch
   {asked}
"""
ALIKE = "     Nodes=p5-[1-2] CPU_IDs=0-191 Mem=0 GRES=gpu:h100:8(IDX:0-7)"
MIXED = """     Nodes=p5-1 CPU_IDs=0-191 Mem=0 GRES=gpu:h100:8(IDX:0-7)
     Nodes=g6e-1 CPU_IDs=0-47 Mem=0 GRES=gpu:l40s:4(IDX:0-1,3,5)"""
PARTLY = """     Nodes=p5-1 CPU_IDs=0-191 Mem=0 GRES=gpu:h100:8(IDX:0-7)
     Nodes=c5-1 CPU_IDs=0-47 Mem=0 GRES="""
NONE = "     Nodes=p5-[1-2] CPU_IDs=0 Mem=0 GRES="


def record(nodes: str = ALIKE, asked: str = "", tasks: int = 2, tasks_per_node: int = 0) -> str:
    return RECORD.format(nodes=nodes, asked=asked, tasks=tasks, tasks_per_node=tasks_per_node)


def slurm_gpus(checkout, text: str, installed: str = "gpu:h100:8", flags: str = "") -> subprocess.CompletedProcess:
    checkout.program(checkout.bin / "sinfo", f"#!/bin/bash\necho '{installed}'\n")
    command = f'MPZERO_EXTRA_FLAGS=({flags}); slurm_gpus "$JOB" 2'
    return checkout.shell(command, JOB=text, SLURM_JOB_NODELIST="p5-[1-2]")


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [
        ("", 0), ("(null)", 0), ("gpu:2", 2), ("gpu", 1), ("gres:gpu", 1), ("gpu:h100:8(S:0-1)", 8), ("gpu:3090:4", 4),
        ("gpu:a100:3(IDX:0-1,3),gpu:v100:1(IDX:4),nvme:2", 4), ("gres:gpu:4", 4), ("gres/gpu:h100:4", 4),
        ("cpu=8,gres/gpu=1", 1), ("cpu:8,gres/gpu:2", 2), ("gpumem:80", 0), ("shard:16,mps:400", 0),
    ],
)  # fmt: skip
def test_gpus_in_a_list_of_resources(checkout, resources, gpus):
    assert checkout.shell(f"gpus_in '{resources}'").stdout == f"{gpus}\n"


@pytest.mark.parametrize(("text", "least"), [("192(x2)", "192"), ("192,48(x3)", "48"), ("8,16(x2),4", "4"), ("2", "2")])
def test_the_node_with_the_fewest_cores_counts(checkout, text, least):
    assert checkout.shell(f"least_of '{text}'").stdout == f"{least}\n"


@pytest.mark.parametrize(("counted", "cores"), [("", "8"), ("2", "2"), ("16", "8"), ("some", "8")])
def test_a_job_uses_the_cores_that_slurm_counts_for_it(checkout, counted, cores):
    checkout.program(checkout.bin / "nproc", "#!/bin/bash\necho 8\n")
    assert checkout.shell("cores_here", SLURM_CPUS_ON_NODE=counted).stdout.strip() == cores


ASKED = [
    ({}, 8),
    ({"asked": "TresPerNode=gres:gpu:4"}, 4),
    ({"asked": "TresPerNode=gres/gpu:h100:4"}, 4),
    ({"asked": "TresPerNode=gres/nvme:1"}, 8),
    ({"asked": "TresPerJob=gres:gpu:8"}, 4),
    ({"asked": "TresPerTask=gres:gpu:1", "tasks": 8}, 4),
    ({"asked": "TresPerTask=cpu=12,gres/gpu=2", "tasks": 4}, 4),
    ({"asked": "TresPerTask=gres:gpu:4", "tasks_per_node": 1}, 4),
    ({"asked": "TresPerTask=gres:gpu:1"}, 8),
    ({"asked": "TresPerTask=cpu=12", "tasks": 8}, 8),
]


@pytest.mark.parametrize(("options", "gpus"), ASKED)
def test_what_the_user_asks_for_counts_and_not_the_whole_node(checkout, options, gpus):
    result = slurm_gpus(checkout, record(**options))
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{gpus}\n", "")


@pytest.mark.parametrize("installed", ["(null)", "nvme:2"])
def test_a_slurm_that_knows_no_gpus_is_asked_for_none(checkout, installed):
    result = slurm_gpus(checkout, record(nodes=NONE), installed=installed)
    assert (result.returncode, result.stdout, result.stderr) == (0, "0\n", "")


def test_the_cpu_takes_no_gpus(checkout):
    for flags in ("--device cpu", "--device=cpu"):
        result = slurm_gpus(checkout, record(nodes=NONE), flags=flags)
        assert (result.returncode, result.stdout) == (0, "0\n"), result.stderr
    assert slurm_gpus(checkout, record(), flags="--device cuda").stdout == "8\n"


def test_the_node_with_the_fewest_gpus_counts_and_the_others_are_said_to_idle(checkout):
    result = slurm_gpus(checkout, record(nodes=MIXED))
    assert (result.returncode, result.stdout) == (0, "4\n")
    assert "8 GPUs on p5-1 but 4 on g6e-1" in result.stderr and result.stderr.count("\n") == 1
    asked = slurm_gpus(checkout, record(nodes=MIXED, asked="TresPerNode=gres/gpu:2"))
    assert (asked.stdout, asked.stderr) == ("2\n", "")


MISTAKES = [
    (record(nodes=NONE), ["allocated no GPUs to this job", "p5-[1-2], gpu:h100:8", "--gpus-per-node", "--device cpu"]),
    (record(nodes=PARTLY), ["8 GPUs on p5-1", "no GPUs on c5-1", "--gpus-per-node"]),
    (record(asked="TresPerJob=gres/gpu:3"), ["3 GPUs", "2 nodes", "--gpus-per-node"]),
    (record(asked="TresPerTask=gres:gpu:1", tasks=5), ["5 GPUs", "2 nodes", "--gpus-per-node"]),
]


@pytest.mark.parametrize(("text", "words"), MISTAKES, ids=["none", "some nodes", "total", "tasks"])
def test_gpus_that_do_not_fit_get_one_sentence_and_status_2(checkout, text, words):
    result = slurm_gpus(checkout, text)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert all(word in result.stderr for word in words), result.stderr


def launchers(checkout, gpus: int, mpi: str) -> dict[str, list[str]]:
    checkout.program(checkout.bin / "srun", f"#!/bin/bash\necho {mpi}\n")
    checkout.program(checkout.bin / "scontrol", "#!/bin/bash\necho 'TaskPlugin = task/none'\n")
    result = checkout.shell(
        f'choose_launcher 2 4 96 {gpus} >&2; echo "${{MPZERO_SRUN[*]}}"; echo "${{MPZERO_MPIRUN[*]}}"'
    )
    assert result.returncode == 0, result.stderr
    srun, mpirun = result.stdout.splitlines()
    return {"srun": srun.split(), "mpirun": mpirun.split()}


def test_a_step_asks_for_the_gpus_that_slurm_manages(checkout):
    assert "--gpus-per-node=4" in launchers(checkout, 4, "pmix")["srun"]
    assert not [word for word in launchers(checkout, 0, "pmix")["srun"] if "gpu" in word]


def test_the_daemons_of_mpirun_ask_for_them_through_the_environment(checkout):
    words = launchers(checkout, 4, "none")["mpirun"]
    assert words[0] == "env" and "SLURM_GPUS_PER_NODE=4" in words[: words.index("mpirun")]
    assert not [word for word in launchers(checkout, 0, "none")["mpirun"] if "GPU" in word]


PREFIXES = ("SLURM_", "SRUN_", "SQUEUE_", "SINFO_", "PMI")


def test_options_of_the_job_do_not_reach_the_steps(checkout):
    options = {
        "SLURM_GPUS": "8", "SLURM_GPUS_PER_TASK": "1", "SLURM_NTASKS_PER_GPU": "1", "SLURM_GPU_BIND": "single:1",
        "SLURM_CPUS_PER_GPU": "12", "SLURM_TRES_PER_TASK": "gres/gpu:1", "SLURM_EXPORT_ENV": "MAX_STEPS",
        "SLURM_OF_A_LATER_VERSION": "1", "SRUN_EXPORT_ENV": "NONE", "SQUEUE_STATES": "PENDING", "SINFO_FORMAT": "%x",
        "PMIX_RANK": "1", "PMI_FD": "9",
    }  # fmt: skip
    result = checkout.shell("build_slurm_environment; env", **options, SLURM_JOB_ID="7", SLURM_RESTART_COUNT="1")
    names = dict(line.split("=", 1) for line in result.stdout.splitlines() if line.startswith(PREFIXES))
    assert names == {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1", "SLURM_EXPORT_ENV": "ALL"}


def test_no_variable_that_srun_reads_as_an_option_is_left(checkout):
    manual = Path("/usr/share/man/man1/srun.1.gz")
    if not manual.exists():
        pytest.skip("srun has no manual page here")
    text = gzip.decompress(manual.read_bytes()).decode().replace("\\fB", "").replace("\\fR", "").replace("\\-", "-")
    text = text[text.index("INPUT ENVIRONMENT VARIABLES") : text.index("OUTPUT ENVIRONMENT VARIABLES")]
    names = set(re.findall(r"^((?:SLURM|SRUN)_[A-Z_0-9]+)", text, re.MULTILINE))
    assert {"SLURM_MEM_PER_NODE", "SLURM_DISTRIBUTION", "SRUN_EXPORT_ENV", "SLURM_HINT"} < names
    # Where Slurm is, and of which job a step is. The name of a job is none of its steps' own.
    kept = {"SLURM_CONF", "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_NUM_NODES"}
    result = checkout.shell("build_slurm_environment; compgen -e", **dict.fromkeys(names, "1"))
    left = {name for name in result.stdout.split() if name.startswith(PREFIXES)}
    assert left == kept | {"SLURM_EXPORT_ENV"}, result.stderr


def test_what_a_job_needs_of_slurms_environment_stays(checkout):
    names = (
        "JOB_ID JOBID JOB_NODELIST NODELIST JOB_CPUS_PER_NODE TASKS_PER_NODE CPUS_ON_NODE RESTART_COUNT ARRAY_JOB_ID "
        "ARRAY_TASK_ID SUBMIT_DIR JOB_PARTITION CONF JWT WORKING_CLUSTER PMIX_FENCE NODE_ALIASES JOB_END_TIME SPANK_X"
    )
    needed = {f"SLURM_{name}": "1" for name in names.split()}
    needed |= {"SLURMD_NODENAME": "node0", "SBATCH_SIGNAL": "B:USR1@9", "PMIX_MCA_gds": "hash"}
    result = checkout.shell("build_slurm_environment; compgen -e", **needed)
    assert set(needed) <= set(result.stdout.split()), result.stderr


@pytest.mark.parametrize(
    ("memory", "words"), [("Mem=1000", ["1000 of 8000 MB", "--mem=0"]), ("Mem=7900", []), ("Mem=0", [])]
)
def test_a_job_with_little_of_its_nodes_memory_says_so(checkout, memory, words):
    text = f"JobId=7\n     Nodes=node[0-1] CPU_IDs=0-1 {memory} GRES=gpu:2(IDX:0-1)\n     Nodes=n2 CPU_IDs=0 {memory} "
    checkout.program(checkout.bin / "sinfo", "#!/bin/bash\nprintf '8000\\n9000\\n'\n")
    result = checkout.shell('report_memory "$TEXT"', TEXT=text, SLURM_JOB_NODELIST="node[0-2]")
    assert (result.returncode, bool(result.stdout)) == (0, bool(words)), result.stderr
    assert all(word in result.stdout for word in words)
