"""mpzero doctor: faults planted on the hosts of a job, with stand-ins for the libraries of GPU nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tiny_run import TinyRun
from trainer import BUILD, ENVIRONMENT, num_gpus

pytestmark = pytest.mark.e2e

GIB_IN_KIB = 2**20
EFA_DRIVER = "sys/bus/pci/drivers/efa"


@dataclass
class Host:
    """A folder in place of a host's /proc, /sys and /dev."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)

    def write(self, file: str, text: str) -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def make_p4d(self) -> None:
        """GPUs and EFA like those of a p4d."""
        self.write("sys/devices/virtual/dmi/id/sys_vendor", "Amazon EC2\n")
        self.write("sys/devices/virtual/dmi/id/product_name", "p4d.24xlarge\n")
        (self.root / EFA_DRIVER).mkdir(parents=True)
        for i in range(4):
            device = f"sys/class/infiniband/rdmap{16 + i}s27"
            self.write(f"{device}/ports/1/state", "4: ACTIVE\n")
            self.write(f"{device}/ports/1/hw_counters/rx_drops", "0\n")
            (self.root / device / "device").mkdir()
            (self.root / device / "device" / "driver").symlink_to(self.root / EFA_DRIVER)
        libraries = {"nvml": "fake_nvml", "cuda": "fake_cuda", "fabric": "fake_fabric", "plugin": "fake_plugin"}
        for flag, library in libraries.items():
            self.flags += [f"--{flag}_library", str(BUILD / "tests" / f"lib{library}.so")]
        self.environment = {"MPZERO_FAKE_NVML": "gpus=8", "MPZERO_FAKE_FABRIC": "efa+gpu tcp"}


def make_host(folder: Path, name: str) -> Host:
    """A healthy host without GPUs that this machine's resolver knows."""
    host = Host(folder)
    host.write("proc/sys/kernel/hostname", f"{name}\n")
    host.write("proc/sys/kernel/osrelease", "6.1.0\n")
    unlimited = "unlimited            unlimited            bytes"
    limits = f"Max locked memory         {unlimited}\nMax open files            65536 65536 files\n"
    host.write("proc/self/limits", limits)
    host.write("proc/meminfo", f"MemTotal: {64 * GIB_IN_KIB} kB\nMemAvailable: {60 * GIB_IN_KIB} kB\n")
    (folder / "dev/shm").mkdir(parents=True)
    return host


@pytest.fixture
def hosts(tmp_path: Path) -> list[Host]:
    return [make_host(tmp_path / "a", "127.1.1.1"), make_host(tmp_path / "b", "127.1.1.2")]


def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **ENVIRONMENT}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False, **options)


def diagnose(hosts: list[Host], tmp_path: Path, *flags: str) -> tuple[int, dict[str, dict[str, tuple[str, str]]]]:
    """One rank on each host; the exit status and, by host and check, status and message."""
    report = tmp_path / "report.json"
    words = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    for i, host in enumerate(hosts):
        words += [":"] if i > 0 else []
        words += ["-n", "1", "env", *[f"{name}={value}" for name, value in host.environment.items()]]
        words += [str(BUILD / "bin" / "mpzero"), "doctor", "--quick", "--system_root", str(host.root), *host.flags]
        words += ["--checkpoint_dir", str(tmp_path / "checkpoints"), "--json", str(report), *flags]
    result = run(words)
    assert report.exists(), f"{result.stdout}\n{result.stderr}"
    found = {}
    for host in json.loads(report.read_text())["hosts"]:
        found[host["host"]] = {f["check"]: (f["status"], f["message"]) for f in host["findings"]}
        for finding in host["findings"]:
            assert (finding["status"] == "ok") == (finding["remedy"] == "")
            # Checks that are ok are counted.
            assert finding["status"] == "ok" or finding["message"].split("\n")[0] in result.stdout
    return result.returncode, found


def faults(found: dict[str, dict[str, tuple[str, str]]]) -> dict[str, dict[str, str]]:
    """By host, the checks that are not ok."""
    return {
        host: {check: status for check, (status, _) in checks.items() if status != "ok"}
        for host, checks in found.items()
    }


