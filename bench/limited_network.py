#!/usr/bin/env python3
"""Trains on two emulated hosts connected by a rate-limited link, and compares step times with a prediction.

    bench/limited_network.py FOLDER [--gigabits 1 10 25 100] [--milliseconds 0 0.1 1] [--build build] [--device cuda]

The hosts are network namespaces (bench/two_namespaces.py) with one rank each. Requires root and Linux. Parameters and
gradients have the same size. With two levels, a node sends 2 x bytes x parameters x (nodes - 1) / nodes per step. With
one level, it sends the gradients in each micro-batch.

  --device cpu    a small fp32 model; MPI connects the hosts with one TCP connection
  --device cuda   Qwen3-0.6B, micro-batch 4 x 4, T = 512, AdamW on the GPU, bf16; one GPU per host, connected by NCCL's
                  sockets. `mpzero doctor --bandwidth` also measures NCCL between the hosts

The predicted communication time is the calculated bytes divided by the rate of bidirectional TCP streams on the same
link (bench/tcp_streams.py), plus one link latency per collective. The measurements are the exposed communication time
of a step (median and minimum), the bytes counted by mpzero, and the bytes counted by the interface, including headers.
Exposed time includes waiting for the slower rank, so other programs on the machine increase the median.

After each run, FOLDER contains limited.json, limited.md (which is printed) and a folder for the run. If a run exceeds
--limit, or the TCP streams of a link cannot be measured, its rows contain the error.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import network_experiment
import tcp_streams
from deepspeed_peer import on_gpu
from measures import MPI_AS_ROOT, REPOSITORY, read_metrics, read_model
from two_hosts import collective_rates
from two_namespaces import ADDRESSES, Hosts, Link, reason_to_skip, two_hosts
from visit import end

VOCABULARY = 4096
# Preset for --device cuda.
PRESET = "qwen3_0_6b"
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


@dataclass(frozen=True)
class Work:
    """Configuration of the training, and parameters of the prediction."""

    device: str
    model: dict
    config: dict
    flags: tuple[str, ...]
    bytes: int  # per transferred parameter and gradient
    streams: tuple[int, ...]
    network: str = "auto"


def work_of(device: str, folder: Path) -> Work:
    data = f"--train_data={folder / 'tokens.h5'}"
    if device == "cuda":
        flags = (f"--model_type={PRESET}", "--seq_length=512")
        config = on_gpu(2, 4, gas=ACCUMULATION)
        return Work(device, read_model(PRESET), config, (*flags, data), 2, (1, 4, 16), "socket")
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": ACCUMULATION,
        "bf16": {"enabled": False},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": {"stage": 2},
    }
    return Work(device, MODEL, config, (f"--model_config={folder / 'model.json'}", "--seq_length=8", data), 4, (1,))


def parameters_of(model: dict) -> int:
    hidden, heads, kv_heads = model["hidden_size"], model["num_attention_heads"], model["num_key_value_heads"]
    head_dim = model["head_dim"]
    attention = hidden * head_dim * (2 * heads + 2 * kv_heads) + 2 * head_dim
    layer = attention + 3 * hidden * model["intermediate_size"] + 2 * hidden
    return model["vocab_size"] * hidden + model["num_hidden_layers"] * layer + hidden


def predicted_bytes(parameters: int, *, levels: int, accumulation: int, nodes: int = 2, bytes_each: int = 4) -> float:
    """Returns the bytes that a node with one rank sends in a ZeRO-2 step."""
    sums = 1 if levels == 2 else accumulation
    return (sums + 1) * bytes_each * parameters * (nodes - 1) / nodes


def collectives(model: dict, *, levels: int, accumulation: int) -> int:
    """Returns collectives between nodes per step: a reduction and a gather per unit, and the norm reduction."""
    units = model["num_hidden_layers"] + 2
    return units * ((1 if levels == 2 else accumulation) + 1) + 1


@dataclass
class Result:
    link: Link
    levels: int
    round_trip_us: float  # round-trip time of the idle link
    stream_gbs: float  # GB/s per direction
    nccl_gbs: float | None = None  # the slower collective at 512 MiB, measured by mpzero doctor
    formula_mb: float = 0
    counted_mb: float = 0
    interface_mb: float = 0  # mean over both hosts
    predicted_ms: float = 0
    communication_ms: float = 0
    least_communication_ms: float = 0
    step_ms: float = 0
    waits_ms: list[float] = field(default_factory=list)  # per step
    error: str = ""


def streams_of(hosts: Hosts, seconds: float, streams: tuple[int, ...] = (1,)) -> dict:
    """Measures TCP streams between the hosts while the link is idle."""
    program = str(Path(tcp_streams.__file__).resolve())
    port = "5201"
    serving = subprocess.Popen(hosts.inside(1, [sys.executable, program, "serve", "--port", port]))
    try:
        words = [sys.executable, program, "measure", ADDRESSES[1], "--port", port, "--streams", *map(str, streams)]
        end = time.monotonic() + 30
        while True:
            done = subprocess.run(
                hosts.inside(0, [*words, f"--seconds={seconds}"]),
                capture_output=True,
                text=True,
                check=False,
                encoding="utf-8",
            )
            if done.returncode == 0:
                return json.loads(done.stdout)
            if time.monotonic() > end:  # the server did not start listening
                raise OSError(f"cannot open a TCP stream: {done.stderr.strip()}")
            time.sleep(0.2)
    finally:
        serving.terminate()
        serving.wait()


def doctor_rate(hosts: Hosts, work: Work, folder: Path, args) -> float | None:
    """Returns the GB/s per direction of NCCL's slower collective at the largest size, or None if not measured."""
    if work.device != "cuda":
        return None
    program = str(args.build.resolve() / "bin" / "mpzero")
    launch = hosts.mpirun(args.folder / "agent", gpus=True)
    # Selects NCCL. Without GPUs, mpzero doctor would measure MPI.
    own = ["--bandwidth", "--device=cuda", "--network=socket", f"--checkpoint_dir={args.folder}"]
    words = [*launch, program, "doctor", *own]
    log = Path(f"{folder}_doctor.log")
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            process.wait(timeout=args.limit)
        except subprocess.TimeoutExpired:
            output.write(f"timed out after {args.limit:g} s\n")
        finally:
            if process.poll() is None:
                end(process)
    rates = collective_rates(log.read_text(errors="replace", encoding="utf-8"))
    return min(sizes[max(sizes, key=float)] for sizes in rates.values()) if rates else None


