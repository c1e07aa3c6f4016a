"""Several runs and one folder: which checkpoints and metrics belong to which run."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import xxhash
from test_resume import assert_same_bits
from test_saving import checkpoint_command, flip_last_bit
from tiny_run import TinyRun
from trainer import BUILD

pytestmark = pytest.mark.e2e


FREQUENT = "--checkpoint_freq=2"


def run_id(checkpoint: Path) -> str:
    return json.loads((checkpoint / "manifest.json").read_text())["content"]["run"]["id"]


def forget_run(checkpoint: Path) -> None:
    """Turns the manifest into one of an older mpzero without ids."""
    manifest = checkpoint / "manifest.json"
    content = json.loads(manifest.read_text())["content"]
    del content["run"]
    text = json.dumps(content, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    manifest.write_text(f'{{"content":{text},\n"content_xxh3_64":"{xxhash.xxh3_64_hexdigest(text.encode())}"}}\n')


def files_in(folder: Path) -> dict[str, bytes]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def the_error(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 2, result.stdout + result.stderr
    (sentence,) = [line for line in result.stderr.splitlines() if line.startswith("mpzero: error: ")]
    return sentence


def assert_refused(run: TinyRun, *flags: object) -> str:
    """Checks that the run is refused, that the message has both remedies, and that nothing has changed."""
    before = files_in(run.folder)
    sentence = the_error(run.train("--max_steps=60", *flags, check=False))
    assert "--checkpoint_dir" in sentence
    assert "--overwrite" in sentence
    after = files_in(run.folder)
    after["ds_config.json"] = before["ds_config.json"]
    assert after == before
    return sentence


def with_metrics_inside(run: TinyRun) -> str:
    return f"--metrics_file={run.checkpoints / 'metrics.jsonl'}"


def without_metrics_flag(run: TinyRun) -> TinyRun:
    flags = run.flags
    run.flags = lambda: [flag for flag in flags() if not flag.startswith("--metrics_file")]
    return run


def test_a_new_run_does_not_begin_among_anothers_checkpoints(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=4", FREQUENT)
    sentence = assert_refused(run, "--resume_from_checkpoint=none")
    assert f"{run.checkpoints} holds tiny-4steps and 1 more of another run (run {run_id(run.latest)[:8]})" in sentence
    assert str(run.checkpoints / "old-1") in sentence
    # Neither without `latest`, nor among damaged checkpoints, nor among those of another model.
    (run.checkpoints / "latest").unlink()
    shutil.rmtree(run.checkpoints / "tiny-4steps")
    (run.checkpoints / "tiny-2steps" / "manifest.json").write_text("{}")
    assert "tiny-2steps" in assert_refused(run, "--resume_from_checkpoint=none")
    (run.checkpoints / "tiny-2steps").rename(run.checkpoints / "large-2steps")
    assert "large-2steps" in assert_refused(run)


@pytest.mark.parametrize("flags", [["--overwrite"], ["--resume_from_checkpoint=none", "--overwrite"]])
def test_overwrite_moves_the_full_old_run_aside(tmp_path: Path, flags: list[str]) -> None:
    run = without_metrics_flag(TinyRun(tmp_path / "run"))
    inside = with_metrics_inside(run)
    run.train("--max_steps=4", FREQUENT, inside)
    for name in ("loss.png", "trace-rank0-steps-2-3.json", "restarts.txt", "notes.txt"):
        (run.checkpoints / name).write_text(name)
    before = files_in(run.checkpoints)
    old = run_id(run.latest)
    result = run.train("--max_steps=3", "--checkpoint_freq=0", inside, *flags)
    assert f"Moved the checkpoints of another run to {run.checkpoints / 'old-1'}" in result.stdout
    assert "Resumed" not in result.stdout
    # Files of the job or the user are not moved.
    moved = files_in(run.checkpoints / "old-1")
    assert {**moved, "restarts.txt": b"restarts.txt", "notes.txt": b"notes.txt"} == before
    assert names_in(run.checkpoints) == [
        "events.jsonl", "latest", "metrics.jsonl", "node.jsonl", "notes.txt", "old-1", "restarts.txt", "summary.json",
        "tiny-3steps",
    ]  # fmt: skip
    assert run_id(run.latest) != old
    straight = without_metrics_flag(TinyRun(tmp_path / "straight"))
    straight.train("--max_steps=3", "--checkpoint_freq=0", with_metrics_inside(straight))
    for one in (run, straight):
        shutil.copy(one.checkpoints / "metrics.jsonl", one.folder)
    assert_same_bits(run, straight)

    # No program uses the old run by accident, and all programs can be pointed to it.
    listed = checkpoint_command("ls", run.checkpoints)
    assert "tiny-4steps" not in listed.stdout and "run" not in listed.stdout.splitlines()[0].split()
    assert checkpoint_command("prune", run.checkpoints, "--keep_last", 1).returncode == 0
    for folder, step in ((run.checkpoints, 3), (run.checkpoints / "old-1", 4)):
        assert checkpoint_command("verify", folder).stdout.count("good") == (1 if step == 3 else 2)
        words = [BUILD / "bin" / "zero_to_fp32", folder, tmp_path / f"weights-{step}"]
        subprocess.run(words, check=True, capture_output=True)
    assert files_in(run.checkpoints / "old-1") == moved
    # Without the flag each of the two runs resumes.
    assert "Resumed from checkpoint at step 3" in run.train("--max_steps=5", inside).stdout
    result = run.train("--max_steps=5", inside, f"--checkpoint_dir={run.checkpoints / 'old-1'}", check=False)
    assert "is given twice" in result.stderr
    flags_of_old = [flag for flag in run.flags() if not flag.startswith("--checkpoint_dir")]
    run.flags = lambda: [*flags_of_old, f"--checkpoint_dir={run.checkpoints / 'old-1'}"]
    metrics = f"--metrics_file={run.checkpoints / 'old-1' / 'metrics.jsonl'}"
    assert "Resumed from checkpoint at step 4" in run.train("--max_steps=5", metrics).stdout


def test_a_second_overwrite_keeps_the_first(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    ids = []
    for _ in range(3):
        run.train("--max_steps=2", "--overwrite")
        ids.append(run_id(run.latest))
    assert len(set(ids)) == 3
    assert [run_id(run.checkpoints / name / "tiny-2steps") for name in ("old-1", "old-2", ".")] == ids
    # The metrics are elsewhere: those of each run are kept next to the next one's.
    for name, one in zip(("metrics.old-1.jsonl", "metrics.old-2.jsonl", "metrics.jsonl"), ids, strict=True):
        lines = [json.loads(line) for line in (run.folder / name).read_text().splitlines()]
        assert [(line["step"], line["run"]) for line in lines] == [(1, one), (2, one)]


def test_an_interrupted_move_is_completed_by_the_next_start(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=4", FREQUENT)
    old = run_id(run.latest)
    moving = run.checkpoints / "old-1.moving"
    moving.mkdir()
    (moving / ".moving").write_text("latest\ntiny-4steps\ntiny-2steps\n")
    (run.checkpoints / "latest").rename(moving / "latest")
    result = run.train("--max_steps=2", "--overwrite")
    assert f"what it was moving is in {run.checkpoints / 'old-1'} now" in result.stderr
    assert names_in(run.checkpoints) == ["latest", "old-1", "tiny-2steps"]
    assert names_in(run.checkpoints / "old-1") == ["latest", "tiny-2steps", "tiny-4steps"]
    assert run_id(run.checkpoints / "old-1" / "tiny-2steps") == old != run_id(run.latest)


@pytest.mark.parametrize("format", ["hdf5", "deepspeed"])
def test_a_run_whose_folder_another_one_has_taken_saves_nothing_more(tmp_path: Path, format: str) -> None:
    run = TinyRun(tmp_path)
    with run.running("--max_steps=1000000", "--checkpoint_freq=3", f"--checkpoint_format={format}") as process:
        lock = run.checkpoints / ".lock"
        other = run.checkpoints / ".lock.other"
        with other.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            other.replace(lock)
            before = files_in(run.checkpoints)
            assert process.wait(timeout=120) != 0
    # One save may have been published between the two checks; none begins after the folder was taken.
    assert "has taken over" in run.errors.read_text()
    assert "nothing more is saved there" in run.errors.read_text()
    after = files_in(run.checkpoints)
    tags = {name.split("/")[0] for name in after} - {name.split("/")[0] for name in before}
    assert len([tag for tag in tags if tag.startswith("tiny-")]) <= 1, tags


def mixed_folder(tmp_path: Path) -> tuple[TinyRun, str, str]:
    """Steps 2 and 4 of a run next to steps 6 and 8 of another, which was saved before; with the two ids."""
    other = TinyRun(tmp_path / "other")
    other.train("--max_steps=8", FREQUENT)
    run = TinyRun(tmp_path / "run")
    run.train("--max_steps=4", FREQUENT)
    theirs = run_id(other.latest)
    for step in (6, 8):
        shutil.copytree(other.checkpoints / f"tiny-{step}steps", run.checkpoints / f"tiny-{step}steps")
    return run, run_id(run.latest), theirs


SHARD = "zero_pp_rank_1_mp_rank_00_optim_states.h5"


def test_a_damaged_checkpoint_is_replaced_only_by_one_of_the_same_run(tmp_path: Path) -> None:
    run, ours, theirs = mixed_folder(tmp_path)
    flip_last_bit(run.checkpoints / "tiny-4steps" / SHARD)
    result = run.train("--max_steps=3", "--checkpoint_freq=0", "--overwrite=false", check=False)
    # The other run's steps are in its way.
    sentence = the_error(result)
    assert f"tiny-8steps and 1 more of another run (run {theirs[:8]})" in sentence
    assert f"this one (run {ours[:8]}) resumes from {run.checkpoints / 'tiny-2steps'}" in sentence
    (line,) = [line for line in result.stderr.splitlines() if "the newest complete checkpoint" in line]
    assert f"resumes from {run.checkpoints / 'tiny-2steps'}" in line
    assert f"not tried: tiny-8steps (run {theirs[:8]}), tiny-6steps (run {theirs[:8]})" in line
    flip_last_bit(run.checkpoints / "tiny-2steps" / SHARD)
    sentence = the_error(run.train("--max_steps=6", check=False))
    assert "no other checkpoint of the run is complete" in sentence
    assert f"tiny-8steps (run {theirs[:8]})" in sentence


def test_no_other_run_resumes_silently_if_the_newest_checkpoint_does_not_name_its_run(tmp_path: Path) -> None:
    run, ours, theirs = mixed_folder(tmp_path)
    damaged = run.latest
    (damaged / "manifest.json").write_text("{}")
    before = files_in(run.checkpoints)
    sentence = the_error(run.train("--max_steps=4", check=False))
    assert f"{damaged / 'manifest.json'} is damaged" in sentence
    assert "so its run is not known" in sentence
    for step, one in ((2, ours), (8, theirs)):
        assert f"--resume_from_checkpoint {run.checkpoints / f'tiny-{step}steps'} (run {one[:8]})" in sentence
    assert files_in(run.checkpoints) == before
    # The checkpoint that the user names determines the run.
    named = f"--resume_from_checkpoint={run.checkpoints / 'tiny-8steps'}"
    assert "Resumed from checkpoint at step 8" in run.train("--max_steps=8", "--save_final=false", named).stdout
    # With one other run, it resumes that one, and reports it.
    for step in (6, 8):
        shutil.rmtree(run.checkpoints / f"tiny-{step}steps")
    strict = the_error(run.train("--max_steps=4", "--resume_strict", check=False))
    assert f"{damaged / 'manifest.json'} is damaged" in strict
    assert "goes on" not in strict
    result = run.train("--max_steps=3", "--checkpoint_freq=0", "--save_final=false")
    (line,) = [line for line in result.stderr.splitlines() if "the newest complete checkpoint" in line]
    assert f"{damaged / 'manifest.json'} is damaged" in line
    assert (
        f"so its run is not known: run {ours[:8]} resumes from {run.checkpoints / 'tiny-2steps'}, "
        "the newest complete checkpoint" in line
    )


def test_ls_and_prune_tell_runs_apart(tmp_path: Path) -> None:
    run, ours, theirs = mixed_folder(tmp_path)
    forget_run(run.checkpoints / "tiny-6steps")
    heading, *rows = checkpoint_command("ls", run.checkpoints).stdout.splitlines()
    column = heading.index(" run ") + 1
    shown = {row.split()[0]: row[column : column + 8].strip() for row in rows}
    assert shown == {
        "tiny-8steps": theirs[:8],
        "tiny-6steps": "-",
        "tiny-4steps": ours[:8],
        "tiny-2steps": ours[:8],
    }
    assert checkpoint_command("verify", run.checkpoints).stdout.count("good") == 4

    pruned = checkpoint_command("prune", run.checkpoints, "--keep_last", 1)
    assert pruned.returncode == 0, pruned.stderr
    assert f"left alone: {run.checkpoints / 'tiny-8steps'} (run {theirs[:8]})" in pruned.stdout
    assert names_in(run.checkpoints) == ["latest", "tiny-4steps", "tiny-6steps", "tiny-8steps"]
    shutil.copytree(tmp_path / "other" / "checkpoints" / "tiny-4steps", run.checkpoints / "tiny-1steps")
    assert checkpoint_command("prune", run.checkpoints, "--keep_last", 1, "--run", theirs[:8]).returncode == 0
    assert names_in(run.checkpoints) == ["latest", "tiny-4steps", "tiny-6steps", "tiny-8steps"]
    assert checkpoint_command("prune", run.checkpoints, "--keep_last", 1, "--run", "none").returncode == 0
    failed = checkpoint_command("prune", run.checkpoints, "--keep_last", 1, "--run", "xyz")
    assert failed.returncode == 2
    assert "--run xyz: no runs in" in failed.stderr


def test_prune_does_not_start_while_a_run_uses_the_folder(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=4", FREQUENT)
    before = files_in(run.checkpoints)
    with (run.checkpoints / ".lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.truncate()
        held.write("process 7 on node3")
        held.flush()
        for flags in ((), ("--dry_run",)):
            sentence = the_error(checkpoint_command("prune", run.checkpoints, "--keep_last", 1, *flags))
            assert f"another run (process 7 on node3) is using {run.checkpoints}: wait until it ends" in sentence
            assert "then prune" in sentence
            assert files_in(run.checkpoints) == before
    assert checkpoint_command("prune", run.checkpoints, "--keep_last", 1).returncode == 0
    assert names_in(run.checkpoints) == ["latest", "tiny-4steps"]


def full_pipe() -> tuple[int, int]:
    """Both ends of a pipe that blocks its next writer until something is read."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"\n" * 4096)
    os.set_blocking(writer, True)
    return reader, writer


