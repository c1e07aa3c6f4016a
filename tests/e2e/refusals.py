"""Runs that are refused with one sentence."""

from __future__ import annotations

from tiny_run import TinyRun


def refuse(run: TinyRun, *flags: object) -> str:
    """Trains with a user error; returns the one sentence about it."""
    result = run.train("--max_steps=2", *flags, check=False)
    assert result.returncode != 0, result.stdout
    assert "Batch 2" not in result.stdout
    return the_sentence(result.stderr)


def the_sentence(errors: str) -> str:
    sentences = [line for line in errors.splitlines() if line.startswith("mpzero: error: ")]
    assert len(sentences) == 1, errors
    return sentences[0]
