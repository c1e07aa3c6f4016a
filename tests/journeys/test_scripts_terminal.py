"""./train-singlenode.sh on a terminal: what the user sees, what the log keeps, and a terminal that is closed."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest
from own_build import reason_to_skip

from .one_machine import Machine

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(reason_to_skip() is not None, reason=reason_to_skip() or ""),
]

STEPS = 30


class Terminal:
    """`command` on a terminal of its own, of 80 columns, whose hangup it ignores, as after `disown`."""

    def __init__(self, machine: Machine, command: str):
        self.master, slave = pty.openpty()
        script = f"stty cols 80 rows 40; trap '' HUP; {command}"
        # setsid --ctty: the terminal is the one of the session, as a user's is.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", "bash", "-c", script],
            cwd=machine.checkout,
            env=machine.environment(TERM="xterm"),
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)

    def read(self) -> bytes:
        """What comes next; empty at the end."""
        try:
            return os.read(self.master, 4096)
        except OSError:
            return b""


def shown(text: str) -> list[str]:
    """The lines that a terminal without wrapping shows."""
    lines = []
    for raw in text.replace("\r\n", "\n").split("\n"):
        line = ""
        for piece in re.sub(r"\x1b\[\?7[lh]", "", raw).split("\r"):
            written, *erasing = piece.split("\x1b[K")
            line = written + ("" if erasing else line[len(written) :])
            for more in erasing:
                line += more
        lines.append(line)
    return lines


def metrics(machine: Machine) -> list[dict]:
    text = (machine.checkout / "checkpoints/first_run/metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def log_of(machine: Machine) -> Path:
    (log,) = (machine.checkout / "logs").glob("*.out")
    return log


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_lines_and_the_progress_bar_stay_apart_and_the_log_has_the_lines(machine):
    terminal = Terminal(machine, f"MAX_STEPS={STEPS} ./train-singlenode.sh -- --logging_freq 2")
    text = ""
    while block := terminal.read():
        text += block.decode(errors="replace")
    assert terminal.process.wait() == 0, text
    assert "\x1b[?7l" in text  # the bar
    batches = [line for line in shown(text) if "Loss: " in line]
    assert len(batches) == STEPS // 2
    assert all(re.match(r"Batch \d+ Loss: ", line) for line in batches)
    log = log_of(machine).read_text()
    assert [line for line in log.splitlines() if "Loss: " in line] == batches
    assert "\x1b" not in log and "\r" not in log
    # The samples of the model's text, which another program makes.
    assert sum(line.startswith("  | The prince looked at") for line in shown(text)) == 2
    # Warnings are in the log, too.
    assert "mpzero: warning: " in log


def test_a_run_whose_terminal_is_closed_trains_to_its_end(machine):
    terminal = Terminal(machine, f"MAX_STEPS={STEPS} ./train-singlenode.sh -- --logging_freq 1")
    text = b""
    while b"Batch 2 Loss" not in text:
        block = terminal.read()
        assert block, text
        text += block
    os.close(terminal.master)
    terminal.process.wait()
    assert [line["step"] for line in metrics(machine)] == list(range(1, STEPS + 1))
    assert f"Saved checkpoint: checkpoints/first_run/qwen3_tiny-{STEPS}steps" in log_of(machine).read_text()


def test_a_run_whose_output_nobody_reads_any_more_trains_to_its_end(machine):
    pipe = './train-singlenode.sh -- --logging_freq 1 | grep -m 1 "Batch 2 "; exit ${PIPESTATUS[0]}'
    seen = machine.type(f"MAX_STEPS=9 {pipe}")
    assert seen.status == 0, seen.all
    assert [line["step"] for line in metrics(machine)] == list(range(1, 10))
    assert "Saved checkpoint: checkpoints/first_run/qwen3_tiny-9steps" in log_of(machine).read_text()