# With --keep_last=9 only the remains of an unfinished save are removed.
@pytest.mark.parametrize("keep_last", [1, 9])
def test_prune_removes_nothing_once_a_run_has_taken_the_folder(tmp_path: Path, keep_last: int) -> None:
    run, _, _ = mixed_folder(tmp_path)
    (run.checkpoints / "tiny-9steps.tmp").mkdir()
    names = names_in(run.checkpoints)
    # It stops at its first line of output, "left alone: ...", which it prints when it has the lock.
    reader, writer = full_pipe()
    words = [
        "stdbuf",
        "-oL",
        BUILD / "bin" / "mpzero",
        "checkpoint",
        "prune",
        run.checkpoints,
        "--keep_last",
        str(keep_last),
    ]
    with subprocess.Popen(words, stdout=writer, stderr=subprocess.PIPE, text=True) as process:
        os.close(writer)
        assert process.stderr is not None
        record = run.checkpoints / ".owner-1"
        while process.poll() is None and not (record.exists() and record.stat().st_size > 0):
            os.sched_yield()
        other = run.checkpoints / ".lock.other"
        with other.open("w") as held, os.fdopen(reader) as output:
            fcntl.flock(held, fcntl.LOCK_EX)
            other.replace(run.checkpoints / ".lock")
            printed = output.read()
            errors = process.stderr.read()
    assert "left alone: " in printed
    assert "removed" not in printed
    assert process.returncode == 1
    assert "has taken over" in errors
    assert names_in(run.checkpoints) == names


