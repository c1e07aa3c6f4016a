"""What a job does about the hosts that `mpzero doctor` refuses, or on which it hangs."""

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from requeue.reports import CHECKS_OF_FOLDER, DOCTOR_HUNG

ROOT = Path(__file__).resolve().parents[2]


def report_of(hosts: list, job: str = "7", restart: int = 0) -> str:
    return json.dumps({"job": job, "restart": restart, "hosts": hosts})


def hung(host: str, check: str = "gpus", job: str = "7", restart: int = 0) -> str:
    finding = {"check": check, "status": "failure", "message": "the GPU driver\nhas not answered", "blame": "host"}
    return report_of([{"host": host, "status": "failure", "findings": [finding]}], job, restart)


def test_hosts_on_which_the_doctor_hangs_are_left_out(job):
    for host in ("ip-10-0-0-1.ec2.internal", "x9"):
        (job.checkpoints / f"doctor.json.{host}.hung").write_text(hung(host))
    (job.checkpoints / "doctor.json.broken.hung").write_text("{")
    result = job("begin_run; refuse_hosts 1")
    assert result.returncode == 1
    assert "ip-10-0-0-1.ec2.internal is rejected: the GPU driver has not answered" in result.stderr
    assert "x9" not in result.stderr
    assert "Excluded from now on: node1." in result.stdout, result.stderr
    assert job.requeued()
    assert (job.state()["refusals"], job.state()["failures"]) == (1, 0)


def test_a_doctor_that_wrote_its_report_is_believed_and_old_reports_are_removed(job):
    (job.checkpoints / "doctor.json").write_text(hung("node0"))
    (job.checkpoints / "doctor.json.node1.hung").write_text(hung("node1"))
    result = job("begin_run; refuse_hosts 1")
    assert "node0 is rejected" in result.stderr and "node1" not in result.stderr
    assert job("forget_doctor").returncode == 0
    assert sorted(path.name for path in job.checkpoints.iterdir()) == ["restarts.7.txt"]
    assert job("forget_doctor").returncode == 0


@pytest.mark.parametrize("name", ["doctor.json", "doctor.json.node1.hung"])
@pytest.mark.parametrize("other", [{"job": "8"}, {"restart": 1}, {"host": "x9"}], ids=["job", "start", "host"])
def test_a_report_of_another_job_or_start_or_of_its_hosts_refuses_nobody(job, name, other):
    (job.checkpoints / name).write_text(hung(**{"host": "node1", **other}))
    result = job("begin_run; refuse_hosts 1")
    assert "the reports from node[0-1] do not identify" in result.stdout, result.stderr
    assert "is rejected" not in result.stderr and "ExcNodeList=" not in job.checkout.calls()
    assert (job.state()["refusals"], job.state()["failures"]) == (0, 1)


def test_a_report_of_this_start_of_a_requeued_job_is_read(job):
    (job.checkpoints / "doctor.json").write_text(hung("node1", restart=2))
    result = job("begin_run; refuse_hosts 1", SLURM_RESTART_COUNT="2")
    assert "node1 is rejected" in result.stderr and "ExcNodeList=node1" in job.checkout.calls()


@pytest.mark.parametrize(
    ("status", "words"),
    [(1, "mpzero doctor ended, and"), (124, "mpzero doctor was still running after 5 minutes, and")],
)
def test_a_doctor_that_left_no_report_is_a_failure_that_says_so(job, status, words):
    result = job(f"begin_run; refuse_hosts {status}")
    assert f"{words} the reports from node[0-1] do not identify" in result.stdout, result.stderr
    assert job.requeued() and job.state()["failures"] == 1


@pytest.mark.parametrize(
    ("status", "blame", "refused"), [("failure", "host", True), ("warning", "host", False), ("failure", "job", False)]
)
def test_only_a_failure_of_the_host_itself_refuses_it(job, status, blame, refused):
    finding = {"check": "disk", "status": status, "message": "it is full", "blame": blame}
    hosts = [{"host": "node1", "status": status, "findings": [finding]}]
    (job.checkpoints / "doctor.json").write_text(report_of(hosts))
    result = job("begin_run; refuse_hosts 1")
    assert ("node1 is rejected: it is full" in result.stderr) == refused
    assert job.state()["refusals"] == int(refused) and job.state()["failures"] == int(not refused)


# How many hosts of a job of four hang in which check, and whether what they share is to blame.
HANGS = {
    "half, file system": ({"checkpoint_write": 2}, True),
    "all, file system": ({"checkpoint_write": 4}, True),
    "one of four, file system": ({"checkpoint_write": 1}, False),
    "half, driver": ({"gpus": 2}, True),
    "one, driver": ({"gpus": 1}, False),
    "one each in two checks": ({"gpus": 1, "checkpoint_write": 1}, False),
    "half, and one with its driver": ({"gpus": 1, "report": 2}, True),
}


