#!/usr/bin/env python3
"""Follows a run's metrics and passes each step on to TensorBoard, Weights & Biases or MLflow, while the run trains.

follow.py checkpoints --sink tensorboard
tensorboard --logdir checkpoints/tensorboard

It only reads what the run has written, so that nothing it does touches training. It may be stopped and started at any
time: it goes on with the first step that it has not passed on. Starts of a run after a requeue are the same run.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

from run_follow.following import Follower, FollowError, Place
from run_follow.sinks import SINKS, SinkMissing

PAUSE_SECONDS = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's --checkpoint_dir or --metrics_file")
    parser.add_argument("--sink", choices=sorted(SINKS), default="tensorboard", help="default: tensorboard")
    parser.add_argument("--logdir", type=Path, help="TensorBoard's folder; default: tensorboard next to the metrics")
    parser.add_argument("--project", default="mpzero", help="W&B's project or MLflow's experiment; default: mpzero")
    parser.add_argument("--once", action="store_true", help="pass on what is there, and end")
    arguments = parser.parse_args()
    metrics = arguments.run / "metrics.jsonl" if arguments.run.is_dir() or arguments.run.suffix == "" else arguments.run
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, stop)
    try:
        return follow(metrics, arguments)
    except (FollowError, SinkMissing) as error:
        print(f"follow.py: {error}", file=sys.stderr)
        return 2
    except Stopped:
        return 0


class Stopped(BaseException):
    """A signal asks to end."""


def stop(*_: object) -> None:
    raise Stopped


def follow(metrics: Path, arguments: argparse.Namespace) -> int:
    """Until a signal ends it."""
    follower = Follower(metrics)
    place = Place(metrics.with_name(f".followed-by-{arguments.sink}.json"))
    sink = None
    try:
        while True:
            for row in follower.new_rows():
                if not place.is_new(row):
                    continue
                if sink is None or sink.run_id != row.run_id:
                    if sink is not None:
                        sink.close()
                    options = {
                        "folder": arguments.logdir or metrics.parent / "tensorboard",
                        "project": arguments.project,
                    }
                    sink = SINKS[arguments.sink](row.run_id, first_step=row.step, **options)
                elif row.step <= place.step:
                    sink.rewind(row.step)
                sink.write(row)
                place.passed(row)
            if sink is not None:
                sink.flush()
            place.save()
            if arguments.once:
                return 0
            time.sleep(PAUSE_SECONDS)
    finally:
        if sink is not None:
            sink.close()
        place.save()


if __name__ == "__main__":
    sys.exit(main())
