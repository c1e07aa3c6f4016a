"""Python's programs read and write UTF-8 whatever the locale is: each text file is opened with its encoding."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEMPORARY = ("NamedTemporaryFile", "TemporaryFile", "SpooledTemporaryFile")


def python_files() -> list[Path]:
    """Those of the programs, also without the suffix .py."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    paths = [ROOT / name.decode() for name in listed.split(b"\0") if name and not name.startswith(b"tests/")]
    return [path for path in paths if path.is_file() and (path.suffix == ".py" or is_script(path))]


def is_script(path: Path) -> bool:
    if path.suffix:
        return False
    with path.open("rb") as file:
        return file.readline(100).startswith(b"#!") and b"python" in path.read_bytes()[:100]


def mode_of(call: ast.Call, place: int) -> object:
    """The mode of a call that opens a file; "" for what opens none."""
    named = [word.value for word in call.keywords if word.arg == "mode"]
    given = named or call.args[place : place + 1]
    return given[0].value if given and isinstance(given[0], ast.Constant) else "" if given else None


def opens_text(call: ast.Call) -> bool:
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    of_path = isinstance(call.func, ast.Attribute)
    if any(word.arg in ("text", "universal_newlines") for word in call.keywords):
        return True  # of subprocess
    if name in ("read_text", "write_text"):
        return of_path
    if name in TEMPORARY:
        return isinstance(mode_of(call, 0), str) and "b" not in mode_of(call, 0)
    if name != "open" or (of_path and call.args and not isinstance(call.args[0], ast.Constant)):
        return False  # Image.open(path), opener.open(request)
    if of_path and isinstance(call.func.value, ast.Name) and call.func.value.id == "os":
        return False
    mode = mode_of(call, 0 if of_path else 1)
    return mode is None or "b" not in str(mode)


def without_encoding(path: Path, text: str) -> list[str]:
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and opens_text(node)]
    return [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for call in calls
        if not any(word.arg == "encoding" for word in call.keywords)
    ]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("open(p)", 1), ("open(p, 'w')", 1), ("open(p, 'rb')", 0), ("open(p, mode='wb')", 0), ("p.open()", 1),
        ("p.open('a')", 1), ("p.open('rb')", 0), ("open(p, encoding='utf-8')", 0), ("p.read_text()", 1),
        ("p.write_text(t)", 1), ("p.write_text(t, encoding='utf-8')", 0), ("os.open('p', os.O_RDONLY)", 0),
        ("NamedTemporaryFile('w')", 1), ("tempfile.NamedTemporaryFile()", 0), ("run(c, text=True)", 1),
        ("run(c, text=True, encoding='utf-8')", 0), ("Image.open(p)", 0), ("read_text(p)", 0),
    ],
)  # fmt: skip
def test_a_text_file_is_seen(line, found):
    assert len(without_encoding(ROOT / "x.py", line)) == found


def test_each_text_file_is_opened_with_its_encoding():
    files = python_files()
    assert ROOT / "kubernetes/render" in files and ROOT / "app/report.py" in files
    assert [place for path in files for place in without_encoding(path, path.read_text(encoding="utf-8"))] == []
