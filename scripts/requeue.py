"""Decides what becomes of a job of Slurm, for scripts/requeue.sh, and keeps what that takes in restarts.txt.

    requeue.py begun   FACT...    a start of the job
    requeue.py ended   FACT...    its run ended: --status, --stopped, --reason, --node of each node that is blamed
    requeue.py refused FACT...    mpzero doctor refused hosts: --node of each

The answer on stdout, which requeue.sh takes to the letter or not at all:

    say TEXT, warn TEXT           any number of them, to be said in this order
    exclude NODE                  any number of them
    go_on own|asked, finish STATUS, or requeue STATUS TEXT     the last line

Standard library only, and any Python from 3.8 on.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from requeue_decisions import Action, Checkpoint, Event, Kind, State, Verb, decide, kind_of_end
from untrusted import NAME, NotReadable, printable, read

NUMBER = re.compile(r"0|[1-9][0-9]{0,14}")
# The value of each key of restarts.txt: key=value words on one line.
FORMS = {
    "job": NUMBER,
    "failures": NUMBER,
    "refusals": NUMBER,
    "barren": NUMBER,
    "failed_before": re.compile("true|false"),
    "blamed_before": re.compile(f"({NAME.pattern}(,{NAME.pattern})*)?"),
    "open": re.compile("true|false"),
    "step": NUMBER,
    "time": re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?"),
    "saved": re.compile("true|false"),
}


class Damaged(Exception):
    """What is wrong with restarts.txt, without a full stop."""


def parse_state(text: str) -> State:
    values: dict[str, str] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if key not in FORMS or not equals or key in values:
            raise Damaged(f"'{printable(word, 60)}' is none of its words")
        if not FORMS[key].fullmatch(value):
            raise Damaged(f"its {key} is '{printable(value, 60)}'")
        values[key] = value
    missing = [key for key in FORMS if key not in values]
    if missing:
        raise Damaged(f"it has no {missing[0]}")
    numbers = {key: int(values[key]) for key in ("failures", "refusals", "barren", "step")}
    truths = {key: values[key] == "true" for key in ("failed_before", "open", "saved")}
    blamed = tuple(name for name in values["blamed_before"].split(",") if name)
    return State(job=values["job"], time=values["time"], blamed_before=blamed, **numbers, **truths)


def format_state(state: State) -> str:
    def word(value: object) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return ",".join(value) if isinstance(value, tuple) else str(value)

    values = asdict(state)
    return " ".join(f"{key}={word(values[key])}" for key in FORMS) + "\n"


def load_state(path: Path, warnings: list[str]) -> State:
    """Of the newest start, of whatever job it was; of no job where that is not known."""
    try:
        text = read(path)
        return State(job="") if text is None else parse_state(text)
    except NotReadable as error:
        warnings.append(f"{printable(error)}: the restarts of this job are counted anew.")
    except Damaged as error:
        warnings.append(
            f"{printable(path)} is not as a job leaves it ({error}): its restarts are counted anew. Look at who else "
            "writes to this folder."
        )
    return State(job="")


def save_state(path: Path, state: State) -> None:
    """Whole or not at all, and never through a link that another has put there."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with open(descriptor, "w") as file:
            file.write(format_state(state))
        os.replace(name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def newest_checkpoint(folder: Path, warnings: list[str]) -> Checkpoint:
    latest = folder / "latest"
    try:
        name = (read(latest) or "").strip()
        step = step_of(name)
        if step == 0:
            return Checkpoint()
        seconds, nanoseconds = divmod(latest.stat().st_mtime_ns, 10**9)
    except (NotReadable, OSError) as error:
        warnings.append(f"{printable(error)}: no checkpoint is known.")
        return Checkpoint()
    return Checkpoint(step=step, time=f"{max(seconds, 0)}.{nanoseconds:09d}", name=printable(name, 300))


def step_of(name: str) -> int:
    """The step that a checkpoint's name, or its folder's path, tells; 0: none."""
    match = re.fullmatch(r".*-([0-9]{1,15})steps/*", name.strip())
    return int(match.group(1)) if match else 0


def asked_step(folder: str | None) -> int:
    """The step that --resume_from_checkpoint goes on from, as far as names tell it."""
    if folder is None or folder == "none":
        return 0
    with contextlib.suppress(NotReadable, OSError):
        return step_of(read(Path(folder) / "latest") or folder)
    return step_of(folder)


def text_of(action: Action, warnings: list[str]) -> str:
    lines = [f"warn {warning}" for warning in warnings]
    lines += [f"say {printable(note)}" for note in action.notes]
    if action.verb is Verb.GO_ON:
        lines.append("go_on own" if action.own else "go_on asked")
    elif action.verb is Verb.FINISH:
        if action.why:
            lines.append(f"warn {printable(action.why)}")
        lines.append(f"finish {action.status}")
    else:
        lines += [f"exclude {node}" for node in action.nodes]
        lines.append(f"requeue {action.status} {printable(action.why)}")
    return "\n".join(lines) + "\n"


def number(text: str) -> int:
    if not NUMBER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"'{printable(text, 60)}' is no number")
    return int(text)


def name_of_node(text: str) -> str:
    if not NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"'{printable(text, 60)}' is no node's name")
    return text


def parse_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("event", choices=("begun", "ended", "refused"))
    parser.add_argument("--folder", type=Path, required=True, help="CHECKPOINT_DIR")
    parser.add_argument("--job", type=number, required=True)
    parser.add_argument("--restart", type=number, required=True)
    parser.add_argument("--max_restarts", type=number, required=True)
    parser.add_argument("--asked", help="the value of --resume_from_checkpoint")
    parser.add_argument(
        "--overwrite", action="store_true", help="as of mpzero: a run begins anew where nothing is asked"
    )
    parser.add_argument("--status", type=number, default=0)
    parser.add_argument("--stopped", action="store_true")
    parser.add_argument("--reason", default="")
    parser.add_argument("--node", dest="nodes", type=name_of_node, action="append", default=[])
    return parser.parse_args(words)


def event_of(arguments: argparse.Namespace, warnings: list[str]) -> Event:
    kinds = {"begun": Kind.BEGUN, "refused": Kind.REFUSED}
    return Event(
        kind=kinds.get(arguments.event) or kind_of_end(arguments.status, arguments.stopped),
        job=str(arguments.job),
        restart=arguments.restart,
        max_restarts=arguments.max_restarts,
        newest=newest_checkpoint(arguments.folder, warnings),
        folder=str(arguments.folder),
        status=arguments.status,
        reason=printable(arguments.reason),
        nodes=tuple(dict.fromkeys(arguments.nodes)),
        asked=arguments.asked,
        overwrite=arguments.overwrite,
        asked_step=asked_step(arguments.asked),
    )


def main(words: list[str]) -> int:
    arguments = parse_arguments(words)
    warnings: list[str] = []
    path = arguments.folder / "restarts.txt"
    event = event_of(arguments, warnings)
    state = load_state(path, warnings)
    action = decide(state, event)
    try:
        if action.state is not None:
            save_state(path, action.state)
    except OSError as error:
        warnings.append(
            f"{printable(path)} cannot be written ({error.strerror}): only Slurm counts the restarts of this job."
        )
        if action.verb is Verb.GO_ON:
            # Of an earlier start: it would say later that this one has saved nothing.
            with contextlib.suppress(OSError):
                os.unlink(path)
        action = decide(state, replace(event, counted=False))
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    sys.stdout.write(text_of(action, warnings))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Exception as error:
        print(f"mpzero: warning: requeue.py: {type(error).__name__}: {printable(error)}", file=sys.stderr)
        sys.exit(1)
