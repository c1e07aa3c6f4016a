"""Links, names and permissions: what a folder may contain in addition to plain files."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from .conftest import prepare_module, read_tokens

open_stream = prepare_module("streams").open_stream
survey = prepare_module("survey").survey


def test_linked_folders_and_files_are_read_once(prepare, tmp_path):
    (tmp_path / "elsewhere/deep").mkdir(parents=True)
    (tmp_path / "elsewhere/deep/b.txt").write_text("text b")
    (tmp_path / "corpus/sub").mkdir(parents=True)
    (tmp_path / "corpus/a.txt").write_text("text a")
    (tmp_path / "corpus/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "corpus/sub/loop").symlink_to(tmp_path / "corpus")
    (tmp_path / "corpus/again.txt").symlink_to("a.txt")
    os.link(tmp_path / "corpus/a.txt", tmp_path / "corpus/sub/hard.txt")
    process = prepare("corpus", "a.h5", "--workers", 1)
    assert read_tokens(tmp_path / "a.h5").texts() == ["text a", "text b"]
    assert "sub/loop (0 bytes): a symlink to its ancestor corpus" in process.stdout
    assert "again.txt, sub/hard.txt (12 bytes): the same file as a.txt" in process.stdout


def test_a_file_counts_by_its_own_name_and_not_by_a_links(prepare, tmp_path):
    for name in ("a/x.txt", "m/y.txt", "validation/v.txt"):
        (tmp_path / "corpus" / name).parent.mkdir(parents=True)
        (tmp_path / "corpus" / name).write_text(f"text of {name}")
    (tmp_path / "corpus/validation/x.txt").symlink_to("../a/x.txt")
    (tmp_path / "corpus/a/test").symlink_to("../m")  # a link to a folder, which is found before that folder
    process = prepare("corpus", "a.h5", "--validation_output", "v.h5")
    assert read_tokens(tmp_path / "a.h5").texts() == ["text of a/x.txt", "text of m/y.txt"]
    assert read_tokens(tmp_path / "v.h5").texts() == ["text of validation/v.txt"]
    assert "validation/x.txt (15 bytes): the same file as a/x.txt" in process.stdout
    assert "a/test/y.txt (15 bytes): the same file as m/y.txt" in process.stdout


def test_copies_are_read_and_named(prepare, tmp_path):
    (tmp_path / "corpus").mkdir()
    for name, text in {"a": "the same", "b": "other", "c": "the same"}.items():
        (tmp_path / f"corpus/{name}.txt").write_text(text)
    process = prepare("corpus", "a.h5")
    assert read_tokens(tmp_path / "a.h5").texts() == ["the same", "other", "the same"]
    assert "c.txt (as a.txt)" in process.stdout


def test_what_is_neither_a_file_nor_a_folder_is_named(prepare, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert str(tmp_path / "pipe") in prepare(tmp_path / "pipe", "a.h5", fails=True).stderr


def test_a_link_to_nothing_is_refused(prepare, tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/a.txt").write_text("a")
    (tmp_path / "corpus/b.txt").symlink_to("/nowhere/b.txt")
    error = prepare("corpus", "a.h5", fails=True).stderr
    assert "corpus/b.txt" in error and "/nowhere/b.txt" in error


@pytest.mark.parametrize("name", ["über Bücher 漢字.txt", "a\nb.txt", os.fsdecode(b"caf\xe9.txt")])
def test_names_of_any_bytes(prepare, tmp_path, name):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / name).write_text("text")
    process = prepare("corpus", "a.h5")
    assert read_tokens(tmp_path / "a.h5").texts() == ["text"]
    assert len(process.stdout.strip().splitlines()) == 4
    prepare(tmp_path / "corpus" / name, "b.h5")
    assert "up to date" in prepare(tmp_path / "corpus" / name, "b.h5", "--if_missing").stdout
    (tmp_path / "corpus" / name).write_bytes(b"\xff")
    assert "is not UTF-8" in prepare("corpus", "c.h5", fails=True).stderr


def read_all(folder) -> None:
    for file in survey(folder).files:
        open_stream(file.path).close()


@pytest.fixture
def somebody_else():
    """A folder in which this process has the permissions of a user who owns nothing."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    os.seteuid(os.getuid())
    shutil.rmtree(folder)


@pytest.mark.parametrize("closed", ["sub", "sub/a.txt"])
def test_what_may_not_be_read_is_named(somebody_else, closed):
    (somebody_else / "sub").mkdir()
    (somebody_else / "sub/a.txt").write_text("a")
    (somebody_else / "b.txt").write_text("b")
    (somebody_else / closed).chmod(0)
    if os.getuid() == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(OSError, match="Permission denied") as caught:
            read_all(somebody_else)
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        (somebody_else / closed).chmod(0o755)
    assert caught.value.filename == str(somebody_else / closed)
