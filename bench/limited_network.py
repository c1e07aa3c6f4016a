#!/usr/bin/env python3
"""Trains between two hosts of this machine whose link is as slow as it is told, beside what the bytes predict.

    bench/limited_network.py FOLDER [--gigabits 1 10 25 100] [--milliseconds 0 0.1 1] [--build build]

The hosts are network namespaces (bench/two_namespaces.py) with a rank each, on the CPU; MPI's TCP connects them. Needs
root and Linux; no GPU. A model of fp32 parameters and fp32 gradients: 4 bytes each, so that with two levels a node
sends 2 x 4 bytes x parameters x (nodes - 1) / nodes in a step, and with one level the gradients at each micro-batch.

Prediction: the bytes that the formula counts, at the rate that one plain TCP stream reached on the same link with both
hosts sending (bench/tcp_streams.py), plus a trip for each collective. Measured: the time that the ranks waited for
collectives in the median step and in the quickest one, the bytes that mpzero counted, and those of the interface,
headers included. Ranks also wait for each other's computing, so that other programs on the machine lengthen the median.

FOLDER gets limited.json, limited.md, which is printed, and a folder for each run.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import network_experiment
import tcp_streams
from measures import REPOSITORY, read_metrics
from two_namespaces import ADDRESSES, Hosts, Link, reason_to_skip, two_hosts

VOCABULARY = 4096
MODEL = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": VOCABULARY,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "initializer_range": 0.02,
}
ACCUMULATION = 4
BYTES = 4  # of a parameter, and of a gradient, under way
SEQUENCE = 8


def parameters_of(model: dict) -> int:
    hidden, heads, kv_heads = model["hidden_size"], model["num_attention_heads"], model["num_key_value_heads"]
    head_dim = model["head_dim"]
    attention = hidden * head_dim * (2 * heads + 2 * kv_heads) + 2 * head_dim
    layer = attention + 3 * hidden * model["intermediate_size"] + 2 * hidden
    return model["vocab_size"] * hidden + model["num_hidden_layers"] * layer + hidden


def predicted_bytes(parameters: int, *, levels: int, accumulation: int, nodes: int = 2) -> float:
    """What a node of one rank sends in a step of ZeRO-2."""
    sums = 1 if levels == 2 else accumulation
    return (sums + 1) * BYTES * parameters * (nodes - 1) / nodes


def collectives(model: dict, *, levels: int, accumulation: int) -> int:
    """Between the nodes in a step: a sum and a gather for each unit (embedding, layers, head), and the norm's."""
    units = model["num_hidden_layers"] + 2
    return units * ((1 if levels == 2 else accumulation) + 1) + 1


@dataclass
class Result:
    link: Link
    levels: int
    round_trip_us: float  # of the link when nothing else runs
    stream_gbs: float  # GB/s each way
    formula_mb: float = 0
    counted_mb: float = 0
    interface_mb: float = 0  # of both hosts, the mean
    predicted_ms: float = 0
    communication_ms: float = 0
    least_communication_ms: float = 0
    step_ms: float = 0
    error: str = ""


