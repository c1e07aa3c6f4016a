#!/usr/bin/env python3
"""Emulates two hosts with one GPU each on this machine: TCP streams, NCCL over sockets, mpzero and DeepSpeed.

    bench/two_hosts.py FOLDER [--build build] [--train_data T.h5] [--deepspeed PACKAGES] [--budget 200]

Qwen3-0.6B, micro-batch 4 x 4, T = 512, AdamW on the GPU. NCCL_HOSTID makes NCCL treat the GPUs as two hosts, so their
traffic uses NCCL's socket transport. Writes to FOLDER: two_hosts.json, rewritten after each part, and a folder for each
run:

  streams     plain TCP streams on the interface that NCCL uses (bench/tcp_streams.py)
  doctor      the rates of `mpzero doctor --bandwidth` between the hosts, with the same channels as a training step,
              also relative to the TCP streams
  mpzero_…    two-level ZeRO-2 and ZeRO-3 over sockets, uncompressed and 8-bit; configs/ds_config.json without changes
              (CPU AdamW); one-level ZeRO over NVLink
  deepspeed   stock DeepSpeed, ZeRO-2 and ZeRO-3, over the same sockets

Parts that do not fit into the time budget are listed in `left_out`. PACKAGES (15 MB in total) contains an installed
DeepSpeed and wheels of its dependencies, which are installed without network access. Without PACKAGES, DeepSpeed must
be installed. torch and transformers must always be installed. VERSION is the GPU machine's Python version, e.g. 3.12:

  cp -r .venv/lib/python3*/site-packages/deepspeed PACKAGES/
  pip download --only-binary=:all: --python-version VERSION -d PACKAGES hjson msgpack py-cpuinfo einops ninja psutil \
    pydantic
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import network_experiment
import tcp_streams
from deepspeed_peer import on_gpu
from measures import REPOSITORY, read_model, read_peers
from visit import run_logged

BENCH = Path(__file__).resolve().parent
MODEL = "qwen3_0_6b"
SEQUENCE = 512
STREAMS = [1, 4, 16, 32]
# Minimum remaining time to start a part. No part runs longer than the budget.
LEAST_SECONDS = 12
# Target rate of NCCL over sockets, relative to TCP streams.
LEAST_SHARE = 0.9


class Visit:
    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.folder = args.folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.end = time.monotonic() + args.budget
        self.results: dict = {"left_out": [], "seconds": {}}

    def left(self) -> float:
        return self.end - time.monotonic()

    def part(self, name: str, work) -> None:
        """Runs a part and records the result or the error."""
        if self.args.only and name not in self.args.only:
            return
        if self.left() < LEAST_SECONDS:
            self.results["left_out"].append(name)
        else:
            start = time.monotonic()
            try:
                self.results[name] = work()
            except Exception as error:
                self.results[name] = {"error": f"{type(error).__name__}: {error}"}
            self.results["seconds"][name] = round(time.monotonic() - start, 1)
            print(f"{name}: {json.dumps(self.results[name])}", flush=True)
        self.save()

    def save(self) -> None:
        (self.folder / "two_hosts.json").write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")

    def run(self, name: str, command: list[str], limit: float) -> tuple[int, Path]:
        """Runs a command for at most `limit` seconds, within the budget. Returns the exit status and the log."""
        log = self.folder / f"{name}.log"
        return run_logged(command, log, max(1.0, min(limit, self.left()))), log

    def tokens(self, name: str, vocabulary: int) -> Path:
        """Returns --train_data, or a file of random token IDs, which is created if it does not exist."""
        if self.args.train_data is not None:
            return self.args.train_data.resolve()
        path = self.folder / name
        if not path.exists():
            made = [sys.executable, str(BENCH / "random_tokens.py"), str(path), f"--vocab_size={vocabulary}"]
            subprocess.run([*made, f"--tokens={1 << 21}"], check=True, cwd=REPOSITORY)
        return path


def interface_to_others() -> str:
    """Returns the network interface: NCCL_SOCKET_IFNAME if set, otherwise that of the default route."""
    names = sorted(path.name for path in Path("/sys/class/net").iterdir())
    named = os.environ.get("NCCL_SOCKET_IFNAME", "")
    if re.fullmatch(r"=?[a-z][\w.-]*", named):
        # NCCL treats the value as a prefix unless it begins with "=".
        found = [name for name in names if (name == named[1:] if named[0] == "=" else name.startswith(named))]
        if not found:
            raise ValueError(f"NCCL_SOCKET_IFNAME={named} is not one of {', '.join(names)}")
        return found[0]
    for line in Path("/proc/net/route").read_text(encoding="utf-8").splitlines()[1:]:
        interface, destination = line.split()[:2]
        if destination == "00000000":
            return interface
    others = [name for name in names if name != "lo"]
    return others[0] if others else "lo"


def streams(visit: Visit) -> dict:
    interface = interface_to_others()
    found = tcp_streams.local(interface, STREAMS, visit.args.stream_seconds)
    return {"interface": interface, **found}


def doctor(visit: Visit) -> dict:
    """Measures all-gather and reduce-scatter between the hosts, with the NCCL settings of a training step."""
    file = visit.folder / "doctor.json"
    file.unlink(missing_ok=True)
    words = [str(visit.args.build.resolve() / "bin" / "mpzero"), "doctor", "--bandwidth", f"--json={file}"]
    status, log = visit.run("doctor", network_experiment.command_of("", [*words, "--network=socket"]), 60)
    hosts = json.loads(file.read_text(encoding="utf-8"))["hosts"] if file.exists() else []
    messages = {each["check"]: each["message"] for host in hosts for each in host["findings"]}
    rates = collective_rates(messages.get("bandwidth_between", ""))
    # Bytes that each host sends while receiving the same number of bytes.
    largest = {name: sizes["512"] for name, sizes in rates.items() if "512" in sizes}
    found: dict = {"status": status, "rates_512_mib": largest}
    plain = visit.results.get("streams", {}).get("both_ways")
    if plain and largest:
        most = max(plain.values()) / 2
        shares = {name: round(rate / most, 3) for name, rate in largest.items()}
        found |= {"plain_streams_each_way": most, "share_of_plain_streams": shares}
        found["reaches_90_percent"] = min(shares.values()) >= LEAST_SHARE
    if not largest:
        found["error"] = "mpzero doctor did not report bandwidth_between"
        found["output"] = (
            json.dumps(messages) if messages else log.read_text(errors="replace", encoding="utf-8")[-2000:]
        )
    return found


def collective_rates(text: str) -> dict[str, dict[str, float]]:
    """Parses "all-gather 1 MiB 0.51 GB/s, 64 MiB 6.20 GB/s; reduce-scatter …" into rates by kind and size in MiB."""
    found: dict[str, dict[str, float]] = {}
    for kind, list_of_rates in re.findall(r"(all-gather|reduce-scatter)((?: [\d.]+ MiB [\d.]+ GB/s,?)+)", text):
        rates = re.findall(r"([\d.]+) MiB ([\d.]+) GB/s", list_of_rates)
        found[kind] = {size: float(rate) for size, rate in rates}
    return found


COMPRESSED = {"zero_quantized_gradients": True, "zero_quantized_weights": True}
ONE_HOST = "mpirun --bind-to none -n 2"


def mpzero(visit: Visit, name: str, config: dict, *, one_host: bool = False) -> dict:
    """Runs a row of bench/network_experiment.py: two-level ZeRO between two hosts, or one-level ZeRO over NVLink."""
    folder = visit.folder / name
    folder.mkdir(exist_ok=True)
    settings = network_experiment.Settings(
        folder=folder,
        config=config,
        flags=[
            f"--model_type={MODEL}",
            f"--train_data={visit.args.train_data}",
            f"--seq_length={SEQUENCE}",
            "--validation_freq=0",
            "--device=cuda",
        ],
        build=visit.args.build.resolve(),
        launch=ONE_HOST if one_host else "",
        steps=visit.args.steps,
        warm_up=visit.args.warm_up,
        limit=min(60.0, visit.left()),
    )
    stage = config["zero_optimization"]["stage"]
    row = network_experiment.Row("auto" if one_host else "socket", stage, "one level" if one_host else "1")
    network_experiment.run(row, settings)
    return asdict(row)


def with_keys(config: dict, **zero: object) -> dict:
    return {**config, "zero_optimization": {**config["zero_optimization"], **zero}}


def deepspeed(visit: Visit, stage: int) -> dict:
    words = [sys.executable, str(BENCH / "deepspeed_peer.py"), f"two_hosts_zero{stage}", "--gpus=2", "--two_hosts"]
    words += ["--warm_up=2", f"--steps={visit.args.deepspeed_steps}"]
    status, log = visit.run(f"deepspeed_zero{stage}", words, 90)
    found = read_peers([log])
    if not found:
        return {"status": status, "output": log.read_text(errors="replace", encoding="utf-8")[-2000:]}
    ours = visit.results.get(f"mpzero_zero{stage}_two_levels", {}).get("step")
    return {**found[-1], **({"times_mpzero": round(found[-1]["step_ms"] / ours, 2)} if ours else {})}


def install(visit: Visit) -> dict:
    """Installs DeepSpeed's dependencies into a folder. DeepSpeed itself is used in place."""
    packages, site = visit.args.deepspeed.resolve(), visit.folder / "site"
    os.environ["DS_BUILD_OPS"] = "0"
    os.environ["PYTHONPATH"] = ":".join([str(site), str(packages), os.environ.get("PYTHONPATH", "")]).rstrip(":")
    # DeepSpeed looks for ninja in PATH.
    os.environ["PATH"] = f"{site / 'bin'}:{os.environ['PATH']}"
    wheels = sorted(map(str, packages.glob("*.whl")))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile", f"--target={site}"]
    status = visit.run("install", [*pip, *wheels], 60)[0] if wheels else 0
    return {"status": status, "wheels": len(wheels), "deepspeed": (packages / "deepspeed" / "__init__.py").exists()}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--train_data", type=Path, help="token file; default: random tokens")
    parser.add_argument("--deepspeed", type=Path, metavar="PACKAGES")
    parser.add_argument("--budget", type=float, default=200, help="time budget, in seconds")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--warm_up", type=int, default=4)
    parser.add_argument("--deepspeed_steps", type=int, default=4)
    parser.add_argument("--stream_seconds", type=float, default=0.8)
    parser.add_argument("--only", nargs="*", default=[], help="names of the parts to run")
    args = parser.parse_args(arguments)
    visit = Visit(args)
    args.train_data = visit.tokens("tokens.h5", read_model(MODEL)["vocab_size"])
    visit.part("streams", lambda: streams(visit))
    visit.part("doctor", lambda: doctor(visit))
    rows = {f"mpzero_zero{stage}_two_levels": on_gpu(stage, 4, gas=4) for stage in (2, 3)}
    rows |= {f"mpzero_zero{stage}_8_bits": with_keys(on_gpu(stage, 4, gas=4), **COMPRESSED) for stage in (2, 3)}
    rows["mpzero_default_file"] = json.loads((REPOSITORY / "configs" / "ds_config.json").read_text(encoding="utf-8"))
    for name, config in rows.items():
        visit.part(name, lambda name=name, config=config: mpzero(visit, name, config))
    for stage in (2, 3):
        name, config = f"mpzero_zero{stage}_nvlink", on_gpu(stage, 4, gas=4)
        visit.part(name, lambda name=name, config=config: mpzero(visit, name, config, one_host=True))
    if args.deepspeed:
        visit.part("deepspeed_installed", lambda: install(visit))
    for stage in (2, 3):
        visit.part(f"deepspeed_zero{stage}", lambda stage=stage: deepspeed(visit, stage))
    print(f"left out: {visit.results['left_out'] or 'nothing'}; {args.budget - visit.left():.0f} s in total")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