def has_gpu_kernels() -> bool:
    version = subprocess.run([BUILD / "bin" / "mpzero", "--version"], capture_output=True, text=True, check=True).stdout
    return "GPU kernels: none" not in version


def test_two_healthy_hosts_and_one_with_another_version(hosts: list[Host], tmp_path: Path) -> None:
    if not has_gpu_kernels():
        pytest.skip("a host with GPUs is not healthy with a build without GPU kernels")
    for host in hosts:
        host.make_p4d()
    _, found = diagnose(hosts, tmp_path)
    assert faults(found) == {"127.1.1.1": {}, "127.1.1.2": {}}
    assert found["127.1.1.1"]["network"][1].startswith("EFA")

    # Of two hosts it is unknown which has the wrong version, so the job ends rather than excluding one.
    hosts[1].environment["MPZERO_FAKE_FABRIC_VERSION"] = "2.1.0amzn5.0"
    status, found = diagnose(hosts, tmp_path)
    assert status == 2
    assert faults(found) == {"127.1.1.1": {"versions": "failure"}, "127.1.1.2": {"versions": "failure"}}
    assert found["127.1.1.2"]["versions"][1] == "libfabric 2.1.0amzn5.0 here, 2.1.0amzn3.0 on 127.1.1.1"


def test_a_host_without_efa_among_those_with(hosts: list[Host], tmp_path: Path) -> None:
    for host in hosts:
        host.make_p4d()
    shutil.rmtree(hosts[1].root / "sys/class/infiniband")
    status, found = diagnose(hosts, tmp_path)
    assert status == 1
    assert found["127.1.1.2"]["efa_devices"][0] == "failure"
    assert found["127.1.1.1"]["efa_devices"][0] == "ok"
    assert "127.1.1.1 has EFA, but 127.1.1.2 has no EFA" in found["127.1.1.1"]["network"][1]


def test_this_machine_as_it_is(tmp_path: Path) -> None:
    """Without stand-ins, and with the checks that take seconds."""
    report = tmp_path / "report.json"
    program = str(BUILD / "bin" / "mpzero")
    flags = ["--json", str(report), "--checkpoint_dir", str(tmp_path)]
    run(["mpirun", "--oversubscribe", "-n", "2", program, "doctor", "--bandwidth", *flags])
    (host,) = json.loads(report.read_text())["hosts"]
    found = {finding["check"]: finding for finding in host["findings"]}
    assert "GB/s" in found["bandwidth_inside"]["message"]
    assert "GB/s" in found["checkpoint_write"]["message"]
    assert found["versions"]["status"] == "ok"
    assert list(tmp_path.iterdir()) == [report]


def test_two_hosts_of_nccl_are_measured_as_two(tmp_path: Path) -> None:
    """What bench/plan_runs.py tells mpzero plan: the channels between hosts are others than within one."""
    report = tmp_path / "report.json"
    words = [str(BUILD / "bin" / "mpzero"), "doctor", "--bandwidth", "--device=cpu", f"--json={report}"]
    words.append(f"--checkpoint_dir={tmp_path}")
    launch = ["mpirun", "--oversubscribe"]
    for host in range(2):
        launch += [*([":"] if host else []), "-n", "1", "env", f"NCCL_HOSTID=host{host}", *words]
    run(launch)
    found = [finding for host in json.loads(report.read_text())["hosts"] for finding in host["findings"]]
    measured = {finding["check"]: finding["message"] for finding in found if "bandwidth" in finding["check"]}
    assert list(measured) == ["bandwidth_between"], measured
    assert re.search(r"all-gather .* GB/s; reduce-scatter .* GB/s", measured["bandwidth_between"])


