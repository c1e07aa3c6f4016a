"""scripts/requeue/state.py: what a job keeps in restarts.txt, and what is taken from that file."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from requeue.state import Damaged, State, format_state, load_state, parse_state, save_state

FULL = State("7", 1, 2, 3, True, ("n1", "ip-10-0-0-1.ec2"), True, 500, "1763778530.123456789", True)
# As versions of mpzero before JSON wrote it.
WORDS = {
    "job": "7", "failures": "1", "refusals": "2", "barren": "3", "failed_before": "true",
    "blamed_before": "n1,ip-10-0-0-1.ec2", "open": "true", "step": "500", "time": "1763778530.123456789",
    "saved": "true",
}  # fmt: skip

COMMANDS = ["PATH[$(id>canary)]", "$(id>canary)", "x'$(id>canary)'"]
ODD = ["08", "-1", "99999999999999999999", "*", "1 2", "\x1b]0;title\x07", "--help", "é", "²", "1.5", "True", ""]


def words(**values: str) -> str:
    return " ".join(f"{key}={value}" for key, value in {**WORDS, **values}.items()) + "\n"


def an_object(**values: object) -> str:
    return json.dumps({"version": 1, **asdict(FULL), **values})


@pytest.mark.parametrize("state", [FULL, State(job="8"), State(job="0", checkpoint_time="0.5")])
def test_the_state_survives_its_file(tmp_path, state):
    save_state(tmp_path / "restarts.txt", state)
    assert load_state(tmp_path / "restarts.txt") == state
    assert [path.name for path in tmp_path.iterdir()] == ["restarts.txt"]


def test_the_keys_of_earlier_versions_are_read():
    assert parse_state(words()) == FULL
    assert parse_state(words(blamed_before="", open="false", time="0")).blamed_nodes == ()


@pytest.mark.parametrize("value", COMMANDS + ODD)
@pytest.mark.parametrize("key", WORDS)
def test_each_key_has_one_form(key, value):
    # No node may be blamed; a time may begin with zeros, as 0.5 does; 1.5 is a time, and as a name a node's.
    if (key, value) in {("blamed_before", ""), ("time", "08"), ("time", "1.5")} or (
        key == "blamed_before" and value.isascii() and value.replace(".", "").isalnum()
    ):
        assert parse_state(words(**{key: value})).job == "7"
        return
    with pytest.raises(Damaged, match=r"^[^\x00-\x1f]*$"):
        parse_state(words(**{key: value}))


VALUES = [
    *COMMANDS, "", "7.5e", "x" * 300, -1, 1.0, 1e300, 10**15, 10**19, None, [], {}, [1], ["n1", "-x"], ["n1"] * 10_001,
    {"n1": 1},
]  # fmt: skip


@pytest.mark.parametrize("value", [*VALUES, True, 5, "7"], ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("key", asdict(FULL))
def test_each_value_has_one_type_and_a_size(key, value):
    good = {
        bool: value is True, int: type(value) is int and 0 <= value < 10**15, tuple: value == [], str: value == "7",
    }  # fmt: skip
    if good[type(getattr(FULL, key))]:
        assert getattr(parse_state(an_object(**{key: value})), key) == (() if value == [] else value)
        return
    with pytest.raises(Damaged, match=rf"^its {key} is [^\x00-\x1f]*$"):
        parse_state(an_object(**{key: value}))


DAMAGED = {
    "no version": json.dumps(asdict(FULL)),
    "a newer version": an_object(version=2),
    "a version that is none": an_object(version=True),
    "another key": an_object(path="/canary"),
    "a key twice": an_object()[:-1] + ', "failures": 0}',
    "a key too few": json.dumps({"version": 1, "job": "7"}),
    "half of it": an_object()[:-20],
    "a number of many digits": an_object().replace("500", "5" * 100_000),
    "no number": an_object().replace("500", "NaN"),
    "deep": '{"job":' * 100_000,
    "a list": "[7]",
    "nothing": "",
    "a word too few": "job=7 failures=1\n",
    "a word twice": words() + "failures=1",
    "another word": words() + "PATH=/canary",
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_named_and_no_jobs_state(tmp_path, capsys, text):
    path = tmp_path / "restarts.txt"
    path.write_text(text)
    assert load_state(path) == State(job="")
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert f"{path} is not as a job leaves it (" in said.err and "counted anew" in said.err


def test_a_newer_version_is_named(tmp_path, capsys):
    (tmp_path / "restarts.txt").write_text(an_object(version=2))
    load_state(tmp_path / "restarts.txt")
    assert "its version is '2', and this mpzero reads version 1" in capsys.readouterr().err


def test_a_job_that_is_requeued_across_an_upgrade_keeps_its_history(job):
    (job.checkpoints / "restarts.txt").write_text(
        "job=7 failures=2 refusals=0 barren=0 failed_before=false blamed_before=node2 open=false step=4 time=14.5 "
        "saved=true\n"
    )
    flags = "MPZERO_EXTRA_FLAGS=(--overwrite --bf16); "
    begun = job(
        flags + "save 5; begin_run; echo flags ${MPZERO_EXTRA_FLAGS[*]}; save 6; end_run 1", SLURM_RESTART_COUNT="3"
    )
    # It has saved, so that it resumes from its own checkpoint, and this is its third failure.
    assert "flags --bf16\n" in begun.stdout and "Requeue 3 of at most 3 after failures" in begun.stdout, begun.stderr
    assert (job.state()["version"], job.state()["failures"], job.state()["blamed_nodes"]) == (1, 3, ["node2"])
    assert (
        format_state(parse_state((job.checkpoints / "restarts.txt").read_text()))
        == (job.checkpoints / "restarts.txt").read_text()
    )
