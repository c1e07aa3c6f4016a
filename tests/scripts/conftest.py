"""A checkout in a temporary folder: the real scripts, and stand-ins for what they start.

The stand-ins record how they were called; the scripts cannot tell them from the real programs, so these tests see
exactly what a user's machine would run, without a compiler, a GPU or a network.
"""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))  # evidence.py
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Where another Open MPI than the distribution's lies, as for tests/slurm.
if folders := os.environ.get("MPZERO_TEST_PATH"):
    SYSTEM_PATH = f"{folders}:{SYSTEM_PATH}"

FAKE_MPZERO = """#!/bin/bash
if [[ " $* " == *" --dry_run"* ]]; then
  printf '%s\\n' "$@" >"$RECORD/dry_run.flags"
  env >"$RECORD/dry_run.env"
  if [[ -n ${FAKE_DRY_RUN:-} ]]; then
    echo "mpzero: error: a sentence before all work" >&2
  else
    echo "Dry run: nothing is trained or written."
    [[ -z ${FAKE_DRY_SAYS:-} ]] || printf '%b\\n' "$FAKE_DRY_SAYS"
  fi
  exit "${FAKE_DRY_RUN:-0}"
fi
if [[ " $* " == *" --describe "* ]]; then
  [[ -z ${FAKE_TOKENIZER:-} ]] || printf '{"model":"step 3","tokenizer":"%s","eos_token_ids":[1]}\\n' "$FAKE_TOKENIZER"
  exit
fi
if [[ $1 == generate ]]; then
  printf '%s\\n' "$*" >>"$RECORD/generate"
  [[ " $* " != *" --${FAKE_GENERATE_FAILS:-none} "* ]] || { echo "mpzero: error: a sentence" >&2; exit 2; }
  text="The prince looked at her."
  [[ " $* " != *" --untrained"* ]] || text=$'The prince looked at %\\n$(touch hit)'
  printf '%s\\n' "$text"
  echo "mpzero: 200 tokens" >&2
  exit
fi
[[ "${OMPI_COMM_WORLD_RANK:-0}" == 0 ]] && { printf '%s\\n' "$@" >"$RECORD/mpzero.flags"; env >"$RECORD/mpzero.env"; }
echo "$$" >>"$RECORD/mpzero.pids"
previous=""
for argument in "$@"; do
  [[ $previous == --checkpoint_dir ]] && checkpoints=$argument
  [[ $argument == --checkpoint_dir=* ]] && checkpoints=${argument#*=}
  [[ $previous == --metrics_file ]] && metrics=$argument
  previous=$argument
done
if [[ "${OMPI_COMM_WORLD_RANK:-0}" == 0 ]]; then
  echo "Batch 10 Loss: 2.12345, Speed: 3.10 samples/sec, lr: 0.000050"
  echo "a warning" >&2
fi
if [[ -n ${FAKE_SAVES:-} ]]; then
  trap 'saves=true' USR1
  echo >"$RECORD/ready.$OMPI_COMM_WORLD_RANK"
  until [[ -n ${saves:-} ]]; do sleep 0.1 & wait $!; done
  [[ $FAKE_SAVES != slowly ]] || sleep 300
  mkdir -p "$checkpoints"
  [[ "${OMPI_COMM_WORLD_RANK:-0}" != 0 ]] || echo qwen3_tiny-2steps >"$checkpoints/latest"
  [[ $FAKE_SAVES != then_waits ]] || sleep 300
  exit 75
fi
[[ -z ${FAKE_SLEEP:-} ]] || exec sleep "$FAKE_SLEEP"
[[ ${FAKE_EXIT:-0} == 0 ]] || { echo "error: a sentence of ours" >&2; exit "$FAKE_EXIT"; }
if [[ "${OMPI_COMM_WORLD_RANK:-0}" == 0 ]]; then
  mkdir -p "$checkpoints/qwen3_tiny-3steps"
  echo qwen3_tiny-3steps >"$checkpoints/latest"
  echo '{"step": 1}' >"$metrics"
fi
exit 0
"""

