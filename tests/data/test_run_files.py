"""What the plot, the report and the follower share."""

import json
import os
import socket
import stat
import subprocess
import sys

import pytest

from .conftest import REPOSITORY, read_tokens

sys.path.insert(0, str(REPOSITORY / "app"))
from run_files.metric_names import STEP_PARTS, validation_losses
from run_files.regular_files import NotReadable, read_bytes, read_text
from run_files.replacing import replace_text, replacing
from run_follow import sinks
from run_report import charts, picture

sys.path.pop(0)


def a_socket(path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def device(name: str):
    return lambda path: path.symlink_to(f"/dev/{name}")


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        os.mkdir,
        a_socket,
        device("zero"),
        device("tty"),
        lambda path: path.symlink_to(path),
        lambda path: path.write_bytes(bytes(101)),
        lambda path: path.symlink_to("/proc/self/smaps"),  # of 0 bytes, as stat has it
        lambda path: path.write_bytes(b"\xff"),
    ],
    ids=["pipe", "folder", "socket", "endless", "terminal", "circle", "large", "grows", "no UTF-8"],
)
def test_what_is_no_small_regular_file_is_refused_by_name(tmp_path, make):
    make(path := tmp_path / "failure.json")
    with pytest.raises(NotReadable) as refusal:
        read_text(path, most=100)
    assert str(path) in str(refusal.value)


def test_a_link_is_followed_only_where_the_folder_is_ones_own(tmp_path):
    (path := tmp_path / "link").symlink_to("target")
    assert read_bytes(path) is None and read_bytes(tmp_path / "none", follow=False) is None
    (tmp_path / "target").write_text("text")
    assert read_bytes(path) == b"text" and read_bytes(tmp_path / "target", follow=False) == b"text"
    with pytest.raises(NotReadable):
        read_bytes(path, follow=False)


def test_a_file_is_replaced_when_it_is_complete(tmp_path):
    path = tmp_path / "page.html"
    for text in ("first", "second"):
        with replacing(path) as file:
            assert file.suffix == ".html"
            file.write_text(text)
            assert not path.exists() if text == "first" else path.read_text() == "first"
        assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]
    (other := tmp_path / "other").write_text("other")
    mask = os.umask(0o027)
    try:
        other.chmod(0o600)
        path.unlink()
        path.symlink_to(other)
        with replacing(path) as file:
            file.write_text("third")
    finally:
        os.umask(mask)
    assert (path.is_symlink(), path.read_text(), other.read_text()) == (False, "third", "other")
    assert path.stat().st_mode & 0o777 == 0o640


def test_an_error_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "loss.png"
    path.write_text("old")

    def fail() -> None:
        with replacing(path) as file:
            file.write_text("half")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_the_parts_of_a_step_are_one_list_and_documented():
    assert picture.STEP_PARTS is STEP_PARTS and charts.STEP_PARTS is STEP_PARTS
    assert len(picture.PART_COLORS) == len(STEP_PARTS)
    documented = (REPOSITORY / "docs/formats.md").read_text()
    assert [name for name in STEP_PARTS if f"`{name}`" not in documented] == []


def test_validation_sets_are_the_keys_of_their_losses():
    keys = [
        "loss",
        "validation_loss",
        "validation_wiki_loss",
        "validation_loss_loss",
        "validation__loss",
        "xvalidation_loss",
    ]
    assert validation_losses(keys) == {
        "validation_loss": "validation",
        "validation_wiki_loss": "validation wiki",
        "validation_loss_loss": "validation loss",
    }
    assert sinks.tag_of("validation_loss") == "loss/validation"
    assert sinks.tag_of("validation_wiki_loss") == "loss/validation_wiki"
    assert sinks.tag_of("loss") == "loss/train"


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "POSIXLY_CORRECT": "1"}


def test_the_locale_changes_no_name_and_no_text(tmp_path):
    folder = tmp_path / "Bücher"
    folder.mkdir()
    lines = [{"step": step, "loss": 1, "time": 1.7e9 + step, "run": "00000000aaaaaaaa"} for step in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "a.jsonl").write_text('{"wörter": "über"}\n', encoding="utf-8")
    commands = {
        "report.py": [folder, "--output", folder / "report.html", "--png", folder / "loss.png"],
        "prepare_data.py": [tmp_path / "a.jsonl", folder / "ü.h5", "--tokenizer=bytes", "--text_column=wörter"],
    }
    for program, words in commands.items():
        done = subprocess.run(
            [sys.executable, REPOSITORY / "app" / program, *words], env={**os.environ, **ASCII}, capture_output=True,
            encoding="utf-8", check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), program
    assert read_tokens(folder / "ü.h5").texts() == ["über"]
    assert "Bücher" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_link_is_replaced_and_its_target_kept(tmp_path):
    link, target = tmp_path / "link", tmp_path / "target"
    target.write_text("kept")
    link.symlink_to(target)
    replace_text(link, "new")
    assert link.read_text() == "new" and not link.is_symlink() and target.read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "target"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
def test_no_device_is_replaced(tmp_path):
    """As root, `--output /dev/null` would otherwise take the device's place."""
    null = tmp_path / "null"
    os.mknod(null, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    with pytest.raises(OSError, match="device"):
        replace_text(null, "new")
    assert null.is_char_device() and list(tmp_path.iterdir()) == [null]
