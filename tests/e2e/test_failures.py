"""A run that cannot continue ends on every rank, soon, with one line on stderr, and leaves evidence of the cause."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from live_run import LiveRun, hang_at
from tiny_run import TinyRun
from trainer import BUILD, ENVIRONMENT, REPOSITORY, children_of, num_gpus

pytestmark = pytest.mark.e2e

ENDLESS = ("--max_steps=100000", "--checkpoint_freq=0")
STUCK_AFTER = 4
# GPUs of one host then reach each other as those of two hosts do: NCCL reports a peer that is gone.
SOCKETS = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NET": "Socket"}
# Only distinguishes an end in time from a hang.
SOON = 60


def reports(live: LiveRun) -> list[str]:
    return error_lines(live.errors)


def error_lines(errors: str) -> list[str]:
    return [line for line in errors.splitlines() if line.startswith("mpzero: error: ")]


def evidence_in(folder: Path) -> dict[int, dict]:
    """What the ranks of the only start that failed have left, by rank."""
    (start,) = (folder / "failures").iterdir()
    found = {}
    for path in start.glob("rank_*.json"):
        evidence = json.loads(path.read_text())
        assert path.name == f"rank_{evidence['rank']}.json"
        assert evidence["start"] == start.name
        found[evidence["rank"]] = evidence
    assert int((start / "first").read_text().split()[0]) in found
    assert json.loads((start / "start.json").read_text())["start"] == start.name
    return found


def evidence_of(folder: Path, rank: int) -> dict:
    (path,) = folder.glob(f"failures/*/rank_{rank}.json")
    return json.loads(path.read_text())


def first_in(folder: Path) -> dict:
    """The evidence of the rank that printed the line."""
    (first,) = (folder / "failures").glob("*/first")
    return json.loads((first.parent / f"rank_{first.read_text().split()[0]}.json").read_text())


def blamed(folder: Path, *flags: str) -> list[int]:
    """The ranks of failure.json, as `mpzero failure` writes it."""
    subprocess.run([sys.executable, str(REPOSITORY / "app/failure.py"), str(folder), *flags], capture_output=True)
    return json.loads((folder / "failure.json").read_text())["ranks"]


def neighbor(evidence: dict, rank: int) -> dict:
    (found,) = [line for line in evidence["neighbours"] if line["rank"] == rank]
    return found


def open_collectives(evidence: dict) -> list[tuple[str, int]]:
    """Name of the communicator and number of each collective that the rank has started and not completed."""
    return [(one["name"], one["completed"] + 1) for one in evidence["channels"] if one["started"] > one["completed"]]


def assert_recorded(run: TinyRun, status: str, reason: str) -> None:
    """The run's own files, too, say how it has ended, once."""
    events = [json.loads(line) for line in (run.folder / "events.jsonl").read_text().splitlines()]
    ends = [event for event in events if event["event"] == "end"]
    summary = json.loads((run.folder / "summary.json").read_text())
    assert [(end["status"], end["reason"]) for end in ends] == [(status, reason)]
    assert (summary["run"], summary["status"], summary["reason"]) == (events[0]["run"], status, reason)
    assert ends[0]["start"] == events[0]["start"]


@pytest.mark.parametrize(("number", "rank"), [(signal.SIGKILL, 0), (signal.SIGSEGV, 2)])
def test_a_rank_that_dies_ends_the_run(tmp_path: Path, number: signal.Signals, rank: int) -> None:
    run = TinyRun(tmp_path, ranks=3, stage=3)
    with LiveRun(run, *ENDLESS) as live:
        live.wait_for_step(3)
        live.signal(number, rank)
        # The others do not wait for --stuck_after, which is minutes.
        assert live.finish(limit=SOON) not in (0, 2, 75)
    (report,) = reports(live)
    assert f"rank {rank} on {socket.gethostname()} (pid {live.pids[rank]})" in report
    evidence = evidence_in(run.checkpoints)
    assert set(evidence) == {0, 1, 2} - {rank}
    for other in evidence.values():
        assert (other["why"], other["phase"]) == ("signal", "training")
        seen = neighbor(other, rank)
        assert (seen["pid"], seen["alive"], seen["exit_status"]) == (live.pids[rank], False, None)
        assert open_collectives(other)
    first = first_in(run.checkpoints)
    assert (first["culprits"], f"mpzero: error: {first['reason']}") == ([rank], report)
    assert_recorded(run, "failed", first["reason"])
    # Not if the rank that counts the steps has died.
    if rank != 0:
        assert re.search(r"^Run [0-9a-f]{16}: [1-9]\d* steps?, ", live.output, re.MULTILINE), live.output


