#!/usr/bin/env python3
"""Trains in bf16 and in FP8 from the same weights, and draws the losses and gradient norms beside those of bf16.

    bench/fp8_curves.py FOLDER [--rows bf16 tensorwise ...] [--launch "mpirun -n 2 ..."] -- FLAGS OF mpzero train

Each row is the same training: bf16; bf16_noise, with the attention kernel of --deterministic, whose distance from bf16
is what any other rounding does to the losses; tensorwise and rowwise, the recipes of FP8. FLAGS must have
--deepspeed_config with bf16 enabled. `--launch` starts the ranks; the default is one process.

A row that FOLDER has from an earlier call is not run again without --again. FOLDER gets a folder for each row with its
log and metrics, table.md, results.json and curves.svg. Exits with status 1 if a row failed; a loss that is not finite
ends a run, so such a row has failed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from pathlib import Path

import loss_curves
from loss_curves import Row
from network_experiment import split_flags, take_flag


def with_recipe(recipe: str) -> object:
    return lambda config: {**config, "fp8": {**config.get("fp8", {}), "enabled": True, "recipe": recipe}}


def without_fp8(config: dict) -> dict:
    return {key: value for key, value in config.items() if key != "fp8"}


ROWS = {
    "bf16": Row("bf16", without_fp8),
    "bf16_noise": Row("bf16, another attention kernel", without_fp8, ("--deterministic",)),
    "tensorwise": Row("FP8, tensorwise", with_recipe("tensorwise")),
    "rowwise": Row("FP8, rowwise", with_recipe("rowwise")),
}


def table(results: dict[str, dict]) -> str:
    lines = [
        "| matrix products | last loss | to bf16 | largest difference | validation | to bf16 | gradient norm | step |",
        "|---|---|---|---|---|---|---|---|",
    ]
    bf16 = results.get("bf16", {}).get("validation_loss")
    for name, row in results.items():
        if "error" in row:
            lines.append(f"| {ROWS[name].label} | failed: {row['error'].replace('|', '/')} | | | | | | |")
            continue

        def show(key: str, text: str, row: dict = row) -> str:
            return "" if row[key] is None else text.format(row[key])

        validation = row["validation_loss"]
        relative = "" if None in (bf16, validation) or name == "bf16" else f"{100 * (validation / bf16 - 1):+.2f}%"
        lines.append(
            f"| {ROWS[name].label} | {row['last_loss']:.4f} | {show('difference_at_end', '{:+.4f}')} "
            f"| {show('largest_difference', '{:+.4f}')} | {show('validation_loss', '{:.4f}')} | {relative} "
            f"| {row['gradient_norm']:.3f} | {row['step_ms']:.1f} ms |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    own, flags = split_flags(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    loss_curves.add_arguments(parser, ROWS)
    args = parser.parse_args(own)
    file = take_flag(flags, "deepspeed_config")
    if file is None:
        parser.error("after -- there must be --deepspeed_config")
    config = json.loads(Path(file).read_text(encoding="utf-8"))
    if not config.get("bf16", {}).get("enabled"):
        parser.error(f"{file}: FP8 needs bf16; enable it there")
    rows, errors = loss_curves.run(ROWS, args, config, flags, lambda words: [*shlex.split(args.launch), *words])
    results = {}
    for name, steps in rows.items():
        norms = [step["grad_norm"] for step in steps[-args.window :]]
        results[name] = loss_curves.result(steps, rows.get("bf16", []), args.window)
        results[name]["gradient_norm"] = statistics.fmean(norms)
    results |= {name: {"error": error} for name, error in errors.items()}
    loss_curves.write(args.folder, results, table(results))
    labels = {name: row.label for name, row in ROWS.items()}
    if rows:
        loss_curves.draw(rows, labels, args.window, args.folder / "curves.svg", args.title, gradient_norms=True)
    return 1 if errors else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
