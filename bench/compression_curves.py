#!/usr/bin/env python3
"""Trains with and without compression between nodes, and draws the losses beside those of the exact run.

    bench/compression_curves.py FOLDER [--rows exact int8 ...] [--launch "mpirun -n 2 ..."] -- FLAGS OF mpzero train

Each row is the same training with other keys of zero_optimization: exact, int8_gradients, int8_weights, int8 (both),
int4_gradients, int4 (4-bit gradients, int8 weights). One more, fp32, compresses nothing and sends gradients in fp32:
its distance from the exact run is what any other rounding does to the losses. FLAGS must have --deepspeed_config.
`--launch` starts the ranks; the default is two ranks of this machine that NCCL takes for two hosts, with a node each.

A row that FOLDER has from an earlier call is not run again without --again, so that rows can be run one at a time and
on several days. FOLDER gets a folder for each row with its log and metrics, table.md, results.json and curves.svg: the
losses, means over --window steps, and their differences to the exact run. Exits with status 1 if a row failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import loss_curves
from loss_curves import Row
from network_experiment import command_of, split_flags, take_flag


def with_keys(**keys: bool) -> object:
    """The change of a ds_config.json to these keys of zero_optimization, and no others of compression."""

    def change(config: dict) -> dict:
        zero = {key: value for key, value in config["zero_optimization"].items() if "quantized" not in key}
        return {**config, "zero_optimization": {**zero, **keys}}

    return change


GRADIENTS, WEIGHTS = {"zero_quantized_gradients": True}, {"zero_quantized_weights": True}
FOUR_BITS = ("--quantized_gradient_bits=4",)
ROWS = {
    "exact": Row("exact", with_keys()),
    "fp32": Row("exact, gradients in fp32", lambda config: {**with_keys()(config), "communication_data_type": "fp32"}),
    "int8_gradients": Row("int8 gradients", with_keys(**GRADIENTS)),
    "int8_weights": Row("int8 weights", with_keys(**WEIGHTS)),
    "int8": Row("int8 gradients and weights", with_keys(**GRADIENTS, **WEIGHTS)),
    "int4_gradients": Row("4-bit gradients", with_keys(**GRADIENTS), FOUR_BITS),
    "int4": Row("4-bit gradients, int8 weights", with_keys(**GRADIENTS, **WEIGHTS), FOUR_BITS),
}


def table(results: dict[str, dict]) -> str:
    lines = [
        "| between nodes | last loss | to the exact run | largest difference | validation | a node sends | step |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in results.items():
        if "error" in row:
            lines.append(f"| {ROWS[name].label} | failed: {row['error'].replace('|', '/')} | | | | | |")
            continue

        def show(key: str, text: str, row: dict = row) -> str:
            return "" if row[key] is None else text.format(row[key])

        lines.append(
            f"| {ROWS[name].label} | {row['last_loss']:.4f} | {show('difference_at_end', '{:+.4f}')} "
            f"| {show('largest_difference', '{:+.4f}')} | {show('validation_loss', '{:.4f}')} "
            f"| {row['internode_megabytes']:.3g} MB | {row['step_ms']:.0f} ms |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    own, flags = split_flags(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    loss_curves.add_arguments(parser, ROWS)
    parser.set_defaults(rows=[name for name in ROWS if name != "int8_weights"])
    parser.add_argument("--ranks_per_node", type=int, default=1, help="unless the file says it")
    args = parser.parse_args(own)
    file = take_flag(flags, "deepspeed_config")
    if file is None:
        parser.error("after -- there must be --deepspeed_config")
    config = json.loads(Path(file).read_text(encoding="utf-8"))
    zero = config.setdefault("zero_optimization", {})
    if not any(key in zero for key in ("mics_shard_size", "zero_hpz_partition_size")):
        zero["mics_shard_size"] = args.ranks_per_node
    rows, errors = loss_curves.run(ROWS, args, config, flags, lambda words: command_of(args.launch, words))
    results = {name: loss_curves.result(steps, rows.get("exact", []), args.window) for name, steps in rows.items()}
    results |= {name: {"error": error} for name, error in errors.items()}
    loss_curves.write(args.folder, results, table(results))
    labels = {name: row.label for name, row in ROWS.items()}
    if rows:
        loss_curves.draw(rows, labels, args.window, args.folder / "curves.svg", args.title)
    return 1 if errors else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