def test_a_start_that_is_refused_does_not_hide_the_failure_of_the_running_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPZERO_LAUNCH", "this one")
    run = TinyRun(tmp_path)
    with LiveRun(run, *ENDLESS) as live:
        live.wait_for_step(3)
        # On one rank only: this start leaves evidence.
        monkeypatch.setenv("MPZERO_LAUNCH", "another")
        assert failing_rank("mistake", 1, run.checkpoints, ranks=2, stuck_after=600)[0] == 2
        assert run.train(*ENDLESS, check=False).returncode == 2
        assert len(list((run.checkpoints / "failures").iterdir())) == 2
        live.signal(signal.SIGKILL, 1)
        live.finish(limit=SOON)
    assert blamed(run.checkpoints) == blamed(run.checkpoints, "--status=137", "--launch=this one") == [1]


def test_a_rank_that_dies_after_it_was_asked_to_stop_is_blamed(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    with LiveRun(run, *ENDLESS) as live:
        live.signal_waiting_rank(signal.SIGUSR1)
        live.wait_for(lambda: list(run.checkpoints.glob("failures/*/rank_0.json")) != [], "evidence of rank 0")
        assert evidence_of(run.checkpoints, 0)["provisional"]
        live.signal(signal.SIGKILL, 0)
        live.signal(signal.SIGCONT, 1)
        assert live.finish(limit=SOON) not in (0, 2, 75)
    assert not evidence_of(run.checkpoints, 1)["provisional"]
    assert blamed(run.checkpoints) == [0]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_stopped_rank_ends_the_run_within_the_limit_and_no_process_remains(tmp_path: Path, rank: int) -> None:
    run = TinyRun(tmp_path)
    with LiveRun(run, *ENDLESS, f"--stuck_after={STUCK_AFTER}") as live:
        live.wait_for_step(3)
        live.signal(signal.SIGSTOP, rank)
        assert live.finish(limit=SOON) not in (0, 2, 75)
    (report,) = reports(live)
    first = first_in(run.checkpoints)
    assert (first["why"], first["rank"], f"mpzero: error: {first['reason']}") == ("stuck", 1 - rank, report)
    assert first["seconds_since_progress"] >= first["limit"] == STUCK_AFTER
    seen = neighbor(first, rank)
    assert seen["alive"]
    assert seen["quiet"] >= STUCK_AFTER - 1
    # mpirun continues the rank before it ends it.
    assert evidence_in(run.checkpoints).get(rank, {"watchdog_gap_seconds": 9})["watchdog_gap_seconds"] > 1
    assert_recorded(run, "failed", first["reason"])
    assert blamed(run.checkpoints) == [rank]


def test_a_short_pause_ends_nothing(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    with LiveRun(run, *ENDLESS, "--stuck_after=8") as live:
        live.wait_for_step(3)
        for rank in (0, 1):
            live.signal(signal.SIGSTOP, rank)
            time.sleep(2)
            live.signal(signal.SIGCONT, rank)
        # Like Slurm when it suspends a job.
        live.signal(signal.SIGSTOP, 0, 1)
        time.sleep(12)
        steps = len(run.metrics())
        live.signal(signal.SIGCONT, 0, 1)
        live.wait_for_step(steps + 20)
        live.signal(signal.SIGTERM, 0)
        assert live.finish() == 75, live.errors
    assert reports(live) == []


def test_a_step_of_one_rank_may_take_longer_than_the_limit(tmp_path: Path) -> None:
    """It has no collectives that show its progress."""
    run, limit = TinyRun(tmp_path, ranks=1, config={"gradient_accumulation_steps": 2000}), 1
    run.train("--max_steps=1", "--checkpoint_freq=0", f"--stuck_after={limit}")
    assert run.metrics()[-1]["step_seconds"] > limit


@pytest.mark.parametrize(
    ("file", "phase"), [("latest", "setup"), ("zero_pp_rank_0_mp_rank_00_optim_states.h5", "checkpoint")]
)
def test_a_checkpoint_folder_that_hangs_ends_the_run_with_evidence_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, phase: str
) -> None:
    """The training thread waits for a disk that does not respond, and so would evidence in the same folder. A stop
    while a rank saves changes nothing."""
    run = TinyRun(tmp_path)
    if phase == "setup":
        run.train("--max_steps=1")
    monkeypatch.setenv("MPZERO_LOG_DIR", str(tmp_path / "log"))
    hang_at(file, run, monkeypatch)
    monkeypatch.setenv("HANGING_PATH", "/checkpoints/failures/")
    with LiveRun(run, "--max_steps=100000", "--checkpoint_freq=2", "--async_save=false", "--stuck_after=1") as live:
        live.wait_for(lambda: any(run.folder.glob("hangs-*")), "a rank opens the file")
        if phase == "checkpoint":
            live.process.send_signal(signal.SIGUSR1)
        assert live.finish(limit=SOON) == 1
    (report,) = reports(live)
    assert f"{tmp_path}/log/failures/" in report
    # Setup and saves may take three times as long as --stuck_after says.
    first = first_in(tmp_path / "log")
    assert (first["why"], first["phase"], first["limit"]) == ("stuck", phase, 3)


def start_failing_rank(
    what: str, rank: int, folder: Path, *, ranks: int = 3, stuck_after: float
) -> subprocess.Popen[str]:
    """Ranks, one of which fails; see tests/app/watchdog/failing_rank.cpp."""
    program = [str(BUILD / "tests" / "failing_rank"), what, str(rank), str(stuck_after), str(folder)]
    return subprocess.Popen(
        ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT},
    )


