"""Several runs and one folder: which checkpoints and metrics belong to which run."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import xxhash
from test_resume import assert_same_bits
from test_saving import checkpoint_command
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
    assert (
        f"{run.checkpoints} contains tiny-4steps and 1 more of another run (run {run_id(run.latest)[:8]})" in sentence
    )
    assert str(run.checkpoints / "old-1") in sentence
    # Neither without `latest`, nor among damaged checkpoints, nor among those of another model.
    (run.checkpoints / "latest").unlink()
    shutil.rmtree(run.checkpoints / "tiny-4steps")
    (run.checkpoints / "tiny-2steps" / "manifest.json").write_text("{}")
    assert "tiny-2steps" in assert_refused(run, "--resume_from_checkpoint=none")
    (run.checkpoints / "tiny-2steps").rename(run.checkpoints / "large-2steps")
    assert "large-2steps" in assert_refused(run)


def test_overwrite_moves_the_full_old_run_aside(tmp_path: Path) -> None:
    run = without_metrics_flag(TinyRun(tmp_path / "run"))
    inside = with_metrics_inside(run)
    run.train("--max_steps=4", FREQUENT, inside)
    for name in ("loss.png", "trace-rank0-steps-2-3.json", "restarts.txt", "notes.txt"):
        (run.checkpoints / name).write_text(name)
    before = files_in(run.checkpoints)
    old = run_id(run.latest)
    result = run.train("--max_steps=3", "--checkpoint_freq=0", inside, "--resume_from_checkpoint=none", "--overwrite")
    assert f"Moved the other run's checkpoints to {run.checkpoints / 'old-1'}" in result.stdout
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
    # A folder of runs lists the checkpoints of each run; the other commands name the runs.
    runs = tmp_path / "runs"
    runs.mkdir()
    for name in ("a", "b"):
        (runs / name).symlink_to(run.checkpoints)
    of_both = checkpoint_command("ls", runs).stdout
    assert of_both.count("tiny-3steps") == 2 and f"{runs}/a:\n" in of_both and f"\n\n{runs}/b:\n" in of_both
    for command in (["verify"], ["prune", "--keep_last=1"]):
        refused = checkpoint_command(command[0], runs, *command[1:])
        assert refused.returncode == 2 and f"{runs}/a, {runs}/b" in refused.stderr
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
    assert f"skipped: {run.checkpoints / 'tiny-8steps'} (run {theirs[:8]})" in pruned.stdout
    assert names_in(run.checkpoints) == ["latest", "tiny-4steps", "tiny-6steps", "tiny-8steps"]
    shutil.copytree(tmp_path / "other" / "checkpoints" / "tiny-4steps", run.checkpoints / "tiny-1steps")
    assert checkpoint_command("prune", run.checkpoints, "--keep_last", 1, "--run", theirs[:8]).returncode == 0
    assert names_in(run.checkpoints) == ["latest", "tiny-4steps", "tiny-6steps", "tiny-8steps"]
    assert checkpoint_command("prune", run.checkpoints, "--keep_last", 1, "--run", "none").returncode == 0
    failed = checkpoint_command("prune", run.checkpoints, "--keep_last", 1, "--run", "xyz")
    assert failed.returncode == 2
    assert "--run xyz: no runs in" in failed.stderr


def test_a_run_from_another_folder_does_not_mix_with_existing_checkpoints(tmp_path: Path) -> None:
    donor = TinyRun(tmp_path / "donor")
    donor.train("--max_steps=4", FREQUENT)
    run = TinyRun(tmp_path / "run")
    run.train("--max_steps=2")
    there = run_id(run.latest)
    sentence = assert_refused(run, f"--resume_from_checkpoint={donor.checkpoints}")
    assert f"this run (run {run_id(donor.latest)[:8]}) resumes from {donor.latest}" in sentence
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
    assert f"{run.folder / 'metrics.jsonl'} contains steps of another run and was renamed to {kept}." in result.stderr
    assert kept.read_bytes() == before
    assert [line["step"] for line in run.metrics()] == [1, 2]