def test_keep_last_counts_the_runs_own(tmp_path: Path) -> None:
    run, _, theirs = mixed_folder(tmp_path)
    for step, older in ((6, 1), (8, 2)):
        (run.checkpoints / f"tiny-{step}steps").rename(run.checkpoints / f"tiny-{older * 0}{older}steps")
    run.train("--max_steps=7", "--checkpoint_freq=1", "--keep_last=2")
    assert names_in(run.checkpoints) == ["latest", "tiny-01steps", "tiny-02steps", "tiny-6steps", "tiny-7steps"]
    assert run_id(run.checkpoints / "tiny-01steps") == theirs


def test_a_run_from_another_folder_does_not_mix_with_existing_checkpoints(tmp_path: Path) -> None:
    donor = TinyRun(tmp_path / "donor")
    donor.train("--max_steps=4", FREQUENT)
    run = TinyRun(tmp_path / "run")
    run.train("--max_steps=2")
    there = run_id(run.latest)
    sentence = assert_refused(run, f"--resume_from_checkpoint={donor.checkpoints}")
    assert f"this one (run {run_id(donor.latest)[:8]}) resumes from {donor.latest}" in sentence
    forget_run(donor.latest)
    assert_refused(run, f"--resume_from_checkpoint={donor.latest}")
    result = run.train("--max_steps=6", f"--resume_from_checkpoint={donor.latest}", "--overwrite")
    assert "Resumed from checkpoint at step 4" in result.stdout
    assert names_in(run.checkpoints) == ["latest", "old-1", "tiny-6steps"]
    assert run_id(run.checkpoints / "old-1" / "tiny-2steps") == there