def name_of(link: Link) -> str:
    return link.name.replace(" ", "_").replace("/", "").replace(",", "")


def train(hosts: Hosts, work: Work, result: Result, args: argparse.Namespace) -> None:
    """Performs one run and adds its measurements to `result`."""
    levels = result.levels
    folder = args.folder / f"{name_of(result.link)}_{levels}_levels"
    folder.mkdir(parents=True, exist_ok=True)
    launch = hosts.mpirun(folder / "agent", gpus=work.device == "cuda")
    settings = network_experiment.Settings(
        folder=folder,
        config=work.config,
        flags=[*work.flags, f"--device={work.device}", "--validation_freq=0"],
        build=args.build.resolve(),
        launch=shlex.join(launch),
        steps=args.steps,
        warm_up=args.warm_up,
        limit=args.limit,
    )
    row = network_experiment.Row(work.network, 2, "1" if levels == 2 else "one level")
    before = [hosts.sent_bytes(host) for host in range(2)]
    network_experiment.run(row, settings)
    sent = sum(hosts.sent_bytes(host) - before[host] for host in range(2)) / 2
    parameters = parameters_of(work.model)
    formula = predicted_bytes(parameters, levels=levels, accumulation=ACCUMULATION, bytes_each=work.bytes)
    result.formula_mb = formula / 1e6
    trips = collectives(work.model, levels=levels, accumulation=ACCUMULATION) * result.round_trip_us / 2
    result.predicted_ms = result.formula_mb / result.stream_gbs + trips / 1e3
    # Besides the initial weights, which count as one step, startup sends little.
    result.interface_mb = sent / args.steps / 1e6
    result.error = row.error
    if row.step is not None and row.parts is not None:
        result.step_ms = row.step
        result.counted_mb = row.internode_megabytes or 0
        steps = read_metrics(folder / row.name / "metrics.jsonl")[args.warm_up :]
        result.waits_ms = [round(step["exposed_communication_seconds"] * 1e3, 1) for step in steps]
        result.communication_ms, result.least_communication_ms = (f(result.waits_ms) for f in (statistics.median, min))


