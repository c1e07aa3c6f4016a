"""What a user sees after a slip: one sentence that says what to type instead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from refusals import the_sentence
from tiny_run import TinyRun
from trainer import REPOSITORY, write_tokens

from .program import mpzero

pytestmark = pytest.mark.e2e


def prepare(folder: Path, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPOSITORY / "app/prepare_data.py"), *map(str, words)]
    variables = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()} | environment
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=240)


def refusal(*words: object) -> str:
    result = mpzero("train", *words)
    assert result.returncode == 2
    return the_sentence(result.stderr)


def test_a_data_set_without_its_flag(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for data in (corpus, "allenai/c4"):
        assert f"--dataset {data}" in refusal(data, "--max_steps=2")
    assert "--train_data data/train.h5" in refusal("data/train.h5")
    assert "write --name value" in refusal("max_steps=2")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--hlp"], "`mpzero help`"),
        (["trian"], "`mpzero train`"),
        (["--max_steps=5"], "`mpzero train --max_steps`"),
        (["--lr", "5"], "`mpzero train --learning_rate`"),
        (["zero_to_fp32", "checkpoints", "out"], "separate program"),
        (["checkpoint"], "ls, verify, show, diff or prune"),
        (["plan", "--hlp"], "did you mean --help?"),
    ],
)
def test_a_word_that_is_not_a_command(words: list[str], meant: str) -> None:
    result = mpzero(*words)
    assert result.returncode == 2
    assert meant in the_sentence(result.stderr)


def test_help_explains_a_command_or_a_flag() -> None:
    for flag in ("learning_rate", "--lr"):
        assert mpzero("help", flag).stdout == mpzero("train", "--help", "learning_rate").stdout != ""


def test_a_mistyped_flag_is_answered_before_mpi_starts(tmp_path: Path) -> None:
    """MPI cannot start here: its session folder is a file. The flag is named all the same."""
    blocked = tmp_path / "file"
    blocked.touch()
    result = mpzero(
        "train", "--learning_rat=1", env={"OMPI_MCA_orte_tmpdir_base": str(blocked), "TMPDIR": str(blocked)}
    )
    assert result.returncode == 2
    assert "did you mean --learning_rate?" in the_sentence(result.stderr)


def test_a_vocabulary_that_is_too_small_says_how_large_it_must_be(tmp_path: Path) -> None:
    run = TinyRun(tmp_path, ranks=1)
    write_tokens(run.data, np.full(3001, 99), 100)
    assert "pass --vocab_size 100 or more" in the_sentence(run.train(check=False).stderr)


def test_a_text_of_white_space_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    result = prepare(tmp_path, "empty.txt", "train.h5", "--tokenizer=bytes")
    assert result.returncode == 2
    assert "empty.txt contains only whitespace" in result.stderr
    assert not (tmp_path / "train.h5").exists()
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("words\n" * 100)
    (folder / "b.txt").write_text("\n")
    result = prepare(tmp_path, "texts", "train.h5", "--tokenizer=bytes")
    assert result.returncode == 0, result.stderr
    assert "1 file with only whitespace, kept as empty documents: b.txt" in result.stdout


def test_without_a_network_a_name_is_looked_for_in_the_cache_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words\n")
    offline = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "cache")}
    result = prepare(tmp_path, "a.txt", "train.h5", "--tokenizer=Qwen/Qwen3-0.6B", **offline)
    assert result.returncode == 2
    first, last = result.stderr.splitlines()
    assert first == "http://127.0.0.1:9 cannot be reached: using only the Hugging Face cache."
    assert "Tokenizer 'Qwen/Qwen3-0.6B' cannot be downloaded" in last
    assert "pass a local folder" in last


def test_weights_come_with_their_tokenizer(tmp_path: Path) -> None:
    """A run that began with somebody's weights: its export has their tokenizer and generation_config.json."""
    run = TinyRun(tmp_path, ranks=1)
    run.train("--max_steps=2")
    weights, out = tmp_path / "weights", tmp_path / "out"
    first = mpzero(run.checkpoints, weights, program="zero_to_fp32")
    assert "golden" in first.stdout
    assert "--tokenizer" in first.stdout
    assert not (weights / "tokenizer.json").exists()
    (weights / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    (weights / "generation_config.json").write_text("{}")
    tuned = TinyRun(tmp_path / "tuned", ranks=1)
    tuned.train("--max_steps=2", f"--init_from={weights}")
    result = mpzero(tuned.checkpoints, out, program="zero_to_fp32")
    assert f"Files copied from {weights}: tokenizer.json, generation_config.json" in result.stdout
    other = mpzero(run.checkpoints, tmp_path / "other", f"--tokenizer={weights}", program="zero_to_fp32")
    assert "Files copied from" in other.stdout
    assert {path.name for path in out.iterdir()} == {path.name for path in (tmp_path / "other").iterdir()}
    wrong = mpzero(run.checkpoints, out, f"--tokenizer={tmp_path}", program="zero_to_fp32")
    assert wrong.returncode == 2
    assert "neither tokenizer.json" in wrong.stderr
