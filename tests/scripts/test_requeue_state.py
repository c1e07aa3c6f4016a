"""scripts/requeue/state.py: what a job keeps in restarts.txt, and what is taken from that file."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from requeue.state import Damaged, State, format_state, load_state, parse_state, record_of, remove_oldest, save_state

FULL = State("7", 1, 2, 3, True, ("n1", "ip-10-0-0-1.ec2"), True, 500, "1763778530.123456789", True, 500)
COMMANDS = ["PATH[$(id>canary)]", "$(id>canary)", "x'$(id>canary)'"]
ODD = ["08", "-1", "99999999999999999999", "*", "1 2", "\x1b]0;title\x07", "--help", "é", "²", "1.5", "True"]


def an_object(**values: object) -> str:
    return json.dumps({"version": 3, **asdict(FULL), **values})


@pytest.mark.parametrize("state", [FULL, State(job="8"), State(job="7_3"), State(job="0", checkpoint_time="0.5")])
def test_the_state_survives_its_file(tmp_path, state):
    path = record_of(tmp_path, state.job)
    save_state(path, state)
    assert load_state(tmp_path, state.job) == state
    assert list(tmp_path.iterdir()) == [path]


VALUES = [
    *COMMANDS, *ODD, "",
    "7.5e", "x" * 300, -1, 1.0, 1e300, 10**15, 10**19, None, [], {}, [1], ["n1", "-x"], ["n1"] * 10_001,
    {"n1": 1},
]  # fmt: skip


@pytest.mark.parametrize("value", [*VALUES, True, 5, "7"], ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("key", asdict(FULL))
def test_each_value_has_one_type_and_a_size(key, value):
    good = {
        bool: value is True, int: type(value) is int and 0 <= value < 10**15, tuple: value == [],
        str: value == "7" or (key == "checkpoint_time" and value in ("08", "1.5")),
    }  # fmt: skip
    if good[type(getattr(FULL, key))]:
        assert getattr(parse_state(an_object(**{key: value})), key) == (() if value == [] else value)
        return
    with pytest.raises(Damaged, match=rf"^invalid {key}: [^\x00-\x1f]*$"):
        parse_state(an_object(**{key: value}))


DAMAGED = {
    "no version": json.dumps(asdict(FULL)),
    "a newer version": an_object(version=4),
    "a version that is none": an_object(version=True),
    "another key": an_object(path="/canary"),
    "a key twice": an_object()[:-1] + ', "failures": 0}',
    "a key too few": json.dumps({"version": 3, "job": "7"}),
    "another job's name": an_object(job="7_"),
    "half of it": an_object()[:-20],
    "a number of many digits": an_object().replace("500", "5" * 100_000),
    "no number": an_object().replace("500", "NaN"),
    "deep": '{"job":' * 100_000,
    "a list": "[7]",
    "nothing": "",
    "an older version": an_object(version=2),
    "words": "job=7 failures=1\n",
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_named_and_no_jobs_state(tmp_path, capsys, text):
    path = tmp_path / "restarts.7.txt"
    path.write_text(text)
    assert load_state(tmp_path, "7") == State(job="")
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert f"{path} is damaged (" in said.err and "is reset" in said.err
    assert '"version": 4' not in text or "its version is '4', expected 3" in said.err


def test_the_newest_records_are_kept(tmp_path):
    others = {tmp_path / name for name in ("restarts.x.txt", "latest", "restarts.7.txt.abc")}
    records = [record_of(tmp_path, f"{number}") for number in range(103)]
    for time, path in enumerate([*others, *records]):
        path.touch()
        os.utime(path, (time, time))
    remove_oldest(tmp_path)
    assert set(tmp_path.iterdir()) == {*others, *records[3:]}


def test_a_second_job_with_the_same_folder_changes_nothing_of_the_firsts_record(job):
    flags = "MPZERO_EXTRA_FLAGS=(--overwrite); "
    assert job(flags + "begin_run; save 4; end_run 75").returncode == 75
    assert job(flags + "begin_run; save 5", SLURM_RESTART_COUNT="1").returncode == 0
    before = job.record("7").read_text()
    # mpzero refuses it as soon as it asks for the folder's lock; until then it runs.
    second = job("SLURM_JOB_ID=8; " + flags + "begin_run; end_run 2")
    assert second.returncode == 2 and job.record("7").read_text() == before
    first = job(flags + "end_run 1; ", SLURM_RESTART_COUNT="1")
    assert first.returncode == 1 and job.requeued(), first.stderr
    again = job(flags + "begin_run; echo flags ${MPZERO_EXTRA_FLAGS[*]}", SLURM_RESTART_COUNT="2")
    assert "flags\n" in again.stdout, again.stderr


# As commit db0cd214 wrote it.
EARLIER = (
    '{"version": 3, "job": "7", "failures": 2, "refusals": 0, "unsaved_starts": 0, "last_run_failed": false, '
    '"blamed_nodes": ["node2"], "running": false, "start_step": 4, "checkpoint_time": "14.5", "has_saved": true, '
    '"furthest_step": 4, "waits": 0}\n'
)


def test_a_job_that_is_requeued_across_an_upgrade_keeps_its_history(job):
    job.record("7").write_text(EARLIER)
    flags = "MPZERO_EXTRA_FLAGS=(--overwrite --bf16); "
    begun = job(
        flags + "save 5; begin_run; echo flags ${MPZERO_EXTRA_FLAGS[*]}; save 6; end_run 1", SLURM_RESTART_COUNT="3"
    )
    # It has saved, so that it resumes from its own checkpoint, and this is its first failure without progress.
    assert "flags --bf16\n" in begun.stdout and "requeue 1 of at most 3" in begun.stdout, begun.stderr
    assert (job.state()["failures"], job.state()["has_saved"]) == (1, True)
    assert format_state(parse_state(EARLIER)) == EARLIER
