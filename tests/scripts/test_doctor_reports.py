"""What a job does about the hosts that `mpzero doctor` refuses, or on which it hangs."""

import json

import pytest


def hung(host: str) -> str:
    finding = {"check": "gpus", "status": "failure", "message": "the GPU driver\nhas not answered", "blame": "host"}
    return json.dumps({"hosts": [{"host": host, "status": "failure", "findings": [finding]}]})


def test_hosts_on_which_the_doctor_hangs_are_left_out(job):
    for host in ("ip-10-0-0-1.ec2.internal", "ip-10-0-0-9"):
        (job.checkpoints / f"doctor.json.{host}.hung").write_text(hung(host))
    (job.checkpoints / "doctor.json.broken.hung").write_text("{")
    result = job("begin_run; refuse_hosts 1")
    assert result.returncode == 1
    assert "ip-10-0-0-1.ec2.internal is refused: the GPU driver has not answered" in result.stderr
    assert "Left out from now on: node1." in result.stdout, result.stderr
    assert job.requeued()
    assert (job.state()["refusals"], job.state()["failures"]) == (1, 0)


def test_a_doctor_that_wrote_its_report_is_believed_and_old_reports_are_removed(job):
    (job.checkpoints / "doctor.json").write_text(hung("node0"))
    (job.checkpoints / "doctor.json.node1.hung").write_text(hung("node1"))
    result = job("begin_run; refuse_hosts 1")
    assert "node0 is refused" in result.stderr and "node1" not in result.stderr
    assert job("forget_doctor").returncode == 0
    assert sorted(path.name for path in job.checkpoints.iterdir()) == ["restarts.txt"]
    assert job("forget_doctor").returncode == 0


@pytest.mark.parametrize(
    ("status", "words"),
    [(1, "mpzero doctor ended, and"), (124, "mpzero doctor was still running after 5 minutes, and")],
)
def test_a_doctor_that_left_no_report_is_a_failure_that_says_so(job, status, words):
    result = job(f"begin_run; refuse_hosts {status}")
    assert f"{words} no report came from any of node[0-1]" in result.stdout, result.stderr
    assert job.requeued() and job.state()["failures"] == 1


@pytest.mark.parametrize(
    ("status", "blame", "refused"), [("failure", "host", True), ("warning", "host", False), ("failure", "job", False)]
)
def test_only_a_failure_of_the_host_itself_refuses_it(job, status, blame, refused):
    finding = {"check": "disk", "status": status, "message": "it is full", "blame": blame}
    hosts = [{"host": "node1", "status": status, "findings": [finding]}]
    (job.checkpoints / "doctor.json").write_text(json.dumps({"hosts": hosts}))
    result = job("begin_run; refuse_hosts 1")
    assert ("node1 is refused: it is full" in result.stderr) == refused
    assert job.state()["refusals"] == int(refused) and job.state()["failures"] == int(not refused)
