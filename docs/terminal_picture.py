#!/usr/bin/env python3
"""Runs a command on a terminal, and draws the terminal's content after the command has ended.

docs/terminal_picture.py COLUMNSxROWS PICTURE.svg COMMAND ...
docs/terminal_picture.py 80x29 docs/first_run_80.svg ./train-singlenode.sh

Emulates the control sequences that mpzero and its scripts use: carriage return, erase to end of line, and no wrapping.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from html import escape
from pathlib import Path

CELL, LINE, MARGIN = 7.2, 16, 12  # pixels at a font size of 12
CONTROL = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|(\r|\n)|([^\x1b\r\n]+)")


def output_of(columns: int, rows: int, command: list[str]) -> str:
    terminal, end = pty.openpty()
    script = f'stty cols {columns} rows {rows}; exec "$@"'
    words = ["setsid", "--ctty", "--wait", "bash", "-c", script, "bash", *command]
    environment = {**os.environ, "TERM": "xterm", "LANG": "C.UTF-8"}
    written = b""
    with subprocess.Popen(words, stdin=end, stdout=end, stderr=end, env=environment):
        os.close(end)
        try:
            while block := os.read(terminal, 65536):
                written += block
        except OSError:  # EIO: no process has the terminal open
            pass
    return written.decode("utf-8", "replace")


def lines_of(text: str, columns: int) -> list[str]:
    """Returns all lines of the output, including lines that have scrolled off the terminal."""
    lines, column, wraps = [""], 0, True
    for parameters, command, control, words in CONTROL.findall(text):
        if control == "\r":
            column = 0
        elif control == "\n":
            lines.append("")
        elif command == "K":
            lines[-1] = lines[-1][:column]
        elif command in ("h", "l") and parameters == "?7":
            wraps = command == "h"
        for character in words:
            if column == columns and wraps:
                lines.append("")
                column = 0
            column = min(column, columns - 1)
            line = lines[-1].ljust(column)
            lines[-1] = line[:column] + character + line[column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


def picture(lines: list[str], columns: int) -> str:
    width, height = 2 * MARGIN + columns * CELL, 2 * MARGIN + len(lines) * LINE
    rows = "\n".join(
        f'<text x="{MARGIN}" y="{MARGIN + LINE * i + 12}" textLength="{len(line) * CELL:.1f}">{escape(line)}</text>'
        for i, line in enumerate(lines)
        if line
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">\n'
        f'<rect width="100%" height="100%" rx="6" fill="#1e1e1e"/>\n'
        '<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="12" fill="#dddddd" '
        f'xml:space="preserve" style="white-space: pre">\n{rows}\n</g>\n</svg>\n'
    )


def main() -> None:
    columns, rows = map(int, sys.argv[1].split("x"))
    lines = lines_of(output_of(columns, rows, sys.argv[3:]), columns)
    while lines and not lines[-1]:
        lines.pop()
    Path(sys.argv[2]).write_text(picture(lines[-rows:], columns), encoding="utf-8")


if __name__ == "__main__":
    main()
