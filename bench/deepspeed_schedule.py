#!/usr/bin/env python3
"""DeepSpeed's ZeRO-3 schedule of the users' file on 4 x g6e.12xlarge, simulated over EFA and TCP, beside the workshop.

    bench/deepspeed_schedule.py [--program build/bin/mpzero]

A rank's computing, gathers and reductions are streams; one network carries one collective at a time. Parameters are
gathered before their use in forward and backward, as far ahead as the file's sizes say, and gradients are reduced
while backward goes on (overlap_comm). Then AdamW runs on the hosts. What is assumed is in ASSUMPTIONS; nothing of it
is from the workshop's times. Prints seconds of a step and their ratio, and how far the ratio depends on the rates.
Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from measures import REPOSITORY, read_model

FILE = REPOSITORY / "configs" / "ds_config_llama3_8b_zero3_offload.json"
MODEL, LENGTH, NODES, PER_NODE = "llama_3_8b", 512, 4, 4
BF16 = 2
WORKSHOP = {"EFA": 2441.04 / 50, "TCP": 5408.85 / 50}
# GB/s of a host in NCCL's collectives. EFA: what `mpzero plan` takes of cards that GPUs do not reach. TCP: NCCL's own
# connections between two p3dn.24xlarge of 100 Gb/s, 18.4 Gb/s (NVIDIA/nccl issue 209); other versions 10.7 and 12.8.
TCP_RATE = 18.4 / 8
TCP_RATES, EFA_RATES = (10.7 / 8, 12.8 / 8, 18.4 / 8), (3.0, 50 / 8, 60 / 8)
# Seconds of a ring's steps: as `mpzero plan` has them.
HOPS = {"EFA": 14e-6, "TCP": 40e-6}
PCIE_HOP = 5.7e-6
# What DeepSpeed 0.19.8 takes besides computing, for all 8 billion parameters on one host: its 5.10 s on four H200s
# less 0.62 s (bench/RESULTS.md, "The users' own files"). Hosts share the parameters; memory makes 193 GB/s there.
OWN_SECONDS, OWN_MEMORY_RATE = 5.10 - 0.62, 193e9
MEMORY_RATE = 0.8 * 102.4e9
ASSUMPTIONS = (
    "a ring over 16 ranks leaves each host once: 15/16 of a collective's bytes at the host's rate",
    "gathers of the next parameters begin while fewer than stage3_prefetch_bucket_size elements are under way "
    '("auto": 0.9 x hidden_size^2); at most stage3_max_live_parameters are gathered at a time',
    "a parameter stays gathered if its next use is within stage3_max_reuse_distance",
    "each weight's gradient is reduced as soon as it is there, in bf16; the next one waits for it",
    "computing: mpzero plan's kernels for L40S, which are not measured on one",
    "AdamW, norm and copies on the host: DeepSpeed's own on a host with H200s, by the parameters and the memory's rate",
    "norms stay on each rank (stage3_param_persistence_threshold)",
    "TCP: NCCL's own connections, at what they reached between two p3dn.24xlarge; EFA through host memory",
)


@dataclass(frozen=True)
class Weight:
    numel: int
    forward: float  # seconds of computing with it
    backward: float


@dataclass(frozen=True)
class Network:
    rate: float  # bytes a second of a host
    latency: float  # seconds of a collective

    def seconds(self, numel: int, ranks: int) -> float:
        return self.latency + BF16 * numel * (ranks - 1) / ranks / self.rate


@dataclass(frozen=True)
class Limits:
    prefetch: float
    max_live: float
    max_reuse: float


class Schedule:
    """Clocks of one rank."""

    def __init__(self, weights: list[Weight], network: Network, limits: Limits, ranks: int):
        self.weights = weights
        self.network = network
        self.limits = limits
        self.ranks = ranks
        self.compute = 0.0
        self.link = 0.0
        self.gathered: dict[int, float] = {}  # weight -> when it is there
        self.sent = 0.0  # bytes that leave the host

    def collective(self, ready: float, numel: int) -> float:
        """When it ends that can begin at `ready`."""
        self.link = max(self.link, ready) + self.network.seconds(numel, self.ranks)
        self.sent += BF16 * numel * (self.ranks - 1) / self.ranks
        return self.link

    def live(self) -> int:
        return sum(self.weights[index].numel for index in self.gathered)

    def gather(self, index: int) -> None:
        if index not in self.gathered:
            self.gathered[index] = self.collective(self.compute, self.weights[index].numel)

    def prefetch(self, following: list[int]) -> None:
        under_way = 0
        for index in following:
            if under_way >= self.limits.prefetch or self.live() + self.weights[index].numel > self.limits.max_live:
                return
            if index not in self.gathered:
                self.gather(index)
                under_way += self.weights[index].numel

    def use(self, uses: list[int], place: int, seconds: float) -> None:
        """Computes with the weight that is used at `place`, and gives it up if it is not needed soon."""
        index = uses[place]
        self.gather(index)
        there = self.gathered[index]
        self.prefetch(uses[place + 1 :])
        self.compute = max(self.compute, there) + seconds
        distance = 0
        for following in uses[place + 1 :]:
            if following == index or distance > self.limits.max_reuse:
                break
            distance += self.weights[following].numel
        else:
            distance = float("inf")
        if distance > self.limits.max_reuse:
            del self.gathered[index]

    def micro_batch(self) -> None:
        order = list(range(len(self.weights)))
        uses = order + order[::-1]
        last_reduction = 0.0
        for place, index in enumerate(uses):
            forward = place < len(order)
            self.use(uses, place, self.weights[index].forward if forward else self.weights[index].backward)
            if not forward:
                # One bucket is filled while the other is reduced.
                self.compute = max(self.compute, last_reduction)
                last_reduction = self.collective(self.compute, self.weights[index].numel)
        self.compute = max(self.compute, last_reduction)
        self.gathered.clear()


def weights_of(config: dict, computing: float) -> list[Weight]:
    """`computing`: seconds of a micro-batch's forward and backward, shared by the weights' sizes."""
    hidden, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    kv = hidden * config["num_key_value_heads"] // config["num_attention_heads"]
    layer = [hidden * hidden, hidden * kv, hidden * kv, hidden * hidden, *[hidden * inner] * 3]
    head = config["vocab_size"] * hidden
    total = layers * sum(layer) + head
    found = [Weight(head, 0, 0)]  # the embedding computes nothing to speak of
    for numel in [*layer * layers, head]:
        share = computing * numel / total
        found.append(Weight(numel, share / 3, share * 2 / 3))
    return found


def limits_of(zero: dict, hidden: int) -> Limits:
    def size(key: str, automatic: float) -> float:
        value = zero.get(key, "auto")
        return automatic if value == "auto" else float(value)

    return Limits(
        prefetch=size("stage3_prefetch_bucket_size", 0.9 * hidden * hidden),
        max_live=size("stage3_max_live_parameters", 1e9),
        max_reuse=size("stage3_max_reuse_distance", 1e9),
    )


def step(
    weights: list[Weight], network: Network, limits: Limits, micro_batches: int, own: float
) -> tuple[float, float]:
    """Seconds of a step, and the bytes that a host sends in it. `own`: seconds on the host after the last reduction."""
    schedule = Schedule(weights, network, limits, NODES * PER_NODE)
    for _ in range(micro_batches):
        schedule.micro_batch()
    return schedule.compute + own, schedule.sent


def plan(program: Path) -> dict:
    command = [str(program), "plan", "--json", "--instance=g6e.12xlarge", f"--nodes={NODES}", f"--seq_length={LENGTH}"]
    command += [f"--model_config={REPOSITORY / 'configs/models' / f'{MODEL}.json'}", f"--deepspeed_config={FILE}"]
    result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    if not result.stdout.startswith("{"):
        raise SystemExit(result.stderr)
    return json.loads(result.stdout)


def table(program: Path) -> list[str]:
    file, config = json.loads(FILE.read_text(encoding="utf-8")), read_model(MODEL)
    planned = plan(program)
    micro_batches = file["gradient_accumulation_steps"]
    busy = planned["step"]["busy_seconds"]
    computing = (busy["matmuls"] + busy["attention"] + busy["elementwise"]) / micro_batches
    weights = weights_of(config, computing)
    limits = limits_of(file["zero_optimization"], config["hidden_size"])
    own = OWN_SECONDS / NODES * OWN_MEMORY_RATE / MEMORY_RATE

    def seconds(kind: str, rate: float) -> tuple[float, float]:
        latency = NODES * HOPS[kind] + (NODES * PER_NODE - 1 - NODES) * PCIE_HOP
        return step(weights, Network(rate * 1e9, latency), limits, micro_batches, own)

    rates = {"EFA": planned["machine"]["network_rate"], "TCP": TCP_RATE}
    found = {kind: seconds(kind, rate) for kind, rate in rates.items()}
    lines = [
        "| network | a host's rate | a host sends in a step | step, simulated | the workshop's |",
        "|---|---|---|---|---|",
    ]
    for kind, (duration, sent) in found.items():
        lines.append(
            f"| {kind} | {rates[kind]:.2f} GB/s | {sent / 1e9:.1f} GB | {duration:.1f} s | {WORKSHOP[kind]:.1f} s |"
        )
    ratio, theirs = found["TCP"][0] / found["EFA"][0], WORKSHOP["TCP"] / WORKSHOP["EFA"]
    lines += [
        "",
        f"TCP takes {ratio:.2f} times as long as EFA; in the workshop {theirs:.2f} times: {ratio / theirs - 1:+.0%}. "
        f"In each step {micro_batches * computing:.1f} s of computing, {own:.1f} s on the host.",
        "",
        "Ratio with other published rates:",
        "",
        "| | " + " | ".join(f"EFA {rate:.2f} GB/s" for rate in EFA_RATES) + " |",
        "|---" * (len(EFA_RATES) + 1) + "|",
    ]
    for tcp in TCP_RATES:
        cells = [f"{seconds('TCP', tcp)[0] / seconds('EFA', efa)[0]:.2f}" for efa in EFA_RATES]
        lines.append(f"| TCP {tcp:.2f} GB/s | " + " | ".join(cells) + " |")
    return [*lines, "", "Assumed:", "", *(f"- {text}" for text in ASSUMPTIONS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=REPOSITORY / "build" / "bin" / "mpzero")
    print("\n".join(table(parser.parse_args().program)))


if __name__ == "__main__":
    main()