FAKE_PYTHON = """#!/bin/bash
script=$(basename "$1")
[[ $script != requeue && $script != failure.py ]] || exec INTERPRETER "$@"
printf '%s\\n' "$@" >>"$RECORD/$script.arguments"
[[ $script != "${FAKE_PYTHON_FAILS:-}" ]] || { echo "error: no such data set" >&2; exit 2; }
if [[ $script == report.py ]]; then : >"$4" >"$6"; fi
exit 0
""".replace("INTERPRETER", sys.executable)

RECORDING = """#!/bin/bash
[[ " $* " != *" -n "* ]] || exit 0  # ninja's dry run
printf '%s %s\\n' "$(basename "$0")" "$*" >>"$RECORD/calls"
"""

# What a job's shell has when its run begins.
JOB = """
export SLURM_JOB_ID=7 SLURM_JOB_NODELIST="node[0-1]" SLURM_JOB_PARTITION=all MPZERO_RETRY_SECONDS=0 JOB_SHELL=$$
CHECKPOINT_DIR=$PWD/checkpoints MAX_RESTARTS=3 GRACE_PERIOD=300
# What Slurm says of the job: a test sets these.
export state=RUNNING preempted=None requeue=1 out="(null)" nodelist="(null)" ends_at=N/A tasks=2 tasks_per_node=0
export version=22.05.8 type=partition_prio mode=REQUEUE comment="" reservation="" states="idle idle idle idle"
export wanted="" gres_of="" features_of=""
mkdir -p "$CHECKPOINT_DIR"
called() { printf '%s\\n' "$*" >>"$RECORD/calls"; }
save() { echo "qwen3_tiny-$1steps" >"$CHECKPOINT_DIR/latest"; }
source scripts/requeue.sh
"""

CALLED = """#!/bin/bash
called() { printf '%s\\n' "$*" >>"$RECORD/calls"; }
"""

# Slurm's commands: each call is recorded, and answered from the variables of JOB.
SLURM = {
    "scontrol": """called scontrol "$@"
case "$1 $2" in
  "show job")
    echo "JobId=$SLURM_JOB_ID JobState=$state Requeue=$requeue"
    # One more as soon as the job has been requeued.
    echo "   Restarts=$((${SLURM_RESTART_COUNT:-0} + $(wc -l 2>/dev/null <"$RECORD/requeues" || echo 0)))"
    echo "   NumNodes=1 NumTasks=$tasks"  # one node has ended its part
    [[ -z $wanted ]] || echo "   $wanted"
    echo "   NtasksPerN:B:S:C=$tasks_per_node:0:*:*"
    echo "   ReqNodeList=$nodelist ExcNodeList=$out PreemptTime=$preempted${reservation:+ Reservation=$reservation}"
    [[ -z $comment ]] || echo "   Comment=$comment " ;;
  requeue*) echo "$*" >>"$RECORD/requeues" ;;
  "show node")
    nodes=${3/"node[0-1]"/node0,node1}
    for node in ${nodes//,/ }; do echo "NodeName=$node X=1 NodeHostName=ip-10-0-0-${node#node} X=1"; done ;;
  "show config") echo "SLURM_VERSION = $version"; echo "PreemptType = preempt/$type" ;;
  "show partition") echo "PartitionName=all PreemptMode=$mode State=UP" ;;
  "show reservation") echo "ReservationName=$3 Nodes=node[0-1] State=ACTIVE" ;;
  "show hostnames") if [[ $3 == *"["* ]]; then printf 'node0\\nnode1\\n'; else tr , '\\n' <<<"$3"; fi ;;
esac
""",
    "squeue": """called squeue "$@"; echo "$ends_at"\n""",
    "sinfo": """called sinfo "$@"
read -ra gres <<<"$gres_of"
read -ra features <<<"$features_of"
node=0
for state in $states; do
  echo "node$node $state ${gres[node]:-(null)} ${features[node]:-(null)}"
  node=$((node + 1))
done
""",
}