def table(results: list[Result]) -> str:
    lines = [
        "| link, per direction | round trip | TCP streams, bidirectional | levels | "
        "sent per node: formula / counted / interface | communication: predicted / minimum / median | step |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in results:
        streams = f"{one.stream_gbs * 8:.2f} Gb/s"
        if one.nccl_gbs is not None:
            streams += f", NCCL {one.nccl_gbs * 8:.2f} ({one.nccl_gbs / one.stream_gbs:.0%})"
        begin = f"| {one.link.name} | {one.round_trip_us / 1e3:.2f} ms | {streams} | {one.levels} |"
        if one.error:
            lines.append(f"{begin} not run: {one.error.replace('|', '/')} | | |")
            continue
        sent = f"{one.formula_mb:.1f} / {one.counted_mb:.1f} / {one.interface_mb:.1f} MB"
        waits = f"{one.predicted_ms:.0f} / {one.least_communication_ms:.0f} / {one.communication_ms:.0f} ms"
        lines.append(f"{begin} {sent} | {waits} | {one.step_ms:.0f} ms |")
    return "\n".join(lines) + "\n"


def write(results: list[Result], folder: Path) -> None:
    (folder / "limited.json").write_text(json.dumps([asdict(each) for each in results], indent=1), encoding="utf-8")
    (folder / "limited.md").write_text(table(results), encoding="utf-8")


def measure(link: Link, work: Work, args: argparse.Namespace, results: list[Result]) -> None:
    """Performs all runs over a link, and writes the results after each run."""
    with two_hosts(link) as hosts:
        streams = streams_of(hosts, args.seconds, work.streams)
        each_way = max(streams["both_ways"].values()) / 2
        rate = doctor_rate(hosts, work, args.folder / name_of(link), args)
        for levels in args.levels:
            print(f"{link.name}, levels: {levels}", file=sys.stderr)
            result = Result(link, levels, streams["round_trip_us"], each_way, rate)
            train(hosts, work, result, args)
            results.append(result)
            write(results, args.folder)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--gigabits", nargs="+", type=float, default=[1, 10, 25, 100], help="Gb/s; 0: unlimited")
    parser.add_argument("--milliseconds", nargs="+", type=float, default=[0, 0.1, 1], help="additional one-way latency")
    parser.add_argument("--levels", nargs="+", type=int, choices=[1, 2], default=[2, 1])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm_up", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300, help="time limit of one run, in seconds")
    parser.add_argument("--seconds", type=float, default=2, help="duration of each measurement of TCP streams")
    args = parser.parse_args(arguments)
    if reason := reason_to_skip():
        print(f"limited_network.py: {reason}", file=sys.stderr)
        return 2
    os.environ |= MPI_AS_ROOT
    # Terminate a run in progress when this program exits.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args.folder = args.folder.resolve()
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / "model.json").write_text(json.dumps(MODEL, indent=1), encoding="utf-8")
    work = work_of(args.device, args.folder)
    tokens = [sys.executable, str(REPOSITORY / "bench" / "random_tokens.py"), str(args.folder / "tokens.h5")]
    count = 100_000 if args.device == "cpu" else 1 << 21
    subprocess.run([*tokens, f"--vocab_size={work.model['vocab_size']}", f"--tokens={count}"], check=True)
    results: list[Result] = []
    for link in [Link(gigabits or None, late) for late in args.milliseconds for gigabits in args.gigabits]:
        try:
            measure(link, work, args, results)
        except OSError as error:
            results.append(Result(link, args.levels[0], 0, 0, error=str(error)))
            write(results, args.folder)
    print(table(results), end="")
    return 1 if any(each.error for each in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
