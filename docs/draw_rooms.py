#!/usr/bin/env python3
"""Draws docs/rooms.svg: the rooms of each folder and their dependencies, from USES in their CMakeLists.txt.

docs/draw_rooms.py [PICTURE]

Within a folder, transitive dependencies are omitted. Between folders, one thick arrow represents all dependencies.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "rooms.svg"
FOLDERS = ("app", "io", "model", "parallel", "base")
BOX_HEIGHT, GAP, ROW, MARGIN, TITLE = 26, 14, 62, 14, 26
LETTER = 7.2  # width of a letter
COLORS = {"app": "#e8f0fb", "io": "#eaf6ea", "model": "#fdf1e2", "parallel": "#f4ecf8", "base": "#efefef"}


@dataclass
class Frame:
    """A folder and its rooms, arranged in rows: each room is above the rooms that it uses."""

    folder: str
    rows: list[list[str]]
    arrows: set[tuple[str, str]]
    places: dict[str, tuple[float, float, float]] = field(default_factory=dict)  # x, y, width
    x: float = 0
    y: float = 0

    @property
    def width(self) -> float:
        return max(row_width(row) for row in self.rows) + 2 * MARGIN

    @property
    def height(self) -> float:
        return TITLE + BOX_HEIGHT + ROW * (len(self.rows) - 1) + MARGIN

    def place(self, x: float, y: float, width: float) -> None:
        self.x, self.y = x, y
        for i, row in enumerate(self.rows):
            at = x + (width - row_width(row)) / 2
            for room in row:
                self.places[room] = (at, y + TITLE + ROW * i, box_width(room))
                at += box_width(room) + GAP


def box_width(room: str) -> float:
    return LETTER * len(short(room)) + 20


def row_width(row: list[str]) -> float:
    return sum(box_width(room) for room in row) + GAP * (len(row) - 1)


def short(room: str) -> str:
    return room.split("/", 1)[-1]


def read_uses() -> dict[str, set[str]]:
    """Returns the rooms that each room uses. Rooms are identified by their folders."""
    uses: dict[str, set[str]] = {}
    for top in FOLDERS:
        for path in sorted((ROOT / top).rglob("CMakeLists.txt")):
            call = re.search(r"^mpzero_add_room\(.*?\)", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
            if call:
                words = re.search(r"\bUSES\b([^)]*?)(?=\b(?:SOURCES|PUBLIC|PRIVATE|JOIN)\b|\))", call.group(0))
                uses[str(path.parent.relative_to(ROOT))] = set(words.group(1).split()) if words else set()
        # A folder without rooms counts as one room.
        if not any(room.split("/")[0] == top for room in uses):
            uses[top] = {"base"} - {top}
    return uses


def reaches(uses: dict[str, set[str]], room: str, goal: str) -> bool:
    return any(used == goal or reaches(uses, used, goal) for used in uses[room])


def frame_of(folder: str, uses: dict[str, set[str]]) -> Frame:
    rooms = sorted(room for room in uses if room.split("/")[0] == folder)
    own = {room: {used for used in uses[room] if used in rooms} for room in rooms}
    arrows = {
        (room, used)
        for room in rooms
        for used in own[room]
        if not any(other != used and reaches(own, other, used) for other in own[room])
    }

    def depth(room: str) -> int:
        return max((1 + depth(user) for user in rooms if room in own[user]), default=0)

    def row(room: str) -> int:
        # A room without users is drawn directly above the rooms that it uses.
        used_by_none = depth(room) == 0 and own[room]
        return min(map(depth, own[room])) - 1 if used_by_none else depth(room)

    rows: list[list[str]] = [[] for _ in range(max(map(depth, rooms)) + 1)]
    for room in rooms:
        rows[row(room)].append(room)
    rows = [names for names in rows if names]
    # Place each room below its users, so that fewer arrows cross.
    for i in range(1, len(rows)):
        above = {room: k / len(rows[j]) for j in range(i) for k, room in enumerate(rows[j])}

        def middle(room: str, above: dict[str, float] = above) -> float:
            users = [above[user] for user, used in sorted(arrows) if used == room]
            return sum(users) / len(users) if users else 1.0

        rows[i].sort(key=lambda room: (middle(room), room))
    return Frame(folder, rows, arrows)


def arrow(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    bend = (y2 - y1) / 2
    path = f"M{x1:.0f} {y1:.0f} C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}"
    return f'<path d="{path}" class="{kind}" marker-end="url(#{kind})"/>'


def draw_frame(frame: Frame, width: float) -> list[str]:
    color = COLORS[frame.folder]
    lines = [
        f'<rect x="{frame.x:.0f}" y="{frame.y:.0f}" width="{width:.0f}" height="{frame.height:.0f}" rx="8" '
        f'fill="{color}"/>',
        f'<text x="{frame.x + 10:.0f}" y="{frame.y + 18:.0f}" class="folder">{frame.folder}/</text>',
    ]
    for user, used in sorted(frame.arrows):
        x1, y1, width1 = frame.places[user]
        x2, y2, width2 = frame.places[used]
        lines.append(arrow(x1 + width1 / 2, y1 + BOX_HEIGHT, x2 + width2 / 2, y2 - 3, "thin"))
    for room, (x, y, box) in sorted(frame.places.items()):
        if len(frame.places) == 1 and room == frame.folder:
            continue
        lines.append(f'<rect x="{x:.0f}" y="{y:.0f}" width="{box:.0f}" height="{BOX_HEIGHT}" rx="4" class="room"/>')
        lines.append(f'<text x="{x + box / 2:.0f}" y="{y + 17:.0f}" class="name">{short(room)}</text>')
    return lines


def picture() -> str:
    uses = read_uses()
    frames = {folder: frame_of(folder, uses) for folder in FOLDERS}
    below = ("io", "model", "parallel")
    between = 30
    widths = {folder: max(frames[folder].width, 90) for folder in FOLDERS}
    total = max(widths["app"], sum(widths[folder] for folder in below) + between * (len(below) - 1))
    widths["app"] = widths["base"] = total
    x, top = MARGIN, MARGIN + frames["app"].height + 50
    frames["app"].place(MARGIN, MARGIN, total)
    extra = (total - sum(widths[folder] for folder in below) - between * (len(below) - 1)) / len(below)
    for folder in below:
        widths[folder] += extra
        frames[folder].place(x, top, widths[folder])
        x += widths[folder] + between
    bottom = top + max(frames[folder].height for folder in below) + 50
    frames["base"].place(MARGIN, bottom, total)
    lines = []
    for folder in below:
        middle = frames[folder].x + widths[folder] / 2
        lines.append(arrow(middle, MARGIN + frames["app"].height, middle, top - 6, "thick"))
        lines.append(arrow(middle, top + frames[folder].height, middle, bottom - 6, "thick"))
    for folder in FOLDERS:
        lines += draw_frame(frames[folder], widths[folder])
    width, height = total + 2 * MARGIN, bottom + frames["base"].height + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="12">\n'
        "<style>.room{fill:#fff;stroke:#667}.name{text-anchor:middle;fill:#223}.folder{font-weight:bold;fill:#223}"
        ".thin{fill:none;stroke:#778;stroke-width:1}.thick{fill:none;stroke:#334;stroke-width:3}</style>\n"
        '<defs><marker id="thin" viewBox="0 0 8 8" refX="5" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#778"/></marker>'
        '<marker id="thick" viewBox="0 0 8 8" refX="5" refY="4" markerWidth="4" markerHeight="4" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#334"/></marker></defs>\n'
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>\n' + "\n".join(lines) + "\n</svg>\n"
    )


def main() -> None:
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    (Path(sys.argv[1]) if len(sys.argv) == 2 else PICTURE).write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