@pytest.mark.skipif(num_gpus() == 0, reason="no GPU")
def test_the_gpus_of_this_machine(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    words = ["mpirun", "--oversubscribe", "-n", str(num_gpus()), str(BUILD / "bin" / "mpzero"), "doctor", "--bandwidth"]
    run([*words, "--checkpoint_dir", str(tmp_path), "--json", str(report)])
    (host,) = json.loads(report.read_text())["hosts"]
    found = {finding["check"]: finding for finding in host["findings"]}
    assert str(num_gpus()) in found["gpus"]["message"]
    assert found["driver"]["status"] == "ok"
    bandwidth = found["bandwidth_inside" if num_gpus() > 1 else "bandwidth"]
    assert bandwidth["status"] != "failure", bandwidth["message"]


def test_bandwidth_is_not_measured_over_what_is_broken(tmp_path: Path) -> None:
    host = make_host(tmp_path / "a", "localhost")
    host.make_p4d()
    host.environment["MPZERO_FAKE_NVML"] = "lost=2"
    report = tmp_path / "report.json"
    words = ["env", *[f"{name}={value}" for name, value in host.environment.items()]]
    words += [str(BUILD / "bin" / "mpzero"), "doctor", "--bandwidth", "--system_root", str(host.root), *host.flags]
    result = run([*words, "--checkpoint_dir", str(tmp_path), "--json", str(report)])
    assert result.returncode == 1, result.stderr
    (found,) = json.loads(report.read_text())["hosts"]
    messages = {finding["check"]: finding["message"] for finding in found["findings"]}
    assert messages["gpus"] == "GPU 2 does not respond to the driver"
    assert messages["bandwidth"] == "not measured: gpus fails on localhost"


def test_a_host_that_hangs_has_its_own_report(hosts: list[Host], tmp_path: Path) -> None:
    """Its kernel does not respond, like a pipe that nothing writes to. The other host waits for it, and is not
    blamed."""
    report = tmp_path / "report.json"
    (hosts[1].root / "proc/meminfo").unlink()
    os.mkfifo(hosts[1].root / "proc/meminfo")
    stale = Path(f"{report}.127.1.1.1.hung")
    stale.write_text("of an earlier job")
    words = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    for i, host in enumerate(hosts):
        words += [":"] if i > 0 else []
        words += ["-n", "1", "env", "SLURM_JOB_ID=17", "SLURM_RESTART_COUNT=2"]
        words += [str(BUILD / "bin" / "mpzero"), "doctor", "--quick", "--patience", "2"]
        words += ["--system_root", str(host.root), "--json", str(report), "--checkpoint_dir", str(tmp_path)]
    result = run(words)
    assert result.returncode not in (0, 2), result.stderr
    assert "mpzero: error: 127.1.1.2: the kernel's /proc or /sys has not responded" in result.stderr
    assert not report.exists()
    assert sorted(path.name for path in tmp_path.glob("*.hung*")) == ["report.json.127.1.1.2.hung"]
    hung = Path(f"{report}.127.1.1.2.hung")
    (host,) = json.loads(hung.read_text())["hosts"]
    assert (host["host"], host["status"]) == ("127.1.1.2", "failure")
    (finding,) = host["findings"]
    assert (finding["check"], finding["status"], finding["blame"]) == ("host", "failure", "host")
    assert finding["remedy"]
    sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
    from requeue.reports import Doctor, Refusal, doctor_of

    refusal = Refusal("127.1.1.2", "host", finding["message"])
    # Where stderr is no file, the reports say the same.
    for log in (result.stderr, ""):
        assert doctor_of(report, "17", 2, log) == Doctor((refusal,), hung=True, answering=("127.1.1.1",))


def test_cuda_that_hangs_has_its_own_report(tmp_path: Path) -> None:
    host = make_host(tmp_path / "a", "localhost")
    host.make_p4d()
    report = tmp_path / "report.json"
    words = ["env", *[f"{name}={value}" for name, value in host.environment.items()], "MPZERO_FAKE_CUDA=hang=1"]
    words += [str(BUILD / "bin" / "mpzero"), "doctor", "--quick", "--patience", "2", "--system_root", str(host.root)]
    result = run([*words, *host.flags, "--checkpoint_dir", str(tmp_path), "--json", str(report)])
    assert result.returncode == 122, result.stderr
    assert "mpzero: error: localhost: CUDA initialization has not responded" in result.stderr
    (found,) = json.loads(Path(f"{report}.localhost.hung").read_text())["hosts"]
    assert [(finding["check"], finding["blame"]) for finding in found["findings"]] == [("cuda", "host")]


def test_a_network_between_gpus_is_refused_on_the_cpu(tmp_path: Path) -> None:
    result = TinyRun(tmp_path).train("--max_steps=2", "--network=efa", check=False)
    assert result.returncode == 2
    assert "mpzero: error: --network efa has no effect on the CPU" in result.stderr
