#!/usr/bin/env python3
"""Trains between two hosts of this machine whose link is as slow as it is told, beside what the bytes predict.

    bench/limited_network.py FOLDER [--gigabits 1 10 25 100] [--milliseconds 0 0.1 1] [--build build] [--device cuda]
                             [--queue_milliseconds 0 2] [--connections default 8:1:1 2] [--lockstep 1 32]

The hosts are network namespaces (bench/two_namespaces.py) with a rank each. Needs root and Linux. Parameters and
gradients have as many bytes each, so that with two levels a node sends 2 x bytes x parameters x (nodes - 1) / nodes in
a step, and with one level the gradients at each micro-batch.

  --device cpu    a small model of fp32; MPI's TCP connects the hosts, with one connection
  --device cuda   Qwen3-0.6B, micro-batch 4 x 4, T = 512, AdamW on the GPU, bf16; a GPU for each host, NCCL's sockets.
                  `mpzero doctor --bandwidth` says what NCCL carries between them, beside plain streams

Prediction: the bytes that the formula counts, at the rate that plain TCP streams reached on the same link with both
hosts sending (bench/tcp_streams.py), plus a trip for each collective. Measured: the time that the ranks waited for
collectives in the median step and in the quickest one, the bytes that mpzero counted, and those of the interface,
headers included. Ranks also wait for each other's computing, so that other programs on the machine lengthen the median.

A link of --queue_milliseconds above 0 drops what does not fit its queue. The last column has TCP's own counts of both
hosts during the run: segments sent again, segments that arrived before earlier ones, connections that waited for a
retransmission timeout, packets that the link dropped. On GPUs --connections compares NCCL's connections: channels,
threads of a channel, sockets of a thread.

The runs of a link begin with its first --levels and all --connections; FOLDER has the results of each run when it has
ended: limited.json, limited.md, which is printed, and a folder for each run. A run that takes longer than --limit, and
a link whose streams cannot be measured, are rows that say so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
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
DEFAULT = "default"
# Of the GPU's work.
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
class Connections:
    """How many NCCL opens from one host to another; None: as mpzero chooses."""

    channels: int | None = None
    threads: int | None = None  # of a channel
    sockets: int | None = None  # of a thread

    @property
    def name(self) -> str:
        given = [each for each in (self.channels, self.threads, self.sockets) if each is not None]
        return ":".join(map(str, given)) or DEFAULT

    def environment(self) -> dict[str, str]:
        """mpzero asks for no channels where NCCL's variables do, and likewise for threads and sockets."""
        channels = {"NCCL_MIN_NCHANNELS": self.channels, "NCCL_MAX_NCHANNELS": self.channels}
        sockets = {"NCCL_SOCKET_NTHREADS": self.threads, "NCCL_NSOCKS_PERTHREAD": self.sockets}
        return {name: str(value) for name, value in {**channels, **sockets}.items() if value is not None}


def connections_of(word: str) -> Connections:
    """Of default, C or C:T:S."""
    if word == DEFAULT:
        return Connections()
    if not re.fullmatch(r"[1-9]\d*(:[1-9]\d*:[1-9]\d*)?", word):
        raise argparse.ArgumentTypeError(f"{word} is neither {DEFAULT} nor CHANNELS nor CHANNELS:THREADS:SOCKETS")
    return Connections(*map(int, word.split(":")))


@dataclass(frozen=True)
class Work:
    """What is trained, and how many plain streams and bytes it is compared with."""

    device: str
    model: dict
    config: dict
    flags: tuple[str, ...]
    bytes: int  # of a parameter, and of a gradient, under way
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
    """What a node of one rank sends in a step of ZeRO-2."""
    sums = 1 if levels == 2 else accumulation
    return (sums + 1) * bytes_each * parameters * (nodes - 1) / nodes


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
    nccl_gbs: float | None = None  # of the slower collective of 512 MiB, by the doctor
    formula_mb: float = 0
    counted_mb: float = 0
    interface_mb: float = 0  # of both hosts, the mean
    predicted_ms: float = 0
    communication_ms: float = 0
    least_communication_ms: float = 0
    step_ms: float = 0
    connections: str = DEFAULT
    lockstep: dict[str, dict] = field(default_factory=dict)  # of bench/tcp_streams.py, by connections each way
    waits_ms: list[float] = field(default_factory=list)  # of each step
    counters: dict[str, int] = field(default_factory=dict)  # of both hosts during the run: two_namespaces.COUNTERS
    error: str = ""