def pids_by_rank(process: subprocess.Popen[str]) -> dict[int, int]:
    pids = {}
    for pid in children_of(process):
        found = re.search(r"\bOMPI_COMM_WORLD_RANK=(\d+)\0", Path(f"/proc/{pid}/environ").read_text())
        if found:
            pids[int(found[1])] = int(pid)
    return pids


def wait_until(condition: Callable[[], bool]) -> None:
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < SOON
        time.sleep(0.01)


def failing_rank(what: str, rank: int, folder: Path, *, ranks: int = 3, stuck_after: float | str) -> tuple[int, str]:
    """Their exit status and stderr."""
    with start_failing_rank(what, rank, folder, ranks=ranks, stuck_after=stuck_after) as process:
        try:
            _, errors = process.communicate(timeout=SOON)
        except subprocess.TimeoutExpired:
            process.terminate()
            raise
        return process.returncode, errors


def test_without_a_writable_folder_each_rank_prints_its_evidence_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MPZERO_LOG_DIR", str(tmp_path / "file"))
    status, errors = failing_rank("error", 2, tmp_path / "file", stuck_after=600)
    assert status == 1
    found = [json.loads(line.partition("evidence: ")[2]) for line in errors.splitlines() if "evidence: " in line]
    assert sorted(one["rank"] for one in found) == [0, 1, 2]


