"""Which folders have the evidence of a start (app/run_failure/merging.py)."""

import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from evidence import Evidence, channel

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "app"))
import failure
from run_failure.evidence import read_evidence
from run_failure.merging import find_failure, newest_start, places_of, remove_old_starts


@pytest.mark.parametrize("variable", ["MPZERO_LOG_DIR", "LOG_DIR", "TMPDIR"])
def test_evidence_of_the_log_folder_counts_too(tmp_path, monkeypatch, variable):
    found = Evidence(tmp_path / "checkpoints", hosts=1)
    logs = Evidence(tmp_path / "logs", hosts=1, checkpoint_dir=str(tmp_path / "checkpoints"))
    found.rank(0, channels=[channel(8, 7)])
    found.rank(1, "signal", time=1.0)  # before the folder stopped responding
    logs.rank(1, channels=[channel(7, 7)])
    monkeypatch.setenv("MPZERO_LOG_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv(variable, str(tmp_path / "logs"))
    folder = tmp_path / "checkpoints"
    assert find_failure(folder, newest_start(folder)).verdict.ranks == (1,)
    assert Path("/tmp/failures") in places_of(tmp_path)


def test_evidence_of_other_runs_in_the_log_folder_does_not_count(tmp_path, monkeypatch):
    monkeypatch.setenv("MPZERO_LOG_DIR", str(tmp_path / "logs"))
    folder = tmp_path / "checkpoints"
    old, own = Evidence(folder, start="20261126T110000Z-00000001"), "20261126T120000Z-00000002"
    runs = {own: str(folder), "20261126T130000Z-00000003": str(tmp_path / "another")}
    runs |= {f"20261126T130000Z-0000000{number}": value for number, value in ((4, 7), (5, "\0"), (6, "\ud800"))}
    for start, checkpoint_dir in runs.items():
        Evidence(tmp_path / "logs", start=start, checkpoint_dir=checkpoint_dir)
    Evidence(tmp_path / "logs", start="20261126T130000Z-00000007")  # names no run
    assert newest_start(folder) == own
    (folder.parent / "link").symlink_to(folder)
    assert newest_start(tmp_path / "link") == own
    shutil.rmtree(tmp_path / "logs/failures" / own)
    assert newest_start(folder) == old.folder.name


def test_a_start_that_the_file_system_shows_late_is_waited_for(tmp_path, monkeypatch):
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            Evidence(tmp_path)

    monkeypatch.setattr("run_failure.merging.time.sleep", sleep)
    assert newest_start(tmp_path) is None and looks == []
    assert newest_start(tmp_path, until=time.monotonic() + 60) == "20261126T120000Z-0123abcd" and len(looks) == 2


def test_evidence_of_a_rank_that_the_file_system_shows_late_is_waited_for(tmp_path, monkeypatch):
    found = Evidence(tmp_path, hosts=1)
    found.rank(0, "communicator_error")
    monkeypatch.setattr("run_failure.merging.time.sleep", lambda seconds: found.rank(1, "user_error"))
    assert not find_failure(tmp_path, found.folder.name).verdict.user_error
    assert find_failure(tmp_path, found.folder.name, time.monotonic() + 60).verdict.user_error


@pytest.mark.parametrize(("launcher", "status"), [(143, 2), (75, 75)])
def test_only_after_a_failure_of_the_launcher_is_evidence_waited_for(tmp_path, monkeypatch, launcher, status):
    words = ["failure", str(tmp_path), "--status", str(launcher), "--launch=a", "--wait=60"]
    monkeypatch.setattr("sys.argv", words)
    late = [lambda found: found.rank(1, "user_error"), lambda found: found.rank(0, "communicator_error")]
    start = []

    def sleep(seconds: float) -> None:
        start[:] = start or [Evidence(tmp_path, hosts=1, launch="a")]
        late.pop()(start[0])

    monkeypatch.setattr("run_failure.merging.time.sleep", sleep)
    assert failure.main() == status


def test_while_waiting_only_missing_evidence_is_read(tmp_path, monkeypatch):
    found = Evidence(tmp_path, hosts=3, ranks=1)
    found.rank(0, "signal")
    found.rank(1, "signal", provisional=True)

    def sleep(seconds: float) -> None:
        (found.folder / "rank_0.json").unlink()
        found.rank(1, "device_error")
        found.rank(2, "signal")

    monkeypatch.setattr("run_failure.merging.time.sleep", sleep)
    failure = find_failure(tmp_path, found.folder.name, time.monotonic() + 60)
    assert failure.evidence.complete and failure.verdict.ranks == (1,)


def test_start_json_of_many_ranks_is_read(tmp_path):
    found = Evidence(tmp_path, hosts=1, ranks=1)
    ranks = 20_000
    hosts = [f"ip-10-1-{rank // 2048}-{rank // 8 % 256}.us-west-2.compute.internal" for rank in range(ranks)]
    pids = [4_000_000 + rank for rank in range(ranks)]
    found.write("start.json", {**found.common, "ranks": ranks, "hosts": hosts, "pids": pids})
    assert (found.folder / "start.json").stat().st_size > 1 << 20
    records = read_evidence([found.folder]).records
    assert (len(records), records[-1].host) == (ranks, hosts[-1])


def test_old_evidence_is_removed_from_the_log_folder_too(tmp_path, monkeypatch):
    monkeypatch.setenv("MPZERO_LOG_DIR", str(tmp_path / "logs"))
    folder = tmp_path / "checkpoints"
    starts = [f"20261126T{number:06}Z-00000000" for number in range(22)]
    for start in starts:
        Evidence(tmp_path / "logs", start=start, checkpoint_dir=str(folder))
    another = Evidence(tmp_path / "logs", start="20261125T000000Z-00000000", checkpoint_dir="/another")
    folder.mkdir()
    remove_old_starts(folder)
    left = sorted(path.name for path in (tmp_path / "logs/failures").iterdir())
    assert left == [another.folder.name, *starts[2:]]


def test_evidence_of_another_user_in_the_log_folder_does_not_count(tmp_path, monkeypatch):
    folder = tmp_path / "missing"
    monkeypatch.setenv("MPZERO_LOG_DIR", str(tmp_path / "logs"))
    found = Evidence(tmp_path / "logs", checkpoint_dir=str(folder))
    assert newest_start(folder) == found.folder.name
    assert found.folder in places_of(folder, found.folder.name)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert newest_start(folder) is None
    folder.mkdir()  # its owner's evidence counts for everybody
    assert newest_start(folder) == found.folder.name
