"""A Slurm cluster of several nodes on one machine, which disappears with the process that started it."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

INIT = Path(__file__).with_name("cluster_init.sh")
PROGRAMS = {
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "sbatch": "slurm-wlm",
    "munged": "munge",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mpirun": "openmpi-bin",
}
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Where another Slurm or Open MPI than the distribution's lies, such as "/opt/slurm/sbin:/opt/slurm/bin".
if folders := os.environ.get("MPZERO_TEST_PATH"):
    SYSTEM_PATH = f"{folders}:{SYSTEM_PATH}"
# Whether Slurm confines steps to their cores and GPUs: needs the controllers of control groups, version 1, for itself.
CGROUPS = "true" if os.environ.get("MPZERO_TEST_CGROUPS") else "false"
# Scripts decide by these; the cluster must look the same for every user who runs the tests.
DROPPED = (
    "SLURM", "SBATCH", "OMPI_", "PMIX", "CUDA_", "NPROC", "MAX_", "DATASET", "CHECK", "MPZERO", "OMP_NUM", "GRACE",
    "STUCK",
)  # fmt: skip


class SlurmError(RuntimeError):
    pass


def reason_to_skip() -> str | None:
    """Why no cluster can be started here, or None."""
    if os.geteuid() != 0:
        return "a virtual Slurm cluster needs root (namespaces, munge)"
    missing = {package for program, package in PROGRAMS.items() if not shutil.which(program, path=SYSTEM_PATH)}
    if missing:
        return f"these packages are missing: {', '.join(sorted(missing))}"
    attempt = subprocess.run(
        ["unshare", "--net", "--pid", "--uts", "--mount", "--fork", "--mount-proc", "true"],
        capture_output=True,
        text=True,
    )
    if attempt.returncode != 0:
        return f"namespaces are not allowed here: {attempt.stderr.strip()}"
    return None


class VirtualSlurm:
    """`with VirtualSlurm(nodes=2) as cluster: cluster.run(["sinfo"])`; SlurmError with logs where it does not start.

    Everything runs in one process-id namespace whose first process waits for this one: it ends when `close` is called
    and also when this process is killed, and the kernel then ends the rest.
    """

    def __init__(self, nodes: int = 2, cpus: int = 2, start_seconds: float = 60):
        # Not /tmp: jobs and the controller must agree on the folder, and sockets need a short path.
        self.folder = Path(tempfile.mkdtemp(prefix="mpzero-slurm-", dir="/var/tmp"))
        self.folder.chmod(0o755)
        self.nodes = nodes
        self._init_pid = 0
        self._process = None
        try:
            self._start(cpus, start_seconds)
        except BaseException:
            self.close()
            raise

    def _start(self, cpus: int, start_seconds: float) -> None:
        namespaces = [
            "--net",
            "--pid",
            "--uts",
            "--mount",
            "--propagation",
            "private",
            "--mount-proc",
            "--fork",
            "--kill-child",
        ]
        self._process = subprocess.Popen(
            ["unshare", *namespaces, str(INIT), str(self.folder), str(self.nodes), str(cpus), CGROUPS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(self.folder / "init.log", "w"),  # noqa: SIM115 (the child's, for as long as it lives)
            text=True,
            env=self.environment(),
            start_new_session=True,
        )
        line = self._process.stdout.readline()
        if line.strip() != "ready":
            raise SlurmError(f"the virtual cluster did not start:\n{self.logs()}")
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        self._init_pid = int(children[0])
        self.wait_until_idle(start_seconds)

    def wait_until_idle(self, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while True:
            answer = self.run(["sinfo", "--noheader", "--partition=all", "--Node", "--format=%T"], check=False)
            if answer.stdout.split() == ["idle"] * self.nodes:
                return
            if time.monotonic() > deadline:
                raise SlurmError(f"the nodes are not idle: {answer.stdout}{answer.stderr}\n{self.logs()}")
            time.sleep(0.2)

    def environment(self, **variables: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(DROPPED)}
        return {**kept, "PATH": SYSTEM_PATH, "SLURM_CONF": str(self.folder / "slurm.conf"), **variables}

    def _entered(self, pid: int, command: list[str], cwd: Path | None = None) -> list[str]:
        enter = ["nsenter", "--target", str(pid), "--net", "--pid", "--uts", "--mount"]
        # nsenter changes the root of relative paths: name the folder again inside.
        return [*enter, f"--wd={cwd or '/'}", *command]

    def inside(self, pid: int, command: list[str]) -> None:
        """Runs a command where the process `pid` lives: on its node."""
        subprocess.run(self._entered(pid, command), env=self.environment(), check=True, capture_output=True, timeout=60)

    def start(self, command: list[str], **variables: str) -> subprocess.Popen:
        """Starts a command on the controller."""
        return subprocess.Popen(
            self._entered(self._init_pid, command),
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(
        self, command: list[str], cwd: Path | None = None, check: bool = True, timeout: float = 300, **variables: str
    ):
        """Runs a command on the controller and returns its subprocess.CompletedProcess."""
        # On a busy machine munge gives up on a command that has not sent its request within two seconds (SIGPIPE).
        for _ in range(3):
            result = self._run_once(command, cwd, timeout, variables)
            if result.returncode != -signal.SIGPIPE:
                break
        if check and result.returncode != 0:
            raise SlurmError(
                f"{command} ended with {result.returncode}:\n{result.stdout}{result.stderr}\n{self.logs()}"
            )
        return result

    def _run_once(self, command: list[str], cwd: Path | None, timeout: float, variables: dict[str, str]):
        return subprocess.run(
            self._entered(self._init_pid, command, cwd),
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def ask(self, command: list[str], attempts: int = 5) -> str:
        """What a command that changes nothing prints; once more where a busy controller did not answer in time."""
        for _ in range(attempts - 1):
            result = self.run(command, check=False)
            if result.returncode == 0:
                return result.stdout
            if "timed out" not in result.stderr:
                break
        return self.run(command).stdout

    def stop_controller(self) -> None:
        pid = self.folder / "slurmctld.pid"
        self.run(
            ["bash", "-c", f"kill $(<{pid}); while kill -0 $(<{pid}); do sleep 0.1; done 2>/dev/null; rm -f {pid}"]
        )

    def start_controller(self) -> None:
        self.run(["slurmctld", "-f", str(self.folder / "slurm.conf")])

    def submit(self, arguments: list[str], cwd: Path, within: tuple[str, ...] = (), **variables: str) -> "Job":
        """sbatch, run by the command `within` where one is given; returns at once."""
        command = [*within, "sbatch", "--parsable", *arguments]
        return Job(self, int(self.run(command, cwd=cwd, **variables).stdout))

    def cancel_all(self) -> None:
        """Ends every job, so that a test that fails leaves its nodes to the next."""
        self.run(["scancel", "--user=root"], check=False)

    def processes(self, node: int | None = None) -> list[tuple[int, str]]:
        """Process id, as this process sees it, and command line of what runs in the cluster, or on one of its nodes."""
        found = []
        space = os.stat(f"/proc/{self._init_pid}/ns/pid").st_ino
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if os.stat(folder / "ns/pid").st_ino != space:
                    continue
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                found.append((int(folder.name), os.stat(folder / "ns/net").st_ino, command))
            except OSError:
                continue  # it has ended meanwhile
        if node is not None:
            words = f"slurmd -D -f {self.folder}/slurm.conf -N node{node}"
            network = next(space for _, space, command in found if command == words)
            found = [entry for entry in found if entry[1] == network]
        return [(pid, command) for pid, _, command in found]

    def node_process(self, node: int) -> int:
        """The process id of the node's slurmd."""
        words = f"slurmd -D -f {self.folder}/slurm.conf -N node{node}"
        return next(pid for pid, command in self.processes() if command == words)

    def kill_node(self, node: int) -> None:
        """What a power failure does, as far as the others can see: its daemon, its ranks and its network are gone."""
        for pid, _ in self.processes(node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def logs(self) -> str:
        parts = []
        for path in sorted(self.folder.glob("*.log")):
            parts.append(f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:]))
        return "\n".join(parts)

    def close(self) -> None:
        if self._process is not None:
            self._process.stdin.close()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()
        # Whom its processes belonged to; those that Slurm made below go with their last process, or stay empty.
        for group in sorted(Path("/sys/fs/cgroup").glob(f"*/{self.folder.name}-*/**/"), reverse=True):
            with contextlib.suppress(OSError):
                group.rmdir()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> "VirtualSlurm":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Job:
    """A job of the queue; the fields are those of `scontrol show job` when last looked at."""

    ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY")

    def __init__(self, cluster: VirtualSlurm, number: int, task: int | None = None):
        self.cluster = cluster
        self.number = number
        self.name = str(number) if task is None else f"{number}_{task}"
        self.fields: dict[str, str] = {}
        self._hastened = 0  # the restart that was
        self.update()

    def update(self) -> str:
        lines = self.cluster.ask(["scontrol", "show", "job", self.name]).splitlines()
        # A comment may read like a field.
        text = "\n".join(line for line in lines if not line.lstrip().startswith("Comment="))
        self.fields = dict(word.split("=", 1) for word in text.split() if "=" in word)
        return self.state

    def wait(self, seconds: float = 180) -> "Job":
        """Until the job has ended for good."""
        return self.wait_until(lambda: self.state in self.ENDED, seconds)

    def wait_until(self, condition, seconds: float = 180) -> "Job":
        """Until the condition holds, which is asked each time the fields have been looked at."""
        deadline = time.monotonic() + seconds
        while self.update() and not condition():
            if time.monotonic() > deadline:
                self.cluster.run(["scancel", str(self.number)], check=False)
                raise SlurmError(f"waited in vain:\n{self.fields}\n{self.text()}\n{self.cluster.logs()}")
            self._hasten()
            time.sleep(0.2)
        return self

    def _hasten(self) -> None:
        """Slurm lets a requeued job wait for two minutes, which is cut short here.

        Not before its batch shell has ended, which may still be excluding nodes, and not to nothing: nodes refuse a job
        for some moments after they have ended it ("Job credential revoked").
        """
        waits = self.state == "PENDING" and self.fields["Reason"] == "BeginTime"
        if not waits or self._hastened >= self.restarts or self._shell_runs():
            return
        self._hastened = self.restarts
        self.cluster.run(["scontrol", "update", f"JobId={self.name}", "StartTime=now+3seconds"], check=False)

    def _shell_runs(self) -> bool:
        script = f"/job{int(self.fields['JobId']):05d}/slurm_script"
        return any(script in command for _, command in self.cluster.processes())

    @property
    def state(self) -> str:
        return self.fields["JobState"]

    @property
    def exit_code(self) -> int:
        return int(self.fields["ExitCode"].split(":")[0])

    @property
    def restarts(self) -> int:
        return int(self.fields["Restarts"])

    @property
    def output(self) -> Path:
        return self._log("StdOut")

    @property
    def error(self) -> Path:
        return self._log("StdErr")

    def _log(self, field: str) -> Path:
        path = Path(self.fields[field])
        # train.sbatch names the log of an array's task by array and task, which Slurm does not know.
        of_task = path.with_name(f"{self.fields['JobName']}_{self.name}{path.suffix}")
        return of_task if of_task.exists() else path

    def text(self) -> str:
        return "".join(
            path.read_text() if path.exists() else f"({path} is missing)\n"
            for path in dict.fromkeys((self.output, self.error))
        )
