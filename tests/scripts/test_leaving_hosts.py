"""What a job does whose run stops since EC2 is about to take back a host, with stand-ins for Slurm."""

import json

import pytest

REASON = "EC2 spot interruption of instance i-42 at 2100-01-01T00:00:00Z (terminate) on host node1"


def leave(job, *hosts: str, number: str = "7", restart: int = 0) -> None:
    report = {"job": number, "restart": restart, "hosts": hosts, "reason": REASON}
    (job.checkpoints / "stop.json").write_text(json.dumps(report))


def exclusions(job) -> list[str]:
    return [call for call in job.checkout.calls().splitlines() if call.startswith("scontrol update JobId=7 Exc")]


@pytest.mark.parametrize("status", [75, 1, 137])
def test_a_host_that_ends_is_left_and_nothing_counts_as_a_failure(job, status):
    """With status 1 there was no time to save; with 137 EC2 was faster than it had said."""
    leave(job, "node1")
    result = job(f"begin_run; end_run {status}")
    assert job.requeued() and job.state()["failures"] == 0, result.stderr
    assert REASON in result.stdout and "The run was stopped" in result.stdout
    assert exclusions(job) == ["scontrol update JobId=7 ExcNodeList=node1"]
    assert "requeued without node1; reason: EC2 spot interruption of instance" in job.checkout.calls()


@pytest.mark.parametrize("start", [{"number": "8"}, {"restart": 3}])
def test_what_another_start_has_left_does_not_count(job, start):
    leave(job, "node1", **start)
    result = job("begin_run; end_run 1")
    assert job.state()["failures"] == 1 and exclusions(job) == [], result.stderr


def test_a_user_error_stays_one(job):
    leave(job, "node1")
    result = job("begin_run; end_run 2")
    assert result.returncode == 2 and not job.requeued()


def test_a_damaged_report_is_not_followed(job):
    (job.checkpoints / "stop.json").write_text('{"hosts": ["node1"]')
    result = job("begin_run; end_run 75")
    assert job.requeued() and exclusions(job) == []
    assert result.stderr.count("stop.json is not JSON") == 1
