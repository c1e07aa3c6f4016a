#!/usr/bin/env python3
"""AdamW in host memory, mpzero and stock DeepSpeed one after the other on this machine, and what overlapping changes.

    bench/host_run.py OUTPUT_DIR --build build [--only WORD ...] [--no-deepspeed]

Random tokens. OUTPUT_DIR gets results.json, logs.tar.gz and host.md, the table. Runs that need more GPUs than there are
are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from deepspeed_peer import LLAMA_FILE, users_llama_at_8192
from measures import REPOSITORY, read_metrics, read_peers
from visit import Settings, Visit

BENCH = Path(__file__).resolve().parent
QWEN_FILE = "configs/ds_config.json"


@dataclass(frozen=True)
class Row:
    name: str  # of mpzero's run
    what: str
    peer: str  # a work of deepspeed_peer.py
    gpus: int
    model: str
    seq_length: int
    config: dict
    target: float  # how many times as fast as the peer
    steps: int = 60
    warm_up: int = 10
    limit: float = 170


def with_ratio(config: dict, ratio: str | float) -> dict:
    """The same file with a share of the states on the GPU."""
    config = json.loads(json.dumps(config))
    config["zero_optimization"]["offload_optimizer"]["ratio"] = ratio
    return config


def rows() -> list[Row]:
    qwen = json.loads((REPOSITORY / QWEN_FILE).read_text(encoding="utf-8"))
    llama = json.loads((REPOSITORY / LLAMA_FILE).read_text(encoding="utf-8"))
    small = {"peer": "users_qwen3_zero2", "model": "qwen3_0_6b", "seq_length": 2048}
    large = {"gpus": 4, "model": "llama_3_8b", "steps": 14, "warm_up": 3, "limit": 280}
    return [
        Row("host_qwen3_1gpu", "Qwen3-0.6B, ZeRO-2, T=2048, micro-batch 1", gpus=1, config=qwen, target=3.5, **small),
        Row(
            "host_qwen3_1gpu_clipped",
            "the same, clipped at 0.001",
            gpus=1,
            config={**qwen, "gradient_clipping": 0.001},
            target=3.5,
            **small,
        ),
        Row(
            "host_qwen3_1gpu_auto",
            "the same, `ratio` auto",
            gpus=1,
            config=with_ratio(qwen, "auto"),
            target=10,
            **small,
        ),
        Row("host_qwen3_4gpu", "the same, CPU only", gpus=4, config=qwen, target=3.5, **small),
        Row(
            "host_llama3_8b_t512",
            "Llama-3-8B, ZeRO-3, all on the host, T=512, 4 x 4",
            peer="users_llama3_8b_zero3_4gpu",
            seq_length=512,
            config=llama,
            target=3,
            **large,
        ),
        Row(
            "host_llama3_8b_t8192",
            "Llama-3-8B, ZeRO-3, all on the host, T=8192, micro-batch 1",
            peer="users_llama3_8b_zero3_4gpu_t8192",
            seq_length=8192,
            config=users_llama_at_8192(),
            target=1.9,
            **large,
        ),
    ]


def write_config(visit: Visit, name: str, config: dict) -> str:
    path = visit.settings.scratch / f"{name}.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path.resolve())


def train(visit: Visit, row: Row) -> None:
    visit.train(
        row.name,
        ranks=row.gpus,
        steps=row.steps,
        warm_up=row.warm_up,
        limit=row.limit,
        model_type=row.model,
        seq_length=row.seq_length,
        users_config=write_config(visit, row.name, row.config),
        random=True,
        endless=True,
    )
    metrics = visit.logs / f"{row.name}.jsonl"
    clip = row.config.get("gradient_clipping", 0)
    if metrics.exists() and clip not in (0, "auto"):
        norms = [line["grad_norm"] for line in read_metrics(metrics)]
        visit.results[row.name]["clipped_percent"] = round(100 * sum(norm > clip for norm in norms) / len(norms))


def peer(visit: Visit, row: Row) -> None:
    name = f"peer_deepspeed_{row.peer}_{row.gpus}gpu"
    if name in visit.results or row.gpus > visit.gpus or not visit.wanted(row.name):
        return
    visit.run(name, [sys.executable, str(BENCH / "deepspeed_peer.py"), row.peer, f"--gpus={row.gpus}"], 240)
    found = read_peers([visit.logs / f"{name}.log"])
    visit.results[name]["figures"] = found
    visit.write()


def same_bits(visit: Visit) -> None:
    """100 steps with overlap and without, whose losses must have the same bits; with clipping now and then."""
    config = json.loads((REPOSITORY / QWEN_FILE).read_text(encoding="utf-8"))
    for clip, kind in ((0, "unclipped"), (1.5, "sometimes_clipped")):
        names = []
        for overlap in (True, False):
            name = f"host_bits_{kind}_{'overlap' if overlap else 'serial'}"
            names.append(name)
            zero = {**config["zero_optimization"], "overlap_comm": overlap}
            changed = {**config, "gradient_clipping": clip, "zero_optimization": zero}
            path = write_config(visit, name, changed) if visit.wanted(name) else ""
            visit.train(
                name,
                ranks=1,
                steps=100,
                seq_length=512,
                users_config=path,
                random=True,
                endless=True,
                deterministic=True,
            )
        visit.compare(*names, 0.0)


def table(visit: Visit) -> list[str]:
    lines = [
        "| work | GPUs | mpzero | clipped steps | DeepSpeed | ratio | target |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows():
        ours = visit.results.get(row.name, {}).get("step_ms")
        if ours is None:
            continue
        figures = visit.results.get(f"peer_deepspeed_{row.peer}_{row.gpus}gpu", {}).get("figures", [])
        theirs = figures[0]["step_ms"] if figures else None
        clipped = visit.results[row.name].get("clipped_percent", 0)
        comparison = f"{theirs:.0f} ms | {theirs / ours:.2f}" if theirs else "| "
        lines.append(f"| {row.what} | {row.gpus} | {ours:.1f} ms | {clipped}% | {comparison} | {row.target} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build")
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/mpzero-host-bench"))
    parser.add_argument("--only", nargs="*", default=[], help="only runs whose name contains one of these words")
    parser.add_argument("--no-deepspeed", action="store_true")
    arguments = parser.parse_args()
    settings = Settings(
        output=arguments.output,
        build=arguments.build,
        train_data=arguments.scratch / "none.h5",
        validation_data=arguments.scratch / "none.h5",
        scratch=arguments.scratch,
        only=tuple(arguments.only),
    )
    visit = Visit(settings)
    if visit.wanted("host_adamw_alone"):
        visit.run("host_adamw_alone", [str(arguments.build / "bin" / "bench_host_adamw")], 90)
    same_bits(visit)
    for row in rows():
        if not visit.wanted(row.name) or row.gpus > visit.gpus:
            continue
        train(visit, row)
        if not arguments.no_deepspeed:
            peer(visit, row)
    lines = table(visit)
    print("\n".join(lines), flush=True)
    (arguments.output / "host.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    failed = [name for name, result in visit.results.items() if result.get("status", 0) != 0]
    print("failed:", failed or "none")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
