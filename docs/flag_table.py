#!/usr/bin/env python3
"""Puts the flags that `mpzero train --help` lists into docs/configuration.md, between the marks of its tables.

docs/flag_table.py [HELP]      HELP: a file with the text; by default that of build/bin/mpzero
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "configuration.md"
BEGIN, END = "<!-- flags -->\n", "<!-- end of flags -->"


@dataclass
class Flag:
    name: str  # without --
    value: str  # what --help calls its value; empty: it takes none
    words: str

    def row(self) -> str:
        """Its row of a table: flag, value, meaning, default."""
        match = re.fullmatch(r"(.*?) *\(default: (.*)\)", self.words)
        meaning, default = match.groups() if match else (self.words, "")
        if meaning.endswith("(required)"):
            meaning, default = meaning.removesuffix("(required)").rstrip(), "required"
        cells = (f"`--{self.name}`", self.value, meaning, default)
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def program_help() -> str:
    """What the built program prints."""
    program = Path(os.environ.get("BUILD_DIR", ROOT / "build")) / "bin" / "mpzero"
    return subprocess.run([program, "train", "--help"], capture_output=True, text=True, check=True).stdout


def read_groups(text: str) -> dict[str, list[Flag]]:
    """The flags by the titles of their groups. A title begins in the first column and ends with a colon; a flag begins
    in the third column, and what follows in later columns is more of its words."""
    groups: dict[str, list[Flag]] = {}
    for line in text.splitlines():
        title = re.fullmatch(r"(\S.*):", line)
        flag = re.fullmatch(r"  --(\w+)(?: (\S+))? {2,}(\S.*)", line)
        if title:
            groups[title.group(1)] = []
        elif flag:
            name, value, words = flag.groups()
            list(groups.values())[-1].append(Flag(name, value or "", words.strip()))
        elif line.startswith("   ") and groups:
            list(groups.values())[-1][-1].words += " " + line.strip()
    return groups


def tables(text: str) -> str:
    """One Markdown table for each group of the help."""
    parts = []
    for title, flags in read_groups(text).items():
        head = "| flag | value | meaning | default |\n|---|---|---|---|\n"
        parts.append(f"### {title}\n\n" + head + "\n".join(flag.row() for flag in flags) + "\n")
    return "\n".join(parts)


def main() -> None:
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    text = Path(sys.argv[1]).read_text() if len(sys.argv) == 2 else program_help()
    before, rest = DOCUMENT.read_text().split(BEGIN)
    DOCUMENT.write_text(before + BEGIN + "\n" + tables(text) + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