def test_an_error_of_one_rank_is_reported_once_and_ends_all(tmp_path: Path) -> None:
    rank = 2
    status, errors = failing_rank("error", rank, tmp_path, stuck_after=600)
    assert status == 1
    (report,) = error_lines(errors)
    assert all(part in report for part in (f"rank {rank} on {socket.gethostname()}", "step 10", "something odd"))
    evidence = evidence_in(tmp_path)
    assert {one: evidence[one]["why"] for one in evidence} == {0: "signal", 1: "signal", 2: "signal"} | {rank: "error"}
    assert (evidence[rank]["step"], evidence[rank]["exit_status"]) == (10, 1)
    assert first_in(tmp_path)["rank"] == rank


@pytest.mark.parametrize(("hangs", "stuck_after"), [(None, 600), (0, 2), (1, 2)])
def test_an_error_of_all_ranks_is_reported_by_rank_0_and_blames_nobody(
    tmp_path: Path, hangs: int | None, stuck_after: float
) -> None:
    """Although the ranks were also asked to stop, and although one hangs after the error."""
    status, errors = failing_rank("shared_error", -1 if hangs is None else hangs, tmp_path, stuck_after=stuck_after)
    assert status == 1
    assert error_lines(errors) == ["mpzero: error: cannot save"]
    evidence = evidence_of(tmp_path, 0)
    assert (evidence["why"], evidence["error"], evidence["provisional"]) == ("shared_error", "cannot save", False)
    assert blamed(tmp_path) == []


def test_an_error_of_all_ranks_names_the_rank_whose_file_system_failed(tmp_path: Path) -> None:
    status, _ = failing_rank("stale_file", 2, tmp_path, stuck_after=600)
    assert status == 1
    assert [path.name for path in tmp_path.glob("failures/*/rank_*.json")] == ["rank_0.json"]
    evidence = evidence_of(tmp_path, 0)
    assert (evidence["why"], evidence["culprits"]) == ("shared_error", [2])


@pytest.mark.parametrize("hangs", [0, 1])
def test_a_user_error_of_all_ranks_stays_one(tmp_path: Path, hangs: int) -> None:
    status, errors = failing_rank("shared_mistake", hangs, tmp_path, stuck_after=2)
    assert status == 2
    assert error_lines(errors) == ["mpzero: error: cannot save"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("what", "rank"), [("nccl_error", 0), ("nccl_lost", 2)])
def test_an_error_of_nccl_is_attributed_to_the_peer_that_failed(tmp_path: Path, what: str, rank: int) -> None:
    status, errors = failing_rank(what, rank, tmp_path, stuck_after=600)
    assert status not in (0, 2, 75)
    assert len(error_lines(errors)) == 1, errors
    whys = {one: evidence["why"] for one, evidence in evidence_in(tmp_path).items()}
    assert "communicator_error" in whys.values()
    assert whys.pop(rank, "error") == "error"
    assert blamed(tmp_path) == [rank]


def test_a_rank_that_does_not_reach_a_collective_is_behind_in_the_evidence(tmp_path: Path) -> None:
    status, errors = failing_rank("hang", 1, tmp_path, stuck_after=2)
    assert status == 1
    assert len(error_lines(errors)) == 1
    queued = {one: evidence["channels"][1]["queued"] for one, evidence in evidence_in(tmp_path).items()}
    assert queued == {0: 10, 1: 9, 2: 10}


@pytest.mark.parametrize(
    ("what", "words", "rank"), [("no_efa", "failed to initialize EFA", 0), ("other_network", "instead of EFA", 2)]
)
def test_a_network_that_does_not_start_on_one_rank_is_reported_once(
    tmp_path: Path, what: str, words: str, rank: int
) -> None:
    """Its peers fail too, or know of it: the rank whose network fails is to blame."""
    status, errors = failing_rank(what, rank, tmp_path / "new", stuck_after=600)
    assert status == 1
    (report,) = error_lines(errors)
    assert f"rank {rank} on " in report
    assert words in report
    named = [one["culprits"] for one in evidence_in(tmp_path / "new").values() if words in one["error"]]
    assert named == [[rank]] * len(named) != []