# train.sbatch as a job of one node. Its scontrol is each test's own.
ONE_NODE = {
    "srun": """#!/bin/bash
[[ $1 != --mpi=list ]] || { echo pmix; exit; }
while [[ $1 == -* ]]; do shift; done
exec "$@"
""",
    "squeue": "#!/bin/bash\necho N/A\n",
    "sinfo": "#!/bin/bash\n",
}
# What such a job asks Slurm for. Slurm runs a copy of the script, and knows where it is with the job's arguments.
SCONTROL = """#!/bin/bash
case "$1 $2" in
  "show job") printf '   JobState=RUNNING NumTasks=1\\n   Command=%s\\n' "$CHECKOUT/sbatch/train.sbatch --seed 3" ;;
  "requeue Incomplete") echo "requeue $3" >>"$RECORD/calls" ;;
esac
"""
JOB_OF_ONE_NODE = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "node0", "SLURM_JOB_PARTITION": "all",
    "SLURM_JOB_CPUS_PER_NODE": "2", "MPZERO_RETRY_SECONDS": "0", "CHECK_NODES": "false",
}  # fmt: skip


HDF5 = b"\x89HDF\r\n\x1a\n"  # with which a token file begins
CHECKED = [
    f"app/{name}.py"
    for name in (
        "check",
        "failure",
        "follow",
        "prepare/__init__",
        "prepare/arguments",
        "prepare/row_kinds",
    )
]


