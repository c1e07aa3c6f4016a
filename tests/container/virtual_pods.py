"""The pods of a TrainJob on one machine: namespaces with host names, networks and sshd of their own.

Kubeflow Trainer's part is done by hand: the hostfile, the key of ssh, the names in DNS. There is no API server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
USER = 1000
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Where another Open MPI than the distribution's lies.
if folders := os.environ.get("MPZERO_TEST_PATH"):
    SYSTEM_PATH = f"{folders}:{SYSTEM_PATH}"
PROGRAMS = ("unshare", "nsenter", "ip", "setpriv", "ssh", "ssh-keygen", "sshd", "mpirun")


class PodError(RuntimeError):
    pass


def reason_to_skip() -> str | None:
    """Why no pods can be made here, or None."""
    if os.geteuid() != 0:
        return "virtual pods need root (namespaces)"
    missing = [name for name in PROGRAMS if not shutil.which(name, path=SYSTEM_PATH)]
    if missing:
        return f"these programs are missing: {', '.join(missing)}"
    attempt = subprocess.run(
        [
            "unshare",
            "--net",
            "--pid",
            "--uts",
            "--mount",
            "--fork",
            "--mount-proc",
            "ip",
            "link",
            "add",
            "x",
            "type",
            "bridge",
        ],
        capture_output=True,
        text=True,
    )
    return f"namespaces are not allowed here: {attempt.stderr.strip()}" if attempt.returncode != 0 else None


class Pod:
    def __init__(self, pods: VirtualPods, name: str, process: subprocess.Popen):
        self.pods = pods
        self.name = name
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        self.lines.extend(self.process.stdout)

    def output(self) -> str:
        return "".join(self.lines)

    def wait_for(self, words: str, seconds: float = 120) -> None:
        """Until the pod has printed these words."""
        deadline = time.monotonic() + seconds
        while words not in self.output():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise PodError(f"{self.name} did not say '{words}':\n{self.output()}")
            time.sleep(0.05)

    def wait(self, seconds: float = 300) -> int:
        """The exit status of the pod's process 1."""
        code = self.process.wait(timeout=seconds)
        self._reader.join(timeout=10)
        return code

    def signal(self, name: str) -> None:
        """To process 1, as kubelet does."""
        pid = (self.pods.folder / f"pod.{self.name}/pid").read_text().strip()
        self.pods.run(["kill", f"-{name}", pid])


class VirtualPods:
    """`with VirtualPods(nodes=3) as pods`: `start_nodes` returns when they answer, and `launch` starts the launcher."""

    def __init__(self, nodes: int, job: str = "tiny", ranks: int = 1):
        self.folder = Path(tempfile.mkdtemp(prefix="mpzero-pods-", dir="/var/tmp"))
        self.folder.chmod(0o755)
        self.job = job
        self.ranks = ranks
        self.node_names = [f"{job}-node-0-{index}" for index in range(nodes - 1)]
        self.launcher_name = f"{job}-launcher-0-0"
        self.nodes: list[Pod] = []
        self._started: list[Pod] = []
        self._write_files()
        self._process = subprocess.Popen(
            ["unshare", "--net", "--pid", "--uts", "--mount", "--propagation", "private", "--mount-proc", "--fork",
             "--kill-child", str(HERE / "pods_init.sh"), str(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        if self._process.stdout.readline().strip() != "ready":
            raise PodError("the pods' network was not made")
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        self._init = children[0]

    def _write_files(self) -> None:
        names = [*self.node_names, self.launcher_name]
        lines = [f"10.88.0.{number} {name} {self.job}\n" for number, name in enumerate(names, 10)]
        (self.folder / "pods").write_text("".join(lines))
        self.write_hostfile()
        home = self.folder / "home"
        keys = home / ".ssh"
        keys.mkdir(parents=True)
        # As the Secret of Kubeflow Trainer is mounted: root's, and the pods' group may read it.
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-N", "", "-f", str(keys / "id_rsa")], check=True
        )
        shutil.copy(keys / "id_rsa.pub", keys / "authorized_keys")
        for path, mode in ((keys / "id_rsa", 0o640), (keys / "id_rsa.pub", 0o644), (keys / "authorized_keys", 0o644)):
            os.chown(path, 0, USER)
            path.chmod(mode)
        shared = self.folder / "fsx"
        shared.mkdir()
        for path in (home, shared):
            os.chown(path, USER, USER)

    def write_hostfile(self, hosts: list[str] | None = None, slots: int | None = None) -> None:
        """As the MPI plugin writes it: the nodes first, then the launcher, by names of DNS."""
        names = hosts or [f"{name}.{self.job}" for name in [*self.node_names, self.launcher_name]]
        (self.folder / "hostfile").write_text("".join(f"{name} slots={slots or self.ranks}\n" for name in names))

    def run(self, command: list[str]) -> None:
        entered = ["nsenter", "--target", self._init, "--net", "--pid", "--uts", "--mount", "--wd=/", *command]
        subprocess.run(entered, check=True, capture_output=True, timeout=60)

    def _start(self, number: int, name: str, command: list[str], variables: dict[str, str]) -> Pod:
        test = {name: os.environ[name] for name in ("MPZERO_TEST_ROOT",) if name in os.environ}
        environment = {
            **test,
            "PATH": SYSTEM_PATH, "HOME": str(self.folder / "home"), "LANG": "C.UTF-8",
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            "MPZERO_NODE_NAME": f"ip-10-0-0-{number}", **variables,
        }  # fmt: skip
        entered = ["nsenter", "--target", self._init, "--net", "--pid", "--uts", "--mount", "--wd=/"]
        process = subprocess.Popen(
            [*entered, str(HERE / "pod.sh"), str(self.folder), str(number), name, *command],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        pod = Pod(self, name, process)
        self._started.append(pod)
        return pod

    def start_nodes(self, **variables: str) -> None:
        self.nodes = [
            self._start(number, name, [str(ROOT / "container/node")], variables)
            for number, name in enumerate(self.node_names, 10)
        ]
        for pod in self.nodes:
            pod.wait_for("Server listening on")

    def launch(self, *flags: str, program: str | None = None, **variables: str) -> Pod:
        """The launcher, with what kubernetes/render sets."""
        given = {
            "MPZERO_NODES": str(len(self.node_names) + 1), "MPZERO_GPUS": "0", "MPZERO_EFA": "0",
            "MPZERO_HOSTFILE": str(self.folder / "hostfile"), "MPZERO_JOB": "uid-1", "GRACE_PERIOD": "60",
            "CHECKPOINT_DIR": str(self.folder / "fsx/checkpoints"), "DATA_DIR": str(self.folder / "fsx/data"),
            # The controller's, which Open MPI 4 alone knows.
            "OMPI_MCA_orte_default_hostfile": str(self.folder / "hostfile"),
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
            "OMPI_MCA_orte_set_default_slots": str(self.ranks), "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        }  # fmt: skip
        command = [program or str(ROOT / "container/launch"), *flags]
        return self._start(10 + len(self.node_names), self.launcher_name, command, {**given, **variables})

    def end(self) -> None:
        """Ends all pods at once, as the JobSet's next start does with what is left of the last one."""
        for pod in self._started:
            if pod.process.poll() is None:
                pid = (self.folder / f"pod.{pod.name}/pid").read_text().strip()
                self.run(["kill", "-KILL", pid])
                pod.wait(30)
        self._started = []
        self.nodes = []

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=30)
        for pod in self._started:
            pod.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> VirtualPods:
        return self

    def __exit__(self, *_) -> None:
        self.close()