def test_a_rank_whose_evidence_goes_elsewhere_adds_no_second_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint folder responds to some ranks of a host only."""
    monkeypatch.setenv("LD_PRELOAD", str(BUILD / "tests/libhanging_file.so"))
    monkeypatch.setenv("HANGING_PATH", str(tmp_path / "new"))
    monkeypatch.setenv("HANGING_SEEN", f"{tmp_path}/hangs-")
    monkeypatch.setenv("MPZERO_LOG_DIR", str(tmp_path / "log"))
    monkeypatch.setenv("OMPI_MCA_odls_base_sigkill_timeout", "8")  # Slurm allows more
    status, errors = failing_rank("other_network", 2, tmp_path / "new", stuck_after=600)
    assert status == 1
    assert len(error_lines(errors)) == 1, errors
    assert list(tmp_path.glob("hangs-*")) != []


@pytest.mark.parametrize("what", ["unconnected", "alone"])
def test_nodes_that_are_not_connected_end_the_run(tmp_path: Path, what: str) -> None:
    status, errors = failing_rank(what, 1, tmp_path, stuck_after=1)
    assert status == 1
    (report,) = error_lines(errors)
    assert 'no answer over "Libfabric"' in report
    evidence = evidence_in(tmp_path)[1]
    assert (evidence["why"], evidence["phase"]) == ("stuck", "network")


def test_a_rank_that_dies_during_set_up_is_no_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """srun sends SIGTERM to the others before they can know."""
    monkeypatch.setenv("OMPI_MCA_odls_base_sigkill_timeout", "8")
    with start_failing_rank("unconnected", 0, tmp_path, ranks=2, stuck_after=600) as process:
        assert [process.stdout.readline() for _ in range(2)] == ["connects\n"] * 2
        pids = pids_by_rank(process)
        os.kill(pids[1], signal.SIGTERM)
        os.kill(pids[0], signal.SIGKILL)
        _, errors = process.communicate(timeout=SOON)
    (report,) = error_lines(errors)
    assert "rank 0 on " in report
    assert evidence_in(tmp_path)[1]["culprits"] == [0]


def test_a_failure_on_another_host_is_no_stop(tmp_path: Path) -> None:
    """srun sends SIGTERM to the ranks of this host, which know of the other one only by the file `first`."""
    (tmp_path / "failures").mkdir()
    with start_failing_rank("unconnected", 0, tmp_path, ranks=2, stuck_after=600) as process:
        assert [process.stdout.readline() for _ in range(2)] == ["connects\n"] * 2
        (start,) = (tmp_path / "failures").iterdir()
        (start / "first").write_text("1\nanother host failed\n")
        os.kill(pids_by_rank(process)[0], signal.SIGTERM)
        _, errors = process.communicate(timeout=SOON)
    assert process.returncode == 1
    assert error_lines(errors) == []
    assert {one["why"] for one in evidence_in(tmp_path).values()} == {"signal"}


def test_a_stop_while_the_nodes_are_being_connected_is_handled(tmp_path: Path) -> None:
    with start_failing_rank("unconnected", 0, tmp_path, ranks=2, stuck_after=600) as process:
        assert [process.stdout.readline() for _ in range(2)] == ["connects\n"] * 2
        os.kill(int(children_of(process)[1]), signal.SIGTERM)
        _, errors = process.communicate(timeout=SOON)
    assert process.returncode == 75
    assert "stopped before the first step" in errors
    assert list(tmp_path.iterdir()) == []


def test_a_user_error_on_one_rank_is_not_a_failure_of_the_others(tmp_path: Path) -> None:
    """MPI asks the others to end with the signal that also asks a run to stop."""
    status, errors = failing_rank("mistake", 1, tmp_path, stuck_after=600)
    assert status == 2
    assert error_lines(errors) == ["mpzero: error: rank 1: a mistake of the user's"]
    assert "before the first step" not in errors
    first = first_in(tmp_path)
    assert (first["rank"], first["why"], first["exit_status"]) == (1, "user_error", 2)


def test_ranks_that_leave_normally_are_not_a_failure(tmp_path: Path) -> None:
    assert failing_rank("leave", 0, tmp_path, ranks=4, stuck_after=1) == (0, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stuck_after", [0, 1])
def test_a_rank_that_leaves_long_after_the_others_is_not_a_failure(tmp_path: Path, stuck_after: int) -> None:
    """Rank 0 waits for it for longer than --stuck_after; 0 is no limit."""
    assert failing_rank("late", 1, tmp_path, stuck_after=stuck_after) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_hangs_after_the_others_have_left_is_named(tmp_path: Path) -> None:
    status, errors = failing_rank("never", 1, tmp_path, stuck_after=2)
    assert status == 1
    (report,) = error_lines(errors)
    assert "rank 1 on " in report
    first = first_in(tmp_path)
    assert (first["rank"], first["why"]) == (1, "stuck")
    assert neighbor(first, 0)["phase"] == "ending"


@pytest.mark.parametrize(("what", "line", "ready"), [("never", "leaves", 2), ("absent", "meets", 1)])
def test_two_interrupts_end_a_rank_that_waits_for_another(tmp_path: Path, what: str, line: str, ready: int) -> None:
    with start_failing_rank(what, 1, tmp_path, ranks=ready + 1, stuck_after=600) as process:
        assert [process.stdout.readline() for _ in range(ready)] == [f"{line}\n"] * ready
        first = pids_by_rank(process)[0]
        os.kill(first, signal.SIGINT)
        while "interrupted: " not in process.stderr.readline():
            pass
        os.kill(first, signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=SOON)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "mpzero: interrupted twice" in errors


def test_errors_that_nobody_reads_do_not_keep_a_run_from_ending(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.set_blocking(write, True)
    program = [str(BUILD / "tests" / "failing_rank"), "hang", "0", "1", str(tmp_path)]
    with subprocess.Popen(program, stderr=write, env={**os.environ, **ENVIRONMENT}) as process:
        try:
            assert process.wait(timeout=SOON) == 1
        finally:
            process.kill()
            os.close(read)
            os.close(write)
    assert first_in(tmp_path)["why"] == "stuck"


def test_ranks_that_wait_in_vain_to_meet_another_one_end(tmp_path: Path) -> None:
    status, errors = failing_rank("absent", 1, tmp_path, stuck_after=2)
    assert status == 1
    assert "mpzero: error: the ranks did not connect" in errors


@pytest.mark.parametrize(("rank", "stuck_after", "status"), [(0, 600, 75), (1, 0, 75), (1, 1, 1)])
def test_a_stop_while_the_ranks_meet_is_obeyed(tmp_path: Path, rank: int, stuck_after: float, status: int) -> None:
    """Only rank 0 reports the stop. A stop after the limit is a failure, since rank 0 has then ended with one."""
    with start_failing_rank("absent", 1 - rank, tmp_path, ranks=2, stuck_after=stuck_after) as process:
        assert process.stdout.readline() == "meets\n"
        os.kill(pids_by_rank(process)[rank], signal.SIGTERM)
        try:
            _, errors = process.communicate(timeout=SOON)
        finally:
            process.kill()
    assert process.returncode == status
    assert errors.count("mpzero: stopped before the first step") == (rank == 0)


def test_a_limit_of_many_years_never_passes(tmp_path: Path) -> None:
    assert failing_rank("leave", 0, tmp_path, stuck_after="1e308") == (0, "")


def test_a_slow_rank_is_named(tmp_path: Path) -> None:
    """Rank 1 gets a fifth of the time, in slices that are shorter than a step."""
    run = TinyRun(tmp_path)
    with LiveRun(run, *ENDLESS) as live:
        live.wait_for_step(3)
        slow = threading.Event()

        def hold_up() -> None:
            while not slow.is_set():
                live.signal(signal.SIGSTOP, 1)
                time.sleep(0.004)
                live.signal(signal.SIGCONT, 1)
                time.sleep(0.001)

        holding = threading.Thread(target=hold_up)
        holding.start()
        try:
            live.wait_for(lambda: "straggler: " in live.errors, "warning of the slow rank")
        finally:
            slow.set()
            holding.join()
        live.signal(signal.SIGTERM, 0)
        assert live.finish() == 75
    (line, *_) = [line for line in live.errors.splitlines() if "straggler: " in line]
    words = rf"mpzero: warning: straggler: rank 1 on {socket.gethostname()}: compute time [\d.]+ ms per step"
    assert re.match(words, line), line
    slowest = [line["slowest_rank"] for line in run.metrics() if line.get("slowest_rank_share", 0) > 0.5]
    assert slowest.count(1) > len(slowest) / 2
    assert all(0 <= line["slowest_rank_share"] <= 1 for line in run.metrics()[2:])


@pytest.mark.skipif(num_gpus() < 2, reason="fewer than 2 GPUs")
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("transport", [{}, SOCKETS], ids=["memory", "sockets"])
def test_gpu_ranks_end_with_one_that_died_or_stopped(
    tmp_path: Path, transport: dict[str, str], number: signal.Signals, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels that wait for a peer end too: the GPUs are free afterwards, for the run that resumes."""
    for name, value in transport.items():
        monkeypatch.setenv(name, value)
    run = TinyRun(tmp_path, stage=3, bf16=True, device="cuda")
    with LiveRun(run, "--max_steps=100000", "--checkpoint_freq=20", f"--stuck_after={STUCK_AFTER}") as live:
        live.wait_for_output("Saved checkpoint")
        live.wait_for_step(30)
        live.signal(number, rank)
        assert live.finish(limit=SOON) not in (0, 2, 75)
    assert len(reports(live)) == 1
    evidence = evidence_in(run.checkpoints)[1 - rank]
    assert neighbor(evidence, rank)["alive"] == (number == signal.SIGSTOP)
    assert open_collectives(evidence)
    assert evidence["host_condition"]["gpu"]
    assert number == signal.SIGSTOP or blamed(run.checkpoints) == [rank]
    saved = int(run.latest.name.split("-")[1].removesuffix("steps"))
    result = run.train(f"--max_steps={saved + 2}")
    assert f"Resumed from checkpoint at step {saved}" in result.stdout


