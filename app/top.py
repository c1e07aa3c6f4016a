#!/usr/bin/env python3
"""Monitors a run on the terminal: step, loss, throughput, time breakdown, compute time per rank and, with
--metrics_port, hosts and GPUs. Press q or Ctrl-C to quit; the run continues.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
import tty
from pathlib import Path

from prepare import shown
from run_files.regular_files import NotReadable, open_regular
from run_top.frame import frame_of
from run_top.nodes import Nodes
from run_top.reading import RunReader, TopError

PLAIN_COLUMNS, PLAIN_ROWS = 80, 60
MOST_LOG_BYTES = 1 << 36
LOG_LINE = b"mpzero: Metrics are in "  # printed by sbatch/train.sbatch
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BROKEN_PIPE = 141  # 128 + SIGPIPE, as in a shell


def main() -> int:
    try:
        arguments = parse_arguments()
        reader, nodes = RunReader(run_named(arguments.run)), Nodes()
        if arguments.once or terminal_size() is None:
            run = reader.update()
            print("\n".join(frame_of(run, nodes.look(run), time.time(), PLAIN_COLUMNS, PLAIN_ROWS)), flush=True)
        else:
            # Threads started later inherit the mask. follow() receives the signals and restores the cursor.
            signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
            follow(reader, nodes, arguments.interval)
        return 0
    except (TopError, NotReadable) as error:
        print(f"mpzero: error: {shown(str(error))}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.filename is not None:
            print(f"mpzero: error: {shown(error.filename)} cannot be read: {error.strerror}.", file=sys.stderr)
            return 2
        # Discard the output that Python would flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return BROKEN_PIPE
        print(f"mpzero: error: stdout cannot be written: {error.strerror}.", file=sys.stderr)
        return 1


def parse_arguments() -> argparse.Namespace:
    parser = Parser(
        prog="mpzero top", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "run",
        metavar="RUN|JOB",
        help="a run's --checkpoint_dir or --metrics_file, or a Slurm job id of train.sbatch: 1234 or 1234_5",
    )
    parser.add_argument(
        "--once", action="store_true", help="print one snapshot and exit (default if stdout is not a terminal)"
    )
    parser.add_argument(
        "--interval", type=interval, default=2.0, metavar="SECONDS", help="time between updates (default: 2)"
    )
    return parser.parse_args()


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise TopError(f"{message}; see mpzero top --help.")


def interval(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"'{text}' must be a number of seconds from 0.1 to 3600")
    return seconds


def run_named(name: str) -> Path:
    """Returns the path of a run, given as a folder, a file or a job id."""
    if not re.fullmatch(r"[0-9]{1,15}(_[0-9]{1,15})?", name) or os.path.lexists(name):
        return Path(name)
    log = log_of_job(name)
    if not log:
        raise TopError(f"'{name}' is neither a folder nor a Slurm job: pass the run's --checkpoint_dir.")
    metrics = b""
    try:
        with open_regular(Path(log), MOST_LOG_BYTES) as file:
            for line in file:
                if line.startswith(LOG_LINE):
                    metrics = line[len(LOG_LINE) :].rstrip(b"\n")
    except FileNotFoundError:
        pass
    if not metrics:
        raise TopError(
            f"job {name} has not written its metrics path to {log} yet: try again once training starts, or pass the "
            "run's --checkpoint_dir."
        )
    return Path(os.fsdecode(metrics))


def log_of_job(number: str) -> str:
    """Returns the job's StdOut path, or "" if Slurm does not know the job."""
    try:
        command = ["scontrol", "show", "job", number]
        said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout
    except OSError:
        return ""
    found = re.search(rb"StdOut=(.*)", said)
    return os.fsdecode(found.group(1)) if found else ""


def terminal_size() -> os.terminal_size | None:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return None
    return size if size.columns else None


class Keys:
    """Reads keys without waiting for Enter and without echo, if this is the terminal's foreground process."""

    def __enter__(self) -> Keys:
        self.terminal = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1
        with contextlib.suppress(OSError):  # not a controlling terminal
            if self.terminal >= 0 and os.tcgetpgrp(self.terminal) != os.getpgrp():
                self.terminal = -1
        if self.terminal >= 0:
            self.before = termios.tcgetattr(self.terminal)
            tty.setcbreak(self.terminal)
        return self

    def __exit__(self, *_: object) -> None:
        if self.terminal >= 0:
            termios.tcsetattr(self.terminal, termios.TCSADRAIN, self.before)

    def ask_to_end(self) -> bool:
        typed = self.terminal >= 0 and bool(select.select([self.terminal], [], [], 0)[0])
        return typed and os.read(self.terminal, 1) in (b"q", b"Q")


def ends_within(seconds: float, keys: Keys) -> bool:
    """Waits at most `seconds` for a signal or the q key. Returns True if either arrived."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if signal.sigtimedwait(ENDING, min(left, 0.1)) is not None or keys.ask_to_end():
            return True
    return False


def follow(reader: RunReader, nodes: Nodes, seconds: float) -> None:
    """Shows the run until it ends, a signal arrives or q is pressed. Hides the cursor during that time."""
    with Keys() as keys:
        show(reader, nodes, seconds, keys)


def show(reader: RunReader, nodes: Nodes, seconds: float, keys: Keys) -> None:
    sys.stdout.write("\033[?25l\033[2J")
    try:
        while True:
            run = reader.update()
            size = terminal_size() or os.terminal_size((PLAIN_COLUMNS, PLAIN_ROWS))
            lines = frame_of(run, nodes.look(run), time.time(), size.columns, size.lines)
            sys.stdout.write("\033[H" + "\n".join(f"{line}\033[K" for line in lines) + "\033[J")
            sys.stdout.flush()
            if run.end or ends_within(seconds, keys):
                return
    finally:
        sys.stdout.write("\033[?25h\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
