"""Outputs are complete, the same for any number of workers, and never overwritten by a second start."""

import os
import signal
import subprocess
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from .conftest import command, read_tokens


@pytest.fixture
def long_text(tmp_path, novel):
    """Several batches of work, with documents shorter and longer than the pieces that are distributed."""
    paragraphs = novel.split("\n\n")
    documents = ["\n\n".join(paragraphs[i : i + 1 + 37 * (i % 90 == 0)]) for i in range(0, len(paragraphs), 3)]
    (tmp_path / "a.txt").write_text("\n<end>\n".join([*documents * 4, novel]))
    return tmp_path / "a.txt"


def test_any_number_of_workers_writes_the_same(prepare, tmp_path, small_bpe, long_text):
    made = []
    for workers in (1, 2, 3):
        train, validation = f"train{workers}.h5", f"validation{workers}.h5"
        fraction = ("--validation_output", validation, "--validation_fraction", 0.1)
        separator = ("--document_separator", r"\n<end>\n")
        prepare("a.txt", train, *fraction, *separator, "--tokenizer", small_bpe, "--workers", workers)
        made.append([read_tokens(tmp_path / name) for name in (train, validation)])
    for other in made[1:]:
        for one, two in zip(made[0], other, strict=True):
            assert np.array_equal(one.tokens, two.tokens)
            assert np.array_equal(one.offsets, two.offsets)


def test_validation_split_deals_out_every_document_once(prepare, tmp_path):
    texts = [f"document {i}" for i in range(1000)]
    (tmp_path / "a.txt").write_text("\n".join(texts))
    arguments = ("--document_separator", "line", "--validation_output", "validation.h5", "--validation_fraction", 0.05)
    prepare("a.txt", "train.h5", *arguments)
    train = read_tokens(tmp_path / "train.h5").texts()
    validation = read_tokens(tmp_path / "validation.h5").texts()
    assert len(validation) == 50
    assert sorted(train + validation) == sorted(texts)
    assert train == [text for text in texts if text in set(train)]  # in order


def test_one_long_document_is_split_without_losing_text(prepare, tmp_path, novel):
    (tmp_path / "a.txt").write_bytes(novel.encode())
    prepare("a.txt", "train.h5", "--validation_output", "validation.h5")
    train = read_tokens(tmp_path / "train.h5").texts()
    validation = read_tokens(tmp_path / "validation.h5").texts()
    assert len(validation) >= 1
    assert all(text in novel for text in train + validation)
    assert sum(map(len, train + validation)) == len(novel)
    assert 0.02 < sum(map(len, validation)) / len(novel) < 0.4


def test_too_few_documents_to_split(prepare, tmp_path):
    (tmp_path / "a.txt").write_text("short")
    arguments = ("--validation_output", "validation.h5", "--validation_fraction", 0.01)
    assert "too few documents" in prepare("a.txt", "train.h5", *arguments, fails=True).stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt"]


def test_too_few_documents_for_the_default_make_no_validation(prepare, tmp_path):
    """And the second start keeps what was made."""
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(name * 20_000)
    arguments = ("a.txt", "b.txt", "c.txt", "train.h5", "--validation_output", "validation.h5", "--if_missing")
    made = prepare(*arguments)
    assert made.stdout.count("validation.h5") == 1 and "validation.h5 is not written" in made.stdout
    assert read_tokens(tmp_path / "train.h5").texts() == [name * 20_000 for name in "abc"]
    assert not (tmp_path / "validation.h5").exists()
    written = (tmp_path / "train.h5").stat().st_mtime_ns
    assert "up to date" in prepare(*arguments).stdout
    assert (tmp_path / "train.h5").stat().st_mtime_ns == written


def test_a_second_data_set_is_no_output(prepare, tmp_path):
    for name in ("a.txt", "b.txt", "rows.h5"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "texts").mkdir()
    for output in ("b.txt", "texts"):
        said = prepare("a.txt", output, fails=True).stderr
        assert "OUTPUT is missing" in said and output in said and "--overwrite" not in said
    said = prepare("a.txt", "rows.h5", fails=True).stderr
    assert "rows.h5" in said and "a different output" in said and "--overwrite" not in said and "remove" not in said
    assert (tmp_path / "b.txt").read_text() == (tmp_path / "rows.h5").read_text() == "mine"


def test_existing_output(prepare, tmp_path):
    (tmp_path / "a.txt").write_text("first")
    prepare("a.txt", "a.h5", "--if_missing")
    written = (tmp_path / "a.h5").stat().st_mtime_ns

    process = prepare("a.txt", "a.h5", "--if_missing")
    assert "up to date" in process.stdout
    assert "--overwrite" in prepare("a.txt", "a.h5", fails=True).stderr
    # Other arguments, or the same arguments for another text, never count as the same.
    process = prepare("a.txt", "a.h5", "--if_missing", "--vocab_size", 300, fails=True)
    assert "vocab_size None" in process.stderr
    (tmp_path / "a.txt").write_text("another text")
    assert "a.txt" in prepare("a.txt", "a.h5", "--if_missing", fails=True).stderr
    assert (tmp_path / "a.h5").stat().st_mtime_ns == written

    prepare("a.txt", "a.h5", "--overwrite")
    assert read_tokens(tmp_path / "a.h5").texts() == ["another text"]