@pytest.mark.skipif(num_gpus() < 2, reason="fewer than 2 GPUs")
def test_a_gpu_run_stops_with_its_state_saved(tmp_path: Path) -> None:
    run = TinyRun(tmp_path, stage=3, bf16=True, device="cuda")
    with LiveRun(run, *ENDLESS) as live:
        live.wait_for_step(30)
        live.signal(signal.SIGTERM, 1)
        assert live.finish() == 75, live.errors
    saved = int(run.latest.name.split("-")[1].removesuffix("steps"))
    assert run.metrics()[-1]["step"] == saved
    assert all(line["slowest_rank"] in (0, 1) for line in run.metrics()[4:])
    result = run.train(f"--max_steps={saved + 2}")
    assert f"Resumed from checkpoint at step {saved}" in result.stdout


@pytest.mark.skipif(num_gpus() < 2, reason="fewer than 2 GPUs")
@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_of_one_gpu_rank_is_reported_while_its_peer_waits_in_a_kernel(tmp_path: Path, rank: int) -> None:
    status, errors = failing_rank("gpu_error", rank, tmp_path, ranks=2, stuck_after=600)
    assert status == 1
    (report,) = error_lines(errors)
    assert f"rank {rank} on " in report
    queued = {one: evidence["channels"][1]["queued"] for one, evidence in evidence_in(tmp_path).items()}
    assert queued == {rank: 9, 1 - rank: 10}