def test_metrics_of_a_run_that_saved_nothing_are_kept(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=3", "--save_final=false", "--checkpoint_freq=0")
    before = (run.folder / "metrics.jsonl").read_bytes()
    result = run.train("--max_steps=2")
    kept = run.folder / "metrics.old-1.jsonl"
    assert f"{run.folder / 'metrics.jsonl'} had steps of another run: it was renamed to {kept}." in result.stderr
    assert kept.read_bytes() == before
    assert [line["step"] for line in run.metrics()] == [1, 2]


def test_a_run_ends_without_its_last_checkpoint(tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "none")
    result = run.train("--max_steps=4", "--checkpoint_freq=0", "--save_final=false")
    assert "Training finished after step 4, which is not saved (--save_final=false); there is no checkpoint" in (
        result.stdout
    )
    assert names_in(run.checkpoints) == []
    # Also if the last step is one of those that are saved.
    run = TinyRun(tmp_path / "some")
    result = run.train("--max_steps=4", FREQUENT, "--save_final=false")
    assert names_in(run.checkpoints) == ["latest", "tiny-2steps"]
    assert "the newest checkpoint is that of step 2" in result.stdout
    result = run.train("--max_steps=4", FREQUENT)
    assert "Resumed from checkpoint at step 2" in result.stdout
    assert run.latest.name == "tiny-4steps"
    assert "is not saved" not in result.stdout
