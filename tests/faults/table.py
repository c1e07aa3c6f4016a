#!/usr/bin/env python3
"""Puts the counts of `fault_campaign --json REPORT` into bench/FAULTS.md, between the marks of its table.

table.py REPORT [DOCUMENT]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "bench" / "FAULTS.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->"
OUTCOMES = ("right", "reported", "refused", "UNCLEAR", "WRONG", "LOST", "HANG", "CRASH")
FORMATS = ("hdf5", "deepspeed-zero2", "deepspeed-zero3")
# The names in the table of the targets of targets.cpp.
GROUPS = {
    "HDF5 checkpoints": ["hdf5"],
    "DeepSpeed-format checkpoints": ["deepspeed-zero2", "deepspeed-zero3"],
    "`latest`": ["latest"],
    "stock DeepSpeed files": ["stock-qwen3-zero2-bf16", "stock-qwen3-zero2-fp32", "stock-llama-zero3-fp32"],
    "safetensors": ["safetensors", "safetensors-shards"],
    "token files": ["tokens", "tokens-h5py"],
    "readers on a failing disk, during a run": [
        *(f"{command}-{form}" for form in FORMATS for command in ("read", "verify", "export")),
        *("read-stock", "read-safetensors", "read-tokens"),
    ],
    "saves": [f"save-{scene}{form}" for form in FORMATS for scene in ("", "same-", "renaming-", "pruning-")],
    "conversions into one folder": ["export-over"],
}
GROUP_OF = {target: group for group, targets in GROUPS.items() for target in targets}


def table(report: dict) -> str:
    counts: dict[tuple[str, str], list[int]] = {}
    for row in report["rows"]:
        if row["files"] not in GROUP_OF:
            sys.exit(f"table.py: GROUPS has no place for {row['files']}")
        found = [row[outcome] for outcome in OUTCOMES]
        so_far = counts.setdefault((GROUP_OF[row["files"]], row["fault"]), [0] * len(OUTCOMES))
        so_far[:] = [a + b for a, b in zip(so_far, found, strict=True)]
    order = list(GROUPS)
    lines = ["| files | fault | tried | " + " | ".join(OUTCOMES) + " |", "|---" * (len(OUTCOMES) + 3) + "|"]
    for (group, fault), found in sorted(counts.items(), key=lambda item: order.index(item[0][0])):
        lines.append(f"| {group} | {fault} | {sum(found)} | " + " | ".join(map(str, found)) + " |")
    total = [sum(column) for column in zip(*counts.values(), strict=True)]
    lines.append(f"| all | | {sum(total)} | " + " | ".join(map(str, total)) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    document = Path(sys.argv[2]) if len(sys.argv) == 3 else DOCUMENT
    before, rest = document.read_text().split(BEGIN)
    document.write_text(before + BEGIN + table(json.loads(Path(sys.argv[1]).read_text())) + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
