"""Who is blamed for a failure: folders of evidence, one for each kind of failure (app/run_failure)."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from evidence import Evidence, channel, line

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "app"))
from run_failure.evidence import read_evidence
from run_failure.merging import find_failure, keep, newest_start
from run_failure.verdict import verdict_of

ROOT = Path(__file__).resolve().parents[2]
WAITS = channel(8, 7)


def verdict(found: Evidence, down=()):
    return verdict_of(read_evidence([found.folder]), frozenset(down))


def stuck(found: Evidence, *ranks: int, why: str = "stuck", **values) -> None:
    for rank in ranks:
        found.rank(rank, why, **{"channels": [WAITS], **values})


def crash(found):
    stuck(found, 0, 1, why="communicator_error")
    found.rank(2, "signal", neighbours=[line(3, alive=False, step=6)])


def killed_after_a_stop_request(found):
    """Rank 3 waited when it was asked to stop, like the others, and was killed before it could."""
    found.rank(3, "signal", provisional=True, neighbours=[line(2)])
    found.rank(0, "signal", provisional=True, neighbours=[line(1)])
    found.rank(2, "signal", neighbours=[line(3, alive=False)])


def stopped_and_killed_before_it_could_end(found):
    """The launcher continued rank 2, which wrote later than the ranks that had seen it stopped."""
    stuck(found, 0, 1)
    stuck(found, 3, neighbours=[line(2)])
    stuck(found, 2, why="signal", provisional=True, watchdog_gap_seconds=16.0)


def crash_of_two(found):
    found.rank(0, "communicator_error", neighbours=[line(1, alive=False)])
    found.rank(2, "signal", neighbours=[line(3, alive=False)])


def killed_by_the_launcher(found):
    """Rank 1 was alive when rank 0 wrote, and dead for the next that wrote: the launcher ended it."""
    found.rank(2, "error", error="the disk is full", neighbours=[line(3)])
    found.rank(0, "signal", neighbours=[line(1)])
    found.rank(3, "signal", neighbours=[])


def stopped(found):
    stuck(found, 0, 1)
    stuck(found, 3, neighbours=[line(2, quiet=310.0)])


def stopped_and_continued_by_the_launcher(found):
    stuck(found, 0, 1, 3)
    stuck(found, 2, why="signal", watchdog_gap_seconds=16.0)


def stopped_for_half_of_a_short_timeout(found):
    stuck(found, 0, 1, limit=10.0)
    stuck(found, 3, limit=10.0, neighbours=[line(2, quiet=6.0)])


def stopped_for_half_of_a_short_timeout_and_continued(found):
    stuck(found, 0, 1, 3, limit=10.0)
    stuck(found, 2, why="signal", limit=10.0, watchdog_gap_seconds=6.0)


def stopped_before_a_device_failed(found):
    stuck(found, 0, 1, 2, why="signal", watchdog_gap_seconds=16.0)
    found.rank(3, "device_error", error="an uncorrectable ECC error")


def stopped_before_an_error(found):
    stuck(found, 0, 1, 2, why="signal", watchdog_gap_seconds=16.0)
    found.rank(3, "error", error="the disk is full")


def stopped_before_an_error_with_culprits(found):
    stuck(found, 0, 1, why="signal", watchdog_gap_seconds=16.0)
    found.rank(3, "communicator_error", error="the weights differ", culprits=[2])


def error_on_all_ranks(found):
    found.rank(0, "shared_error", error="the disk is full")
    found.rank(3, "signal")


def error_on_all_ranks_because_of_one_host(found):
    found.rank(0, "shared_error", error="rank 3: cannot read: Stale file handle", culprits=[3])


def error_on_all_ranks_because_of_all_hosts(found):
    found.rank(0, "shared_error", error="rank 1: cannot read: Stale file handle", culprits=[1, 3])


def stopped_with_errors_of_its_peers(found):
    stuck(found, 0, 1, 3, why="communicator_error")
    stuck(found, 2, why="signal", watchdog_gap_seconds=16.0)


def stopped_and_told_of_its_lost_peers(found):
    stuck(found, 0, 1, 3)
    stuck(found, 2, why="communicator_error", watchdog_gap_seconds=16.0)


def hang_on_a_gpu(found):
    stuck(found, 0, 1, 2)
    found.rank(3, channels=[channel(8, 7, started=7)])


def device(found):
    found.rank(1, "communicator_error", error="a peer has gone")
    found.rank(3, "device_error", error="an illegal memory access")
    found.rank(0, "signal")


def errors_with_different_culprits(found):
    for rank in (0, 1):
        found.rank(rank, "communicator_error", error="the weights differ", culprits=[2 + rank])


def error_with_culprits(found):
    found.rank(0, "error", error="the weights differ", culprits=[2])
    found.rank(3, "device_error", error="aborted")


def first_error(found):
    found.rank(2, "error", error="the disk is full")
    found.times -= 9  # a clock that is behind
    for rank in (0, 1, 3):
        found.rank(rank, "error", error="connection reset")


def hang_reported_by_a_communicator(found):
    stuck(found, 0)
    stuck(found, 1, 3, why="communicator_error")
    stuck(found, 2, why="signal", channels=[channel(7, 7)])


def lost_peer_before_a_kernel_started(found):
    """NCCL starts no kernel on a rank whose peer is lost."""
    stuck(found, 1, why="communicator_error", error="a peer has gone", channels=[channel(8, 7, started=7)])
    stuck(found, 0, 2, 3, why="signal")


def lone_communicator_error(found):
    stuck(found, 1, why="communicator_error", error="a peer has gone")
    stuck(found, 0, 2, 3, why="signal")


def dead_host(found):
    for rank in (0, 1):
        found.rank(rank, "communicator_error", error="a peer has gone")


def late_host_without_evidence(found):
    """It is behind in what the others have queued, and nobody on it wrote."""
    stuck(found, 0, 1)


def hosts_that_do_not_connect(found):
    stuck(found, 0, phase="network", channels=[], error="no connection to 10.0.0.2")
    stuck(found, 1, 2, 3, why="signal", phase="network", channels=[])


def a_late_rank_and_no_connection(found):
    stuck(found, 0, 2, 3, why="signal")
    stuck(found, 1, error="no connection to 10.0.0.2", channels=[channel(7, 7)])


def everyone_at_one_place(found):
    stuck(found, 0, 1, 2, 3)


def one_level_waits_for_the_other(found):
    """Ranks 0, 1 (node0) and 2, 3 (node1); between nodes 0, 2 and 1, 3. Rank 3 is late between nodes: it computes."""
    inner, across = (0, 2, 1), (1, 2, 2)
    found.rank(0, channels=[channel(5, 4, ranks=inner), channel(3, 3, ranks=(0, 2, 2))])
    found.rank(1, channels=[channel(4, 4, ranks=inner), channel(3, 2, ranks=across, seconds=20)])
    found.rank(2, channels=[channel(5, 4, ranks=(2, 2, 1)), channel(3, 3, ranks=(0, 2, 2))])
    found.rank(3, channels=[channel(4, 4, ranks=(2, 2, 1)), channel(2, 2, ranks=across)])


def user_error(found):
    found.rank(0, "communicator_error")
    found.rank(1, "user_error", error="--seq_length 7 does not fit")


def only_ended(found):
    for rank in range(4):
        found.rank(rank, "signal")


def suspended_and_ended(found):
    """Ranks 1 and 3 move on before a neighbour that writes has looked again."""
    for rank in (0, 2):
        found.rank(rank, "signal", watchdog_gap_seconds=16.0, neighbours=[line(rank ^ 1, quiet=16.0)])


def stopped_while_one_host_writes_late(found):
    stuck(found, 0, 1, why="signal")


def finished_ranks_are_not_missed(found):
    stuck(found, 0, neighbours=[line(1, alive=False, exit_status=0)])
    stuck(found, 2, neighbours=[line(3, alive=False, exit_status=75)], channels=[channel(7, 7)])


def two_lags(found):
    """Rank 1 computes since a second, and rank 2 hangs: other groups wait."""
    found.rank(0, channels=[channel(5, 4, ranks=(0, 2, 1), seconds=1)])
    found.rank(1, channels=[channel(4, 4, ranks=(0, 2, 1))])
    found.rank(2, channels=[channel(4, 4, ranks=(2, 2, 1))])
    found.rank(3, channels=[channel(5, 4, ranks=(2, 2, 1), seconds=300)])


def a_late_rank_in_a_collective_of_its_own(found):
    """Rank 2 waits for no other rank: its second group has one rank."""
    stuck(found, 0, 1, 3, channels=[channel(8, 7)])
    found.rank(2, channels=[channel(7, 7), channel(3, 2, ranks=(2, 1, 1), name="gradients")])


def one_rank_has_left_a_collective(found):
    """The others wait in collective 7, so they cannot reach collective 8."""
    stuck(found, 0, 1, 3, channels=[channel(7, 6, seconds=20)])
    stuck(found, 2)


def one_rank_has_not_left_a_collective(found):
    stuck(found, 0, 1, 2, channels=[WAITS, channel(5, 5, name="gradients")])
    stuck(found, 3, channels=[channel(7, 7), channel(5, 4, name="gradients", seconds=20)])


def a_gpu_that_is_behind_its_queue(found):
    """Rank 2 has queued most, but its GPU has not started what the others wait for."""
    stuck(found, 0, 1, 3, channels=[channel(7, 6)])
    stuck(found, 2, channels=[channel(8, 6, started=6)])


# The ranks to blame, and a fact of the reason.
CASES = [
    (crash, (3,), "rank 3 on node1 (pid 103): ended without reporting an error in step 6"),
    (killed_after_a_stop_request, (3,), "rank 3 on node1 (pid 103): ended without reporting an error in step 5"),
    (stopped_and_killed_before_it_could_end, (2,), "the process is stopped"),
    (crash_of_two, (1, 3), "rank 1 on node0 (pid 101), rank 3 on node1 (pid 103): ended"),
    (killed_by_the_launcher, (2,), "the disk is full"),
    (stopped, (2,), "all_gather 8 of parameters"),
    (stopped_and_continued_by_the_launcher, (2,), "the process is stopped"),
    (stopped_for_half_of_a_short_timeout, (2,), "the process is stopped"),
    (stopped_for_half_of_a_short_timeout_and_continued, (2,), "the process is stopped"),
    (stopped_before_a_device_failed, (3,), "an uncorrectable ECC error"),
    (stopped_before_an_error, (3,), "the disk is full"),
    (stopped_before_an_error_with_culprits, (2,), "the weights differ"),
    (error_on_all_ranks, (), "the disk is full"),
    (error_on_all_ranks_because_of_one_host, (3,), "rank 3 on node1 (pid 103): rank 3: cannot read"),
    (error_on_all_ranks_because_of_all_hosts, (), "cannot read"),
    (stopped_with_errors_of_its_peers, (2,), "the process is stopped"),
    (hang_on_a_gpu, (3,), "on the GPU"),
    (device, (3,), "an illegal memory access"),
    (error_with_culprits, (2,), "the weights differ"),
    (errors_with_different_culprits, (2, 3), "the weights differ"),
    (first_error, (2,), "the disk is full"),
    (hang_reported_by_a_communicator, (2,), "all_gather 8 of parameters"),
    (lost_peer_before_a_kernel_started, (), "a peer has gone"),
    (lone_communicator_error, (), "a peer has gone"),
    (dead_host, (), "node1"),
    (late_host_without_evidence, (), "node1"),
    (hosts_that_do_not_connect, (), "no connection to 10.0.0.2"),
    (a_late_rank_and_no_connection, (1,), "no connection to 10.0.0.2"),
    (everyone_at_one_place, (), "waiting in all_gather 8"),
    (one_level_waits_for_the_other, (3,), "all_gather 3 of parameters (ranks 1 and 3)"),
    (finished_ranks_are_not_missed, (2,), "all_gather 8"),
    (two_lags, (2,), "300 s"),
    (a_late_rank_in_a_collective_of_its_own, (2,), "all_gather 8 of parameters"),
    (one_rank_has_left_a_collective, (), "waiting in all_gather 7"),
    (one_rank_has_not_left_a_collective, (3,), "all_gather 8 of parameters"),
    (a_gpu_that_is_behind_its_queue, (2,), "did not reach all_gather 7 of parameters on the GPU"),
    (stopped_and_told_of_its_lost_peers, (2,), "the process is stopped"),
]


@pytest.mark.parametrize(("case", "ranks", "fact"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_the_rank_to_blame_is_named(tmp_path, case, ranks, fact):
    found = Evidence(tmp_path)
    case(found)
    result = verdict(found)
    assert (result.ranks, result.user_error) == (ranks, False), result
    assert fact in result.reason


@pytest.mark.parametrize(
    ("hosts", "culprits", "blamed"), [(1, [1], ()), (3, [3, 5], ()), (4, [3, 5], ()), (5, [3, 5], (3, 5))]
)
def test_a_shared_error_is_attributed_only_to_fewer_than_half_of_the_hosts(tmp_path, hosts, culprits, blamed):
    found = Evidence(tmp_path, hosts=hosts)
    found.rank(0, "shared_error", error="cannot read: Input/output error", culprits=culprits)
    assert verdict(found).ranks == blamed


def test_a_silent_host_is_blamed_only_where_the_cluster_knows_it_to_be_down(tmp_path):
    found = Evidence(tmp_path)
    dead_host(found)
    assert verdict(found).silent_hosts == ("node1",)
    blamed = verdict(found, down=["node1"])
    assert blamed.ranks == (2, 3) and "rank 2 on node1 (pid 102)" in blamed.reason
    assert verdict(found, down=["node7"]).ranks == ()


def test_of_silent_hosts_only_those_that_are_down_are_blamed(tmp_path):
    found = Evidence(tmp_path, hosts=3)
    dead_host(found)
    assert verdict(found).silent_hosts == ("node1", "node2")
    assert verdict(found, down=["node2"]).ranks == (4, 5)


def test_the_first_view_of_a_host_is_the_earliest_and_not_that_of_the_lowest_rank(tmp_path):
    found = Evidence(tmp_path, hosts=1, ranks=4)
    found.rank(3, "signal", neighbours=[line(1), line(2, alive=False)])
    found.rank(0, "communicator_error", neighbours=[line(1, alive=False), line(2, alive=False)])
    assert verdict(found).ranks == (2,)


def test_of_ranks_that_die_one_after_the_other_the_first_is_blamed(tmp_path):
    found = Evidence(tmp_path, hosts=1, ranks=4)
    found.rank(0, "communicator_error", neighbours=[line(1, alive=False), line(2)])
    found.rank(3, "signal", neighbours=[line(1, alive=False), line(2, alive=False)])
    assert verdict(found).ranks == (1,)


def test_a_view_of_a_rank_on_another_host_does_not_count(tmp_path):
    found = Evidence(tmp_path)
    found.rank(0, neighbours=[line(1), line(3, alive=False), line(2, quiet=99.0)])
    assert [record.seen for record in read_evidence([found.folder]).records] == ["", "alive", "", ""]


@pytest.mark.parametrize("status", [None, 0, 1, 2, 75, 130, 143])
def test_only_an_end_that_a_dead_rank_announced_is_a_normal_end(tmp_path, status):
    found = Evidence(tmp_path, hosts=1)
    found.rank(0, neighbours=[line(1, alive=False, exit_status=status)])
    assert read_evidence([found.folder]).records[1].seen == ("ended" if status in (0, 75, 130) else "dead")


def test_a_neighbour_that_was_alive_may_still_write(tmp_path):
    for seen, complete in (({}, False), ({"quiet": 99.0}, False), ({"alive": False}, True), ({"exit_status": 0}, True)):
        found = Evidence(tmp_path / str(complete) / str(seen), hosts=1)
        found.rank(0, neighbours=[line(1, **seen)])
        assert read_evidence([found.folder]).complete == complete, seen


def test_an_error_on_all_ranks_needs_no_evidence_of_the_others(tmp_path):
    found = Evidence(tmp_path)
    error_on_all_ranks(found)
    assert read_evidence([found.folder]).complete


def test_a_host_with_provisional_evidence_is_incomplete_and_silent(tmp_path):
    found = Evidence(tmp_path)
    dead_host(found)
    for rank in (2, 3):
        found.rank(rank, "signal", provisional=True)
    evidence = read_evidence([found.folder])
    assert (evidence.complete, evidence.silent_hosts) == (False, ("node1",))
    assert verdict(found, down=["node1"]).ranks == (2, 3)


def test_without_start_json_evidence_is_incomplete_and_nobody_is_blamed(tmp_path):
    found = Evidence(tmp_path)
    found.rank(0, "device_error")
    (found.folder / "start.json").unlink()
    assert not read_evidence([found.folder]).complete
    assert verdict(found) is None and newest_start(tmp_path) is None


def run(checkpoints: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "app/failure.py", checkpoints, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("case", "launcher", "status"),
    [
        (crash, 137, 1),
        (user_error, 143, 2),
        (error_on_all_ranks, 1, 1),
        (only_ended, 143, 143),
        (suspended_and_ended, 143, 143),
        (stopped_while_one_host_writes_late, 143, 143),
        (crash, 75, 1),
        (user_error, 75, 2),
        (only_ended, 75, 75),
        (crash, 2, 2),
        (None, 9, 9),
    ],
)
def test_the_evidence_decides_the_status_of_the_run(tmp_path, case, launcher, status):
    if case is not None:
        case(Evidence(tmp_path))
    result = run(tmp_path, "--status", str(launcher))
    assert (result.returncode, result.stdout) == (status, f"{status}\n"), result.stderr
    assert (tmp_path / "failure.json").exists() == (case in (crash, error_on_all_ranks))


@pytest.mark.parametrize(
    ("case", "before", "status"),
    [
        (crash, ":", 1),
        (user_error, ":", 2),
        (only_ended, ":", 143),
        (user_error, "set -- 75", 2),
        (crash, 'rm "$MPZERO_ROOT/app/failure.py"', 143),
        (crash, 'echo "import sys; print(300); sys.exit(2)" >"$MPZERO_ROOT/app/failure.py"', 143),
        (crash, 'rm "$MPZERO_VENV/bin/python"', 143),
        (crash, 'echo "import signal; signal.pause()" >"$MPZERO_ROOT/app/failure.py"; MPZERO_FOLDER_SECONDS=1', 143),
    ],
)
def test_the_scripts_believe_only_a_verdict(checkout, case, before, status):
    case(Evidence(checkout.root / "-run"))
    folders = 'MPZERO_VENV="$MPZERO_ROOT/.venv"; CHECKPOINT_DIR=-run'
    result = checkout.shell(f"{folders}; {before}; judged_status ${{1:-143}} 0")
    assert result.stdout == f"{status}\n", result.stderr


def test_a_folder_that_is_none_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "missing", tmp_path / "file"):
        assert run(folder).returncode == 2
        assert run(folder, "--status", "9").returncode == 9
    assert run(tmp_path).returncode == 0


def test_a_user_error_is_reported_where_mpzero_has_not_just_said_it(tmp_path):
    user_error(Evidence(tmp_path))
    assert "--seq_length 7 does not fit" in run(tmp_path).stderr
    assert run(tmp_path, "--status", "143").stderr == ""


def test_failure_json_has_its_fields_and_a_later_start_keeps_its_own(tmp_path):
    crash(Evidence(tmp_path))
    result = run(tmp_path)
    assert result.returncode == 0 and "rank 3 on node1" in result.stderr
    path = tmp_path / "failure.json"
    report = json.loads(path.read_text())
    assert report.pop("time").endswith("Z") and "rank 3" in report.pop("reason")
    assert report == {
        "job": "7", "restart": 0, "step": 6, "ranks": [3], "hosts": ["node1"], "run": "20261126T120000Z-0123abcd",
        "started": 1_700_000_000, "found_by": 0,
    }  # fmt: skip
    later = Evidence(tmp_path, start="20261126T130000Z-0123abcd")
    later.rank(0, "device_error")
    run(tmp_path)
    assert json.loads(path.read_text())["ranks"] == [0]
    keep(tmp_path, find_failure(tmp_path, "20261126T120000Z-0123abcd"))
    assert json.loads(path.read_text())["ranks"] == [0]


def test_only_the_failure_of_this_launch_counts(tmp_path):
    crash(Evidence(tmp_path, start="20261126T120000Z-0123abcd", launch="a"))
    user_error(Evidence(tmp_path, start="20261126T110000Z-0123abcd", launch="b"))
    statuses = [run(tmp_path, "--status", "143", *launch).returncode for launch in ([], ["--launch=a"], ["--launch=c"])]
    assert statuses == [2, 1, 143]


def test_the_last_failure_is_found_after_later_starts(tmp_path):
    names = [f"20261126T{number:06}Z-00000000" for number in range(22)]
    crash(Evidence(tmp_path, start=names[0]))
    for start in names[1:]:
        # A rank that waits while the run is being stopped writes provisional evidence.
        Evidence(tmp_path, start=start).rank(0, "signal", provisional=True)
    result = run(tmp_path)
    assert json.loads((tmp_path / "failure.json").read_text())["run"] == names[0]
    assert names[0] in result.stderr and names[-1] in result.stderr
    assert len(list((tmp_path / "failures").iterdir())) == len(names)
    # Without a failure of the latest start, a launcher's status counts.
    assert run(tmp_path, "--status", "137").returncode == 137
    assert len(list((tmp_path / "failures").iterdir())) == 20


def test_a_start_of_a_wrong_clock_does_not_hide_later_starts(tmp_path):
    for start in ("20991126T120000Z-0123abcd", "20261126T120000Z-0123abcd"):
        Evidence(tmp_path, start=start)
    assert newest_start(tmp_path) == "20261126T120000Z-0123abcd"


def test_a_refused_start_does_not_hide_the_failure_of_the_running_one(tmp_path):
    running = Evidence(tmp_path, start="20261126T120000Z-0123abcd")
    user_error(Evidence(tmp_path, start="20261126T120500Z-0123abcd"))
    assert run(tmp_path, "--status", "143").returncode == 2
    crash(running)
    assert run(tmp_path, "--status", "143").returncode == 1
    Evidence(tmp_path, start="20261126T121000Z-0123abcd")
    run(tmp_path)
    assert json.loads((tmp_path / "failure.json").read_text())["run"] == running.folder.name


def test_failure_json_of_a_wrong_clock_is_replaced(tmp_path):
    crash(Evidence(tmp_path))
    (tmp_path / "failure.json").write_text(json.dumps({"run": "20991126T120000Z-0123abcd", "ranks": [0]}))
    run(tmp_path)
    assert json.loads((tmp_path / "failure.json").read_text())["ranks"] == [3]


def test_failure_json_keeps_the_blame_until_the_evidence_has_grown(tmp_path):
    found = Evidence(tmp_path)
    dead_host(found)

    def kept(down=()) -> list[int]:
        keep(tmp_path, find_failure(tmp_path, found.folder.name, down=lambda hosts: frozenset(down)))
        return json.loads((tmp_path / "failure.json").read_text())["ranks"]

    assert (kept(), kept(down=["node1"]), kept()) == ([], [2, 3], [2, 3])
    found.rank(2, "device_error")
    assert kept() == [2]
    found.rank(2, "communicator_error", culprits=[3])
    assert kept() == [3]
    before = (tmp_path / "failure.json").stat()
    assert kept() == [3] and (tmp_path / "failure.json").stat() == before


def test_only_the_newest_start_of_this_job_counts(tmp_path):
    old, new = "20261126T120000Z-0123abcd", "20261126T120500Z-0123abcd"
    Evidence(tmp_path, start=old)
    assert newest_start(tmp_path) == old and newest_start(tmp_path, job="7") == old
    assert newest_start(tmp_path, job="8") is None and newest_start(tmp_path, job="7", restart=1) is None
    Evidence(tmp_path, start=new, restart=1)
    (tmp_path / "failures/notes").mkdir()
    assert newest_start(tmp_path) == new
    assert newest_start(tmp_path, job="7", restart=0) == old


@pytest.mark.parametrize("content", [None, "", "{"])
def test_a_start_without_a_readable_start_json_may_be_the_one_that_failed(tmp_path, content):
    crash(Evidence(tmp_path, start="20261126T120000Z-0123abcd"))
    found = Evidence(tmp_path, start="20261126T120500Z-0123abcd")
    found.rank(0, "device_error")
    (found.folder / "start.json").unlink()
    if content is not None:
        (found.folder / "start.json").write_text(content)
    assert newest_start(tmp_path) is None and newest_start(tmp_path, job="7", restart=0) is None
    assert run(tmp_path, "--status", "137").returncode == 137 and not (tmp_path / "failure.json").exists()
    shutil.rmtree(found.folder)
    assert newest_start(tmp_path, job="7", restart=0) == "20261126T120000Z-0123abcd"


HOSTILE = [7, None, [], {}, "x", -1, 1e400, True, "\x1b]0;title\x07", [[]], [{}], {"a": 1}, 10**30, [7, "x", None]]


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_a_value_of_another_kind_hurts_nobody(tmp_path, value):
    keys = "why error culprits time phase step seconds_since_progress watchdog_gap_seconds channels neighbours host pid"
    for number, key in enumerate(keys.split()):
        found = Evidence(tmp_path / str(number), hosts=1, ranks=3)
        found.rank(2, **{key: value})
        found.rank(0, channels=[{**WAITS, "last": value}, {**WAITS, "ranks": value}, {**WAITS, "queued": value}])
        found.rank(1, neighbours=[line(2, channels=value), {**line(2), "rank": value}, {**line(2), "quiet": value}])
        found.write("start.json", {**found.common, "ranks": 3, "hosts": value, "pids": value, "started": value})
        failure = find_failure(found.checkpoints, found.folder.name)
        assert failure is None or failure.verdict.reason.isprintable()


FORMS = {
    "empty": lambda path: path.write_text(""),
    "deep": lambda path: path.write_text("[" * 200_000),
    "list": lambda path: path.write_text("[7]"),
    "huge": lambda path: path.write_bytes(b"x" * (2 << 20)),
    "pipe": os.mkfifo,
    "folder": lambda path: path.mkdir(),
    "link": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_file_of_any_form_hurts_nobody(tmp_path, capsys, form):
    for name in ("start.json", "first", "rank_0.json"):
        found = Evidence(tmp_path / name, hosts=1)
        stuck(found, 0)
        found.rank(1, "device_error")
        (found.folder / name).unlink()
        FORMS[form](found.folder / name)
        result = verdict(found)
        assert result is None if name == "start.json" else result.ranks == (1,)
        ignored = form != "empty" and not (name == "first" and form in ("deep", "list"))
        assert (str(found.folder / name) in capsys.readouterr().err) == ignored
    (tmp_path / "failures").mkdir()
    FORMS[form](tmp_path / "failures/20261126T120000Z-0123abcd")
    assert run(tmp_path, "--status", "9").returncode == 9
