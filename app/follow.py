#!/usr/bin/env python3
"""Forwards a run's metrics to TensorBoard, W&B, MLflow or a TrainJob during training.

follow.py checkpoints --sink tensorboard
tensorboard --logdir checkpoints/tensorboard

The program only reads the run's files, so it cannot affect training. After a restart, it resumes at the first step
that it has not forwarded. A requeued run is forwarded as a single run. On SIGINT, SIGTERM or SIGUSR2, the program
flushes and exits. A second SIGINT or SIGTERM terminates it immediately.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import time
from pathlib import Path

from run_files.runs import choice
from run_files.utf8 import restart_in_utf8
from run_follow.following import Follower, FollowError
from run_follow.pump import Pump
from run_follow.sinks import SINKS, SinkMissing

PAUSE_SECONDS = 2.0
PROGRESS_SECONDS = 600.0


def main() -> int:
    arguments = parse_arguments()
    # File names may contain any bytes.
    sys.stdout.reconfigure(errors="surrogateescape")
    try:
        sink_type = SINKS[arguments.sink]
        metrics = metrics_file(arguments.run)
        folder = arguments.logdir or metrics.parent / arguments.sink
        sink = sink_type(folder, arguments.project)
        sink.metrics = metrics
        if arguments.check:
            return 0
        if not metrics.exists() and not arguments.wait:
            raise FollowError(
                choice(arguments.run)
                or f"{metrics} does not exist: pass a run's --checkpoint_dir or --metrics_file, or pass --wait to "
                "wait for the run."
            )
        return follow(Pump(Follower(metrics), sink, folder), arguments)
    except (FollowError, SinkMissing) as error:
        print(f"follow.py: {error}", file=sys.stderr)
        return 2
    except Interrupted:
        return 130
    except Exception as error:  # from a sink, e.g. an unreachable server or missing credentials
        print(f"follow.py: {arguments.sink}: {type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's --checkpoint_dir or --metrics_file")
    parser.add_argument(
        "--sink", choices=sorted(SINKS), default="tensorboard", help="destination (default: tensorboard)"
    )
    parser.add_argument(
        "--logdir",
        type=Path,
        help="folder for TensorBoard or W&B files and the forwarding state (default: a folder next to the metrics, "
        "named after the sink)",
    )
    parser.add_argument("--project", default="mpzero", help="W&B project or MLflow experiment (default: mpzero)")
    parser.add_argument("--pid", type=int, help="flush and exit when process PID exits")
    until = parser.add_mutually_exclusive_group()
    until.add_argument("--once", action="store_true", help="forward existing metrics and exit")
    until.add_argument("--wait", action="store_true", help="wait for the run to start")
    until.add_argument("--check", action="store_true", help="only check that the sink's package is installed")
    return parser.parse_args()


def metrics_file(run: Path) -> Path:
    """Returns the metrics file of RUN, which may not exist yet."""
    is_file = run.is_file() or (run.suffix == ".jsonl" and not run.is_dir())
    return run if is_file else run / "metrics.jsonl"


class Interrupted(BaseException):
    """Raised on a second signal."""


class Stop:
    """Stop condition: a signal, or the exit of the --pid process."""

    def __init__(self, pid: int | None):
        self.pid = pid
        self.signalled = False
        self._woken, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            # The launch scripts start this program with the ranks' signals ignored, and stop it with SIGUSR2.
            if number == signal.SIGUSR2 or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def ends(self) -> None:
        """Ignores further signals: Python would restore their default actions before it exits."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)

    def is_wanted(self) -> bool:
        return self.signalled or (self.pid is not None and not is_there(self.pid))

    def pause(self) -> None:
        select.select([self._woken], [], [], PAUSE_SECONDS)

    def _on_signal(self, number: int, _: object) -> None:
        if self.signalled and number != signal.SIGUSR2:
            raise Interrupted
        self.signalled = True


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def follow(pump: Pump, arguments: argparse.Namespace) -> int:
    """Forwards metrics until a stop is requested."""
    stop, progress = Stop(arguments.pid), Progress(pump)
    try:
        while True:
            # Check for a stop before each pass, so that the last pass reads everything written before the stop.
            ends = arguments.once or stop.is_wanted()
            pump.pass_on()
            progress.report()
            if ends:
                break
            stop.pause()
    finally:
        try:
            pump.save()
        finally:
            pump.sink.close()
            stop.ends()
    say(f"{counted(pump.passed)} forwarded.")
    return 0


class Progress:
    """Reports the source, the destination, each new run, and periodically the number of forwarded steps."""

    def __init__(self, pump: Pump):
        self.pump = pump
        self.run_id = ""
        self.said = 0.0
        self.damaged = 0  # damaged lines already reported
        source = pump.follower.path
        say(f"forwarding {source} to {pump.sink.target}.")
        if not source.exists():
            say(f"waiting for {source}.")

    def report(self) -> None:
        pump, now = self.pump, time.monotonic()
        if pump.run_id and (pump.run_id != self.run_id or now - self.said >= PROGRESS_SECONDS):
            say(f"forwarded run {pump.run_id} up to step {pump.last_step}.")
            self.run_id, self.said = pump.run_id, now
        if pump.follower.damaged > self.damaged:
            warn(f"{pump.follower.path.parent}: {pump.follower.damage()}")
        self.damaged = pump.follower.damaged


def counted(steps: int) -> str:
    return "1 step was" if steps == 1 else f"{steps} steps were"


def say(text: str) -> None:
    print(f"follow.py: {text}", flush=True)


def warn(text: str) -> None:
    print(f"follow.py: warning: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    restart_in_utf8()
    sys.exit(main())