def streams_of(hosts: Hosts, seconds: float) -> dict:
    """Plain streams between the hosts, while nothing else runs."""
    program = str(Path(tcp_streams.__file__).resolve())
    port = "5201"
    serving = subprocess.Popen(hosts.inside(1, [sys.executable, program, "serve", "--port", port]))
    try:
        words = [sys.executable, program, "measure", ADDRESSES[1], "--port", port, "--streams", "1"]
        end = time.monotonic() + 30
        while True:
            done = subprocess.run(
                hosts.inside(0, [*words, f"--seconds={seconds}"]), capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                return json.loads(done.stdout)
            if time.monotonic() > end:  # until the server listens
                raise OSError(f"no stream: {done.stderr.strip()}")
            time.sleep(0.2)
    finally:
        serving.terminate()
        serving.wait()


def train(hosts: Hosts, link: Link, levels: int, streams: dict, args: argparse.Namespace) -> Result:
    each_way = streams["both_ways"]["1"] / 2
    result = Result(link, levels, streams["round_trip_us"], each_way)
    name = f"{link.name}, {levels} levels".replace(" ", "_").replace("/", "").replace(",", "")
    folder = args.folder / name
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": ACCUMULATION,
        "bf16": {"enabled": False},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": {"stage": 2},
    }
    settings = network_experiment.Settings(
        folder=folder,
        config=config,
        flags=[
            f"--model_config={args.folder / 'model.json'}",
            f"--train_data={args.folder / 'tokens.h5'}",
            f"--seq_length={SEQUENCE}",
            "--device=cpu",
            "--validation_freq=0",
        ],
        build=args.build.resolve(),
        launch=" ".join(hosts.mpirun(folder / "agent")),
        steps=args.steps,
        warm_up=args.warm_up,
        limit=args.limit,
    )
    row = network_experiment.Row("auto", 2, "1" if levels == 2 else "one level")
    before = [hosts.sent_bytes(host) for host in range(2)]
    network_experiment.run(row, settings)
    sent = sum(hosts.sent_bytes(host) - before[host] for host in range(2)) / 2
    result.formula_mb = predicted_bytes(parameters_of(MODEL), levels=levels, accumulation=ACCUMULATION) / 1e6
    trips = collectives(MODEL, levels=levels, accumulation=ACCUMULATION) * streams["round_trip_us"] / 2
    result.predicted_ms = result.formula_mb / each_way + trips / 1e3
    # The start of the run sends the initial weights and little else; it counts as a step's.
    result.interface_mb = sent / args.steps / 1e6
    result.error = row.error
    if row.step is not None and row.parts is not None:
        result.step_ms = row.step
        result.counted_mb = row.internode_megabytes or 0
        steps = read_metrics(folder / row.name / "metrics.jsonl")[args.warm_up :]
        waits = [step["exposed_communication_seconds"] * 1e3 for step in steps]
        result.communication_ms, result.least_communication_ms = statistics.median(waits), min(waits)
    return result


def table(results: list[Result]) -> str:
    lines = [
        "| link, each way | there and back | plain stream, both sending | levels | a node sends: formula / counted / "
        "interface | communication: predicted / least / median | step |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in results:
        begin = f"| {one.link.name} | {one.round_trip_us / 1e3:.2f} ms | {one.stream_gbs * 8:.2f} Gb/s | {one.levels} |"
        if one.error:
            lines.append(f"{begin} not run: {one.error.replace('|', '/')} | | |")
            continue
        sent = f"{one.formula_mb:.1f} / {one.counted_mb:.1f} / {one.interface_mb:.1f} MB"
        waits = f"{one.predicted_ms:.0f} / {one.least_communication_ms:.0f} / {one.communication_ms:.0f} ms"
        lines.append(f"{begin} {sent} | {waits} | {one.step_ms:.0f} ms |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--gigabits", nargs="+", type=float, default=[1, 10, 25, 100], help="a second; 0: no limit")
    parser.add_argument("--milliseconds", nargs="+", type=float, default=[0, 0.1, 1], help="one way, in addition")
    parser.add_argument("--levels", nargs="+", type=int, choices=[1, 2], default=[1, 2])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm_up", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300, help="seconds for one run")
    parser.add_argument("--seconds", type=float, default=2, help="for each measurement of plain streams")
    args = parser.parse_args(arguments)
    if reason := reason_to_skip():
        print(f"limited_network.py: {reason}", file=sys.stderr)
        return 2
    # So that a run ends with this program.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args.folder = args.folder.resolve()
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / "model.json").write_text(json.dumps(MODEL, indent=1))
    tokens = [sys.executable, str(REPOSITORY / "bench" / "random_tokens.py"), str(args.folder / "tokens.h5")]
    subprocess.run([*tokens, f"--vocab_size={VOCABULARY}", "--tokens=100000"], check=True)
    results: list[Result] = []
    for milliseconds in args.milliseconds:
        for gigabits in args.gigabits:
            link = Link(gigabits or None, milliseconds)
            with two_hosts(link) as hosts:
                streams = streams_of(hosts, args.seconds)
                for levels in args.levels:
                    print(f"{link.name}, levels: {levels}", file=sys.stderr)
                    results.append(train(hosts, link, levels, streams, args))
                    found = [asdict(each) for each in results]
                    (args.folder / "limited.json").write_text(json.dumps(found, indent=1))
                    (args.folder / "limited.md").write_text(table(results))
    print(table(results), end="")
    return 1 if any(each.error for each in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
