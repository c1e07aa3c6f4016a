"""docs/terminal_picture.py shows what a terminal shows."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

PROGRAM = Path(__file__).resolve().parents[2] / "docs/terminal_picture.py"


def shown(folder: Path, size: str, script: str) -> list[str]:
    picture = folder / "picture.svg"
    subprocess.run([sys.executable, PROGRAM, size, picture, "bash", "-c", script], check=True, timeout=60)
    return [text.text or "" for text in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]


def test_lines_wrap_and_scroll_and_bars_are_erased(tmp_path):
    bar = r"printf '\r\033[?7l12345678901234\033[K\033[?7h\r\033[K'"
    script = f"echo first; {bar}; echo 0123456789ab; printf 'xx\\ry\\n'; echo '<é>'"
    assert shown(tmp_path, "10x5", script) == ["first", "0123456789", "ab", "yx", "<é>"]
    assert shown(tmp_path, "10x2", script) == ["yx", "<é>"]
    assert shown(tmp_path, "77x5", "stty size") == ["5 77"]