def streams_of(hosts: Hosts, seconds: float, streams: tuple[int, ...] = (1,), lockstep: tuple[int, ...] = ()) -> dict:
    """Plain streams between the hosts, while nothing else runs."""
    program = str(Path(tcp_streams.__file__).resolve())
    port = "5201"
    serving = subprocess.Popen(hosts.inside(1, [sys.executable, program, "serve", "--port", port]))
    try:
        words = [sys.executable, program, "measure", ADDRESSES[1], "--port", port, "--streams", *map(str, streams)]
        words += ["--lockstep", *map(str, lockstep)] if lockstep else []
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
            if time.monotonic() > end:  # until the server listens
                raise OSError(f"no stream: {done.stderr.strip()}")
            time.sleep(0.2)
    finally:
        serving.terminate()
        serving.wait()


def doctor_rate(hosts: Hosts, work: Work, connections: Connections, folder: Path, args) -> float | None:
    """GB/s each way of NCCL's slower collective at the largest size; None where the doctor measures nothing."""
    if work.device != "cuda":
        return None
    program = str(args.build.resolve() / "bin" / "mpzero")
    launch = hosts.mpirun(args.folder / "agent", gpus=True, environment=connections.environment())
    # Without GPUs, by itself, the doctor would measure MPI.
    own = ["--bandwidth", "--device=cuda", "--network=socket", f"--checkpoint_dir={args.folder}"]
    words = [*launch, program, "doctor", *own]
    log = Path(f"{folder}_doctor.log")
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            process.wait(timeout=args.limit)
        except subprocess.TimeoutExpired:
            output.write(f"not done after {args.limit:g} s\n")
        finally:
            if process.poll() is None:
                end(process)
    rates = collective_rates(log.read_text(errors="replace", encoding="utf-8"))
    return min(sizes[max(sizes, key=float)] for sizes in rates.values()) if rates else None


def name_of(link: Link) -> str:
    return link.name.replace(" ", "_").replace("/", "").replace(",", "")


def folder_of(args: argparse.Namespace, link: Link, connections: Connections) -> Path:
    chosen = "" if connections == Connections() else f"_{connections.name.replace(':', '_')}"
    return args.folder / f"{name_of(link)}{chosen}"


def train(hosts: Hosts, work: Work, connections: Connections, result: Result, args: argparse.Namespace) -> None:
    """One run; adds what was measured to `result`."""
    levels = result.levels
    folder = Path(f"{folder_of(args, result.link, connections)}_{levels}_levels")
    folder.mkdir(parents=True, exist_ok=True)
    launch = hosts.mpirun(folder / "agent", gpus=work.device == "cuda", environment=connections.environment())
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
    before, counted = [hosts.sent_bytes(host) for host in range(2)], hosts.counters()
    network_experiment.run(row, settings)
    result.counters = {name: value - counted[name] for name, value in hosts.counters().items()}
    sent = sum(hosts.sent_bytes(host) - before[host] for host in range(2)) / 2
    parameters = parameters_of(work.model)
    formula = predicted_bytes(parameters, levels=levels, accumulation=ACCUMULATION, bytes_each=work.bytes)
    result.formula_mb = formula / 1e6
    trips = collectives(work.model, levels=levels, accumulation=ACCUMULATION) * result.round_trip_us / 2
    result.predicted_ms = result.formula_mb / result.stream_gbs + trips / 1e3
    # The start of the run sends the initial weights and little else; it counts as a step's.
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
        "| link, each way | there and back | plain streams, both sending | connections | levels | "
        "a node sends: formula / counted / interface | communication: predicted / least / median | step | "
        "segments sent again / out of order / timeouts / dropped |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in results:
        streams = f"{one.stream_gbs * 8:.2f} Gb/s"
        if one.nccl_gbs is not None:
            streams += f", NCCL {one.nccl_gbs * 8:.2f} ({one.nccl_gbs / one.stream_gbs:.0%})"
        if one.lockstep:
            rates = (f"{n}: {found['gigabytes_per_second'] * 8:.2f}" for n, found in one.lockstep.items())
            streams += f", in lockstep {', '.join(rates)}"
        begin = f"| {one.link.name} | {one.round_trip_us / 1e3:.2f} ms | {streams} | {one.connections} | {one.levels} |"
        names = ("RetransSegs", "TCPOFOQueue", "TCPTimeouts", "dropped")
        counts = " / ".join(str(one.counters.get(name, "")) for name in names)
        if one.error:
            lines.append(f"{begin} not run: {one.error.replace('|', '/')} | | | {counts if one.counters else ''} |")
            continue
        sent = f"{one.formula_mb:.1f} / {one.counted_mb:.1f} / {one.interface_mb:.1f} MB"
        waits = f"{one.predicted_ms:.0f} / {one.least_communication_ms:.0f} / {one.communication_ms:.0f} ms"
        lines.append(f"{begin} {sent} | {waits} | {one.step_ms:.0f} ms | {counts} |")
    return "\n".join(lines) + "\n"


