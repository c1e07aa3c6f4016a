"""Reads the Markdown documents of the repository: their links, headings, words in backticks and code blocks."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Link:
    target: str  # a path relative to the document; empty: the document itself
    anchor: str  # empty: none


@cache
def tracked_files() -> frozenset[str]:
    """Paths of all files of the repository, and of the folders that hold them."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    files = {path for path in listed if path and (ROOT / path).exists()}
    folders = {str(parent) for path in files for parent in Path(path).parents}
    return frozenset(files | folders)


def documents() -> list[str]:
    return sorted(path for path in tracked_files() if path.endswith(".md"))


def text_of(document: str) -> str:
    return (ROOT / document).read_text()


def prose(text: str) -> str:
    """Without code blocks."""
    return FENCE.sub("", text)


def code_blocks(text: str) -> list[str]:
    return FENCE.findall(text)


def section(text: str, title: str) -> str:
    """What follows the heading of level 2 with this title, up to the next one."""
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[title]


def links(text: str) -> list[Link]:
    """Those to files of the repository, pictures too."""
    targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(text)))
    parts = [target.partition("#") for target in targets if not re.match(r"[a-z]+:", target)]
    return [Link(path, anchor) for path, _, anchor in parts]


def anchors(text: str) -> set[str]:
    """What GitHub makes of the headings."""
    found: list[str] = []
    for heading in re.findall(r"^#+ +(.*?) *$", prose(text), re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.append(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    # The second heading of the same words ends with -1.
    return {slug if found[:i].count(slug) == 0 else f"{slug}-{found[:i].count(slug)}" for i, slug in enumerate(found)}


def in_backticks(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(text))
