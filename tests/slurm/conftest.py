"""One virtual cluster of three nodes for all tests of this folder, and training runs on it.

Each node has two cores and, for Slurm, two GPUs. No driver shows these, so that mpzero itself runs with --device cpu
here; a stand-in for it runs as on a cluster with GPUs.
"""

import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from own_build import own_build
from trainer import BUILD, REPOSITORY
from virtual_slurm import Job, VirtualSlurm, reason_to_skip

# mpzero as far as the job's script can see: every rank runs `train` or `doctor`, functions that a test writes.
# The closing message runs `generate`.
STAND_IN = """
[[ " $* " != *" --dry_run "* ]] || exit 0
command=$1 restart=${SLURM_RESTART_COUNT:-0} rank=${SLURM_PROCID:-} folder=$(dirname "$0")/../..
[[ -z ${OMPI_COMM_WORLD_RANK:-} ]] || rank=$OMPI_COMM_WORLD_RANK
shift
[[ $rank != 0 ]] || printf '%s\\n' "$@" >"$folder/$command.flags"
checkpoints=$folder/checkpoints
save() { [[ $rank != 0 ]] || { mkdir -p "$checkpoints"; echo "qwen3_tiny-$1steps" >"$checkpoints/latest"; }; }
blame() {
  # srun ends all ranks once one has failed, so none may fail before rank 0 has written.
  [[ $rank == 0 ]] || { until [[ -e $folder/blamed.$restart ]]; do sleep 0.1; done; return 0; }
  local start=$checkpoints/failures/$(date -u +%Y%m%dT%H%M%SZ)-01234567
  mkdir -p "$start"
  printf '{"job": "%s", "restart": %s, "ranks": 1, "hosts": ["%s"]}' "$SLURM_JOB_ID" "$restart" "$1" \\
    >"$start/start.json"
  printf '{"why": "device_error", "error": "%s", "time": %s}' "$2" "$(date +%s)" >"$start/rank_0.json"
  : >"$folder/blamed.$restart"
}
until_signalled() {
  for signal in TERM USR1 USR2 HUP INT; do trap "signalled=$signal" "$signal"; done
  echo "$restart $(hostname) $rank" >>"$folder/waiting"
  until [[ -n ${signalled:-} ]]; do sleep 0.1 & wait $!; done
  echo "$rank $signalled" >>"$folder/signals"
}
doctor() { exit 0; }
generate() { echo "a text"; }
"""


class Run:
    """A small training run in a folder of its own; `logs/` is there, as it is in a checkout."""

    def __init__(self, cluster: VirtualSlurm, folder: Path):
        self.cluster = cluster
        self.folder = folder
        (folder / "logs").mkdir()
        self.variables = {
            "MODEL_TYPE": "qwen3_tiny",
            "SEQ_LENGTH": "64",
            "CHECKPOINT_FREQ": "2",
            "CHECKPOINT_DIR": str(folder / "checkpoints"),
            "DATA_DIR": str(folder / "data"),
            "BUILD_DIR": str(own_build(folder / "build")),
        }
        self.flags = ["--logging_freq", "1", "--validation_freq", "0", "--device", "cpu"]

    def replace_program(self, script: str) -> None:
        program = self.folder / "build/bin/mpzero"
        program.unlink()  # a link to the real one
        program.write_text(f"#!/bin/bash\n{script}")
        program.chmod(0o755)

    def stand_in(self, functions: str) -> None:
        self.replace_program(f'{STAND_IN}{functions}\n"$command" "$@"\n')
        self.flags = self.flags[:-2]

    def path_with(self, program: str, first: str) -> str:
        """A PATH whose `program` of Slurm's runs this piece of bash before it does what it should."""
        path = self.cluster.environment()["PATH"]
        wrapper = self.folder / "bin" / program
        wrapper.parent.mkdir()
        wrapper.write_text(f'#!/bin/bash\n{first}\nexec {shutil.which(program, path=path)} "$@"\n')
        wrapper.chmod(0o755)
        return f"{wrapper.parent}:{path}"

    def path_without_pmix(self) -> str:
        return self.path_with("srun", "[[ $1 == --mpi=list ]] && { echo none; exit; }")

    def start(
        self,
        *options: str,
        script: str = "train.sbatch",
        flags: tuple[str, ...] = (),
        within: tuple[str, ...] = (),
        **variables: str,
    ) -> Job:
        arguments = [*options, str(REPOSITORY / script), *self.flags, *flags]
        return self.cluster.submit(arguments, cwd=self.folder, within=within, **{**self.variables, **variables})

    def submit(self, *options: str, **rest) -> Job:
        return self.start(*options, **rest).wait()

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def metrics(self) -> list[dict]:
        lines = self.lines("checkpoints/metrics.jsonl")
        return [json.loads(line) for line in lines if line.endswith("}")]

    def steps(self) -> list[int]:
        return [entry["step"] for entry in self.metrics()]

    def tag(self) -> str:
        return (self.folder / "checkpoints/latest").read_text().strip()


@pytest.fixture(scope="session")
def cluster():
    reason = reason_to_skip()
    if reason:
        pytest.skip(reason)
    with VirtualSlurm(nodes=3, cpus=2) as running:
        yield running


@pytest.fixture(scope="session")
def built():
    if not (BUILD / "bin/mpzero").exists():
        pytest.skip(f"{BUILD} holds no mpzero: run ./train-singlenode.sh --build-only")


@pytest.fixture
def idle(cluster):
    """The cluster with all nodes idle, whatever the test before left."""
    cluster.wait_until_idle()
    yield cluster
    cluster.cancel_all()


@pytest.fixture
def run(idle, tmp_path):
    return Run(idle, tmp_path)