@pytest.mark.parametrize(("hangs", "shared"), HANGS.values(), ids=HANGS)
def test_what_at_least_half_of_the_hosts_hang_in_is_no_fault_of_theirs(job, hangs, shared):
    names = iter(range(4))
    for check, count in hangs.items():
        for _ in range(count):
            host = f"ip-10-0-0-{next(names)}"
            (job.checkpoints / f"doctor.json.{host}.hung").write_text(hung(host, check))
    # Left by somebody: hosts that are none of this job's count for nothing.
    for host in ("x1", "x2", "x3"):
        (job.checkpoints / f"doctor.json.{host}.hung").write_text(hung(host, "checkpoint_write"))
    nodes = "printf 'NodeName=node%s X=1 NodeHostName=ip-10-0-0-%s X=1\\n' 0 0 1 1 2 2 3 3; exit"
    job.replace("scontrol", f'[[ "$1 $2" != "show node" ]] || {{ called scontrol "$@"; {nodes}; }}')
    result = job("begin_run; refuse_hosts 1")
    assert result.returncode == 1 and job.requeued(), result.stdout + result.stderr
    calls = job.checkout.calls()
    assert ("hosts hang in check" in result.stdout and "no hosts are excluded" in result.stdout) == shared
    assert ("ExcNodeList=" in calls, "StartTime=now+10minutes" in calls) == (not shared, shared), calls
    assert (job.state()["refusals"], job.state()["waits"]) == ((0, 1) if shared else (1, 0))
    assert job.state()["unsaved_starts"] == 0


# A check in which one host hangs alone, whether the other host answers, and whether the first is to blame.
ALONE = {
    "one of two, libraries": (2, "libfabric", False, True),
    "one of two, kernel": (2, "host", False, True),
    "one of two, driver": (2, "gpus", False, True),
    "one of two, folder": (2, "checkpoint_write", False, False),
    "one of two, folder that the other writes": (2, "checkpoint_write", True, True),
    "one of two, folder of the report that the other writes": (2, "report", True, True),
    "the only one, libraries": (1, "libfabric", False, True),
    "the only one, driver": (1, "gpus", False, True),
    "the only one, folder of checkpoints": (1, "checkpoint_write", False, False),
    "the only one, folder": (1, "report", False, False),
}


@pytest.mark.parametrize("where", ["log", "files"])
@pytest.mark.parametrize(("nodes", "check", "answers", "blamed"), ALONE.values(), ids=ALONE)
def test_one_host_that_hangs_in_what_is_its_own_is_to_blame(job, nodes, check, answers, blamed, where):
    names = " ".join(f"node{number}" for number in range(nodes))
    job.replace("scontrol", f"[[ $2 != node ]] || {{ printf 'NodeName=%s X=1\\n' {names}; exit; }}")
    answer = {"host": "node1", "findings": [{"check": "report", "status": "ok", "message": "", "blame": ""}]}
    begin = "begin_run"
    if where == "log":
        lines = [f"mpzero: doctor: node0 hangs in {check} (job 7, restart 0): it has not responded"]
        lines += ["mpzero: doctor: node1 responds in report (job 7, restart 0): the file system responds"] * answers
        begin = write_log(*lines)
    else:
        (job.checkpoints / "doctor.json.node0.hung").write_text(hung("node0", check))
        if answers:
            (job.checkpoints / "doctor.json.node1.answers").write_text(report_of([answer]))
    result = job(f"{begin}; refuse_hosts 1")
    log = result.stderr + errors(job)
    assert ("ExcNodeList=node0" in job.checkout.calls()) == blamed, result.stdout + log
    assert ("hosts hang in check" in result.stdout) == (not blamed) and job.requeued(), log


def write_log(*lines: str) -> str:
    """What a job whose log of errors has these lines begins with."""
    words = " ".join(f"'{line}'" for line in lines)
    return f"exec 2>>errors; begin_run; printf '%s\\n' {words} >&2"


def errors(job) -> str:
    path = job.checkout.root / "errors"
    return path.read_text() if path.exists() else ""


def test_a_doctor_whose_folder_hangs_reports_in_the_log(job):
    hangs = "mpzero: doctor: node{} hangs in checkpoint_write (job {}, restart {}): the file system has not responded"
    # An earlier start, another job, another job's host, and words of a program.
    others = [hangs.format(1, 7, 0), hangs.format(1, 8, 1), hangs.format(9, 7, 1), "say: " + hangs.format(1, 7, 1)]
    result = job(f"{write_log(*others, hangs.format(0, 7, 1))}; refuse_hosts 122", SLURM_RESTART_COUNT="1")
    assert "1 of 2 hosts hang in check checkpoint_write" in result.stdout, errors(job)
    assert "StartTime=now+10minutes" in job.checkout.calls() and "ExcNodeList=" not in job.checkout.calls()
    # A label of srun's changes nothing, and the folder is not looked at, since it may hang.
    lines = [hangs.format(0, 7, 1), "12: " + hangs.format(1, 7, 1)]
    (job.checkpoints / "doctor.json").mkdir()
    result = job(f"{write_log(*lines)}; refuse_hosts 137", SLURM_RESTART_COUNT="1")
    assert "2 of 2 hosts hang in check checkpoint_write" in result.stdout, errors(job)
    assert "not a regular file" not in errors(job)


def test_a_doctor_that_its_watch_ends_without_a_report_is_no_failure(job):
    result = job("begin_run; refuse_hosts 122")
    assert "no host identified" in result.stdout, result.stderr
    assert job.requeued() and "StartTime=now+10minutes" in job.checkout.calls()
    assert (result.returncode, job.state()["failures"], job.state()["refusals"]) == (1, 0, 0)


def test_the_job_and_the_doctor_agree_on_checks_of_folders():
    text = (ROOT / "app/machine/finding.hpp").read_text()
    assert set(re.findall(r'\{"(\w+)", Fault::kFolder', text)) == CHECKS_OF_FOLDER
    watch = (ROOT / "app/doctor/hang_watch.hpp").read_text()
    assert f"kHungExitCode = {DOCTOR_HUNG};" in watch