def links_of(args: argparse.Namespace) -> list[Link]:
    links = []
    for milliseconds in args.milliseconds:
        for gigabits in args.gigabits:
            for queue in args.queue_milliseconds:
                if queue and (milliseconds or not gigabits):
                    continue  # there is no such link
                links.append(Link(gigabits or None, milliseconds, queue or None, args.congestion))
    return links


def write(results: list[Result], folder: Path) -> None:
    (folder / "limited.json").write_text(json.dumps([asdict(each) for each in results], indent=1), encoding="utf-8")
    (folder / "limited.md").write_text(table(results), encoding="utf-8")


def measure(link: Link, work: Work, args: argparse.Namespace, results: list[Result]) -> None:
    """All runs over a link, each written when it has ended."""
    with two_hosts(link) as hosts:
        streams = streams_of(hosts, args.seconds, work.streams, tuple(args.lockstep))
        each_way = max(streams["both_ways"].values()) / 2
        rates: dict[str, float | None] = {}
        for levels in args.levels:
            for connections in args.connections:
                name = connections.name
                print(f"{link.name}, levels: {levels}, connections: {name}", file=sys.stderr)
                if name not in rates:
                    rates[name] = doctor_rate(hosts, work, connections, folder_of(args, link, connections), args)
                result = Result(link, levels, streams["round_trip_us"], each_way, rates[name], connections=name)
                result.lockstep = streams.get("lockstep", {})
                train(hosts, work, connections, result, args)
                results.append(result)
                write(results, args.folder)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--gigabits", nargs="+", type=float, default=[1, 10, 25, 100], help="a second; 0: no limit")
    parser.add_argument("--milliseconds", nargs="+", type=float, default=[0, 0.1, 1], help="one way, in addition")
    parser.add_argument("--queue_milliseconds", nargs="+", type=float, default=[0], help="0: no packet is dropped")
    parser.add_argument("--congestion", default="cubic", help="TCP's congestion control")
    parser.add_argument(
        "--connections",
        nargs="+",
        type=connections_of,
        default=[Connections()],
        metavar=f"{DEFAULT}|C[:T:S]",
        help="of NCCL: channels, threads of a channel, sockets of a thread",
    )
    parser.add_argument(
        "--lockstep",
        nargs="+",
        type=int,
        default=[],
        metavar="N",
        help="plain connections that carry messages together",
    )
    parser.add_argument("--levels", nargs="+", type=int, choices=[1, 2], default=[2, 1])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm_up", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300, help="seconds for one run")
    parser.add_argument("--seconds", type=float, default=2, help="for each measurement of plain streams")
    args = parser.parse_args(arguments)
    if args.device == "cpu" and args.connections != [Connections()]:
        parser.error("--connections are NCCL's: give --device cuda")
    links = links_of(args)
    if not links:
        parser.error("--queue_milliseconds needs --gigabits, and 0 of --milliseconds")
    if reason := reason_to_skip():
        print(f"limited_network.py: {reason}", file=sys.stderr)
        return 2
    os.environ |= MPI_AS_ROOT
    # So that a run ends with this program.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args.folder = args.folder.resolve()
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / "model.json").write_text(json.dumps(MODEL, indent=1), encoding="utf-8")
    work = work_of(args.device, args.folder)
    tokens = [sys.executable, str(REPOSITORY / "bench" / "random_tokens.py"), str(args.folder / "tokens.h5")]
    count = 100_000 if args.device == "cpu" else 1 << 21
    subprocess.run([*tokens, f"--vocab_size={work.model['vocab_size']}", f"--tokens={count}"], check=True)
    results: list[Result] = []
    for link in links:
        try:
            measure(link, work, args, results)
        except OSError as error:
            results.append(Result(link, args.levels[0], 0, 0, error=str(error)))
            write(results, args.folder)
    print(table(results), end="")
    return 1 if any(each.error for each in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