@pytest.mark.parametrize("flags", [(), ("--if_missing",), ("--overwrite",)])
def test_existing_file_of_another_kind_is_kept(prepare, tmp_path, flags):
    """Such as the last input, where OUTPUT was forgotten."""
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text('[{"text": "something of the user\'s"}]')
    error = prepare("a.json", "b.json", *flags, fails=True).stderr
    assert "b.json" in error and "--overwrite" not in error
    assert (tmp_path / "b.json").read_text() == (tmp_path / "a.json").read_text()


def test_missing_validation_file_is_made_again(prepare, tmp_path, novel):
    (tmp_path / "a.txt").write_text(novel)
    arguments = ("a.txt", "train.h5", "--validation_output", "validation.h5", "--if_missing")
    prepare(*arguments)
    before = read_tokens(tmp_path / "validation.h5")
    (tmp_path / "validation.h5").unlink()
    prepare(*arguments)
    assert np.array_equal(read_tokens(tmp_path / "validation.h5").tokens, before.tokens)


def test_checkout_can_be_moved(prepare, tmp_path):
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text("text")
    prepare(tmp_path / "here/a.txt", "a.h5")
    assert "up to date" in prepare(tmp_path / "there/a.txt", "a.h5", "--if_missing").stdout


def start_long_run(tmp_path, novel, small_bpe) -> subprocess.Popen:
    """A run of half a minute or more, with two workers, that has written something when this returns."""
    (tmp_path / "a.txt").write_text(novel * 240)
    process = subprocess.Popen(
        command("a.txt", "out/a.h5", "--tokenizer", small_bpe, "--workers", 2),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not any(path.stat().st_size > 10_000 for path in (tmp_path / "out").glob(".a.h5.*.tmp")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def living_members(session: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry))
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_in_the_middle_leaves_no_output(prepare, tmp_path, novel, small_bpe, number):
    process = start_long_run(tmp_path, novel, small_bpe)
    assert process.poll() is None
    process.send_signal(number)
    process.wait(timeout=60)
    assert process.returncode != 0
    assert not (tmp_path / "out/a.h5").exists()
    if number != signal.SIGKILL:
        assert list((tmp_path / "out").iterdir()) == []
    deadline = time.monotonic() + 60
    while living_members(process.pid):
        assert time.monotonic() < deadline, "worker processes outlive the run"
        time.sleep(0.05)
    # A second start removes what a killed one has left, and is not disturbed by it.
    (tmp_path / "a.txt").write_text("short")
    prepare("a.txt", "out/a.h5", "--if_missing")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.h5"]
    assert read_tokens(tmp_path / "out/a.h5").texts() == ["short"]


@pytest.mark.parametrize("blocks", [1, 20, 300])
def test_disk_that_fills_up(tmp_path, novel, blocks):
    """A limit on the size of files (1024 bytes each block) fails like a full disk, at different places."""
    (tmp_path / "a.txt").write_text(novel)
    limited = ["bash", "-c", f'ulimit -f {blocks}; exec "$@"', "prepare"]
    arguments = [*limited, *command("a.txt", "out/a.h5", "--tokenizer", "bytes")]
    process = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert process.returncode == 2, process.stderr
    sentence = process.stderr.strip().splitlines()[-1]
    assert "out/a.h5" in sentence and "File too large" in sentence, process.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_output_that_cannot_be_written(prepare, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    assert "a.txt/out.h5 cannot be written" in prepare("a.txt", "a.txt/out.h5", fails=True).stderr
    sentence = prepare("a.txt", "/proc/out.h5", fails=True).stderr
    assert "/proc/out.h5" in sentence and "No such file or directory" in sentence


def test_overwrite_replaces_token_files_only(prepare, tmp_path):
    (tmp_path / "a.txt").write_text("short")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["weights"] = [1.0]
    before = (tmp_path / "other.h5").read_bytes()
    for flag in ("--if_missing", "--overwrite"):
        assert "other.h5" in prepare("a.txt", "other.h5", flag, fails=True).stderr
    assert (tmp_path / "other.h5").read_bytes() == before
    prepare("a.txt", "train.h5")
    damaged = (tmp_path / "train.h5").read_bytes()[:600]
    (tmp_path / "train.h5").write_bytes(damaged)
    prepare("a.txt", "train.h5", "--overwrite")
    assert read_tokens(tmp_path / "train.h5").texts() == ["short"]