class Checkout:
    def __init__(self, root: Path):
        self.root = root / "checkout"
        self.record = root / "record"
        self.bin = root / "bin"
        self.home = root / "home"
        for folder in (self.root, self.record, self.bin, self.home):
            folder.mkdir()
        for folder in ("scripts", "singlenode", "sbatch", "container", "app/run_failure", "app/run_files"):
            shutil.copytree(REPOSITORY / folder, self.root / folder, symlinks=True)
        for file in ("uv.lock", *CHECKED):
            (self.root / file).parent.mkdir(exist_ok=True)
            shutil.copy(REPOSITORY / file, self.root / file)
        shutil.copytree(REPOSITORY / "configs/models", self.root / "configs/models")
        (self.root / "train-singlenode.sh").symlink_to("singlenode/train-singlenode.sh")
        for path in ("logs", "assets/tiny_corpus"):
            (self.root / path).mkdir(parents=True)
        for name in ("ds_config.json", "ds_config_tiny.json"):
            (self.root / "configs" / name).write_text("{}")
        self.program(self.root / "build/bin/mpzero", FAKE_MPZERO)
        self.program(self.root / ".venv/bin/python", FAKE_PYTHON)
        for name in ("cmake", "ninja"):
            self.program(self.root / ".venv/bin" / name, RECORDING)
        (self.root / "build/build.ninja").write_text("")
        lock = hashlib.sha256((self.root / "uv.lock").read_bytes()).hexdigest()
        self.package = self.root / ".venv/lib/python3.11/site-packages/nvidia_cuda_nvcc-13.0.88.dist-info"
        self.package.mkdir(parents=True)
        installed = hashlib.sha256(f"{self.package.name}\n".encode()).hexdigest()
        (self.root / ".venv/mpzero-synced").write_text(f"{lock} cuda\n{installed}\n")
        (self.root / "build/mpzero-configured").write_text(f"{lock} off\n")
        for folder in (self.root, self.home):
            (folder / "mine.h5").write_bytes(HDF5)
        self.program(self.bin / "nvidia-smi", "#!/bin/bash\nexit 9\n")

    def program(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)

    def environment(self, variables: dict[str, str]) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TMPDIR") if name in os.environ}
        return {
            "PATH": f"{self.bin}:{SYSTEM_PATH}",
            "HOME": str(self.home),
            "RECORD": str(self.record),
            **kept,
            **variables,
        }

    def submit(self, *flags: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess:
        """Runs train.sbatch as a job of one node that was submitted in the folder `cwd`."""
        self.install_slurm()
        return self._run(["bash", str(self.root / "sbatch/train.sbatch"), *flags], cwd, self.job_environment(variables))

    def install_slurm(self, scontrol: str = SCONTROL) -> None:
        """Slurm's commands of a job of one node, with this scontrol; it finds the checkout in $CHECKOUT."""
        for name, text in {**ONE_NODE, "scontrol": scontrol}.items():
            self.program(self.bin / name, text)

    def job_environment(self, variables: dict[str, str]) -> dict[str, str]:
        """What train.sbatch finds in a job of one node."""
        return self.environment({**JOB_OF_ONE_NODE, "CHECKOUT": str(self.root), **variables})

    def run(self, *arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess:
        return self._run([str(self.root / "train-singlenode.sh"), *arguments], cwd, self.environment(variables))

    def _run(self, words: list[str], cwd: Path | None, environment: dict[str, str]) -> subprocess.CompletedProcess:
        return subprocess.run(
            words,
            cwd=cwd or self.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def shell(self, command: str, **variables: str) -> subprocess.CompletedProcess:
        """Runs a piece of bash with all functions of scripts/ at hand."""
        parts = (
            "common variables paths install build environment training dry_run machine network slurm allocation stops "
            "launch follow"
        )
        prelude = (
            f"set -euo pipefail; for part in {parts}; do source scripts/$part.sh; done; end_with() {{ exit $1; }}; "
        )
        return subprocess.run(
            ["bash", "-c", prelude + command],
            cwd=self.root,
            env=self.environment({"MPZERO_ROOT": str(self.root), "MPZERO_USER_FOLDER": str(self.root), **variables}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            # A bash that ends by SIGHUP hands it on to its process group, which must not be that of the tests.
            start_new_session=True,
        )

    def flags(self) -> dict[str, str]:
        words = (self.record / "mpzero.flags").read_text().splitlines()
        assert words[0] == "train"
        names, values = words[1::2], words[2::2]
        assert len(set(names)) == len(names), f"a flag reached mpzero twice: {words}"
        return {name.removeprefix("--"): value for name, value in zip(names, values, strict=True)}

    def rank_environment(self) -> dict[str, str]:
        lines = (self.record / "mpzero.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def calls(self) -> str:
        path = self.record / "calls"
        return path.read_text() if path.exists() else ""

    def prepared(self) -> list[str]:
        path = self.record / "prepare_data.py.arguments"
        return path.read_text().splitlines() if path.exists() else []


class Job:
    """A checkout whose scripts run as a job of a Slurm that answers by stand-ins."""

    def __init__(self, checkout: Checkout):
        self.checkout = checkout
        self.checkpoints = checkout.root / "checkpoints"
        self.checkpoints.mkdir()
        self.slurm = checkout.root.parent / "slurm"
        checkout.program(checkout.root / ".venv/bin/python", f'#!/bin/bash\nexec {sys.executable} "$@"\n')
        for name, text in SLURM.items():
            self.provide(name, text)

    def provide(self, name: str, text: str) -> None:
        """Adds a command of Slurm's."""
        self.checkout.program(self.slurm / name, CALLED + text)
        self.replace(name, "")

    def replace(self, name: str, first: str) -> None:
        """Has a command of Slurm's run this piece of bash before it answers; where the piece exits, instead."""
        self.checkout.program(self.checkout.bin / name, f'{CALLED}{first}\nexec "{self.slurm / name}" "$@"\n')

    def __call__(self, command: str, **variables: str) -> subprocess.CompletedProcess:
        return self.checkout.shell(JOB + command, **variables)

    def requeued(self) -> bool:
        return "scontrol requeue Incomplete 7\n" in self.checkout.calls()

    def state(self) -> dict[str, object]:
        """What the job has kept for its next start."""
        return json.loads(self.record().read_text())

    def record(self, job: str = "") -> Path:
        """The file of the latest start, or of this job."""
        if job:
            return self.checkpoints / f"restarts.{job}.txt"
        return max(self.checkpoints.glob("restarts.*.txt"), key=lambda path: path.stat().st_mtime_ns)


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


@pytest.fixture
def job(checkout):
    return Job(checkout)


@pytest.fixture
def efa(tmp_path):
    """A machine with an EFA device under its new name: only the driver tells."""
    device = tmp_path / "class/rdmap16s27"
    device.mkdir(parents=True)
    (tmp_path / "drivers/efa").mkdir(parents=True)
    (device / "device").mkdir()
    (device / "device/driver").symlink_to(tmp_path / "drivers/efa")
    return tmp_path
