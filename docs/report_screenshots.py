#!/usr/bin/env python3
"""Makes docs/report.png: the report of a small run on this machine's CPU, wide and narrow, light and dark.

docs/report_screenshots.py [--build build]

Needs the built program, Chromium (Debian's package chromium) and the virtual environment of the programs in app/.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
WIDE, NARROW, HEIGHT = 1400, 390, 2500  # of the page that is shown
LEAST_WINDOW = 500  # Chromium makes none that is narrower
SCHEMES = {"light": 1, "dark": 0}  # Chromium's preferredColorScheme
PANELS = {WIDE: 560, NARROW: 250}  # width in the picture
PICTURE_HEIGHT, GAP, COLOURS = 1000, 12, 96
HOSTS = '["node-1","node-1"]'

TRAINING = {
    "model_type": "qwen3_tiny",
    "validation_freq": 25,
    "seq_length": 64,
    "max_steps": 300,
    "warmup_steps": 20,
    "learning_rate": 1e-3,
    "checkpoint_freq": 50,
    "logging_freq": 5,
    "device": "cpu",
}


def call(*command: object) -> None:
    environment = {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment |= {"OMPI_MCA_mpi_yield_when_idle": "1"}
    done = subprocess.run(
        [str(word) for word in command],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        encoding="utf-8",
    )
    if done.returncode != 0:
        sys.exit(f"{command[0]} ended with status {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")


def report_of_a_run(folder: Path, build: Path) -> Path:
    """-> the page about a run of two ranks on the first run's text"""
    data, run = folder / "train.h5", folder / "run"
    app = ROOT / "app"
    call(sys.executable, app / "prepare_data.py", ROOT / "assets" / "tiny_corpus", data, "--tokenizer", "bytes")
    flags = TRAINING | {"train_data": data, "validation_data": data, "checkpoint_dir": run}
    flags["metrics_file"] = run / "metrics.jsonl"
    mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2"]
    call(*mpirun, build / "bin" / "mpzero", "train", *(f"--{name}={value}" for name, value in flags.items()))
    # The page names the host.
    events = run / "events.jsonl"
    events.write_text(
        events.read_text(encoding="utf-8").replace(
            json.dumps([socket.gethostname()] * 2, separators=(",", ":")), HOSTS
        ),
        encoding="utf-8",
    )
    call(sys.executable, app / "report.py", run)
    return run / "report.html"


def shot(page: Path, width: int, scheme: str, folder: Path) -> Image.Image:
    """The page as Chromium shows it at a width. It is in a frame, whose width the page sees as the screen's."""
    frame = folder / "frame.html"
    style = f"border: 0; width: {width}px; height: {HEIGHT}px"
    frame.write_text(
        f'<body style="margin: 0"><iframe src="{page.as_uri()}" style="{style}"></iframe></body>', encoding="utf-8"
    )
    picture = folder / f"{width}-{scheme}.png"
    call(
        *["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"],
        *["--force-device-scale-factor=1", "--virtual-time-budget=8000"],
        f"--window-size={max(width, LEAST_WINDOW)},{HEIGHT}",
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        f"--screenshot={picture}",
        frame.as_uri(),
    )
    return Image.open(picture).convert("RGB").crop((0, 0, width, HEIGHT))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        page = report_of_a_run(folder, arguments.build)
        panels = []
        for width, shown in PANELS.items():
            for scheme in SCHEMES:
                picture = shot(page, width, scheme, folder)
                size = (shown, round(HEIGHT * shown / width))
                panels.append(picture.resize(size, Image.Resampling.LANCZOS).crop((0, 0, shown, PICTURE_HEIGHT)))
    total = sum(panel.width for panel in panels) + GAP * (len(panels) - 1)
    together = Image.new("RGB", (total, PICTURE_HEIGHT), "#9aa3ad")
    left = 0
    for panel in panels:
        together.paste(panel, (left, 0))
        left += panel.width + GAP
    together.quantize(COLOURS).save(ROOT / "docs" / "report.png", optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
