#!/usr/bin/env python3
"""Runs the GPU tests and the training runs of bench/RESULTS.md on this machine's GPUs, and writes results.json.

    bench/gpu_run.py OUTPUT_DIR --build build --train_data T.h5 --validation_data V.h5 [--steps 50] [--only WORD ...]

Every program runs under a time limit; one that fails is recorded and the rest goes on. Needs no package beyond Python.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PEAK_FLOPS = 989e12  # dense bf16 of H100 and H200
WARM_UP_STEPS = 10

# Qwen3-0.6B. Its own vocabulary holds every id of the Llama-3 vocabulary that the text is tokenized with.
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 1024, 28, 16, 8, 128, 3072
QWEN3_VOCAB, LLAMA3_VOCAB = 151936, 128256


def flops_per_token(seq_length: int, vocab_size: int) -> float:
    """As flops_per_token in model/config.hpp counts: matrix weights, and causal attention once."""
    layer = HIDDEN * HEAD_DIM * (2 * HEADS + 2 * KV_HEADS) + 3 * HIDDEN * INTERMEDIATE
    return 6 * (LAYERS * layer + vocab_size * HIDDEN) + 6 * LAYERS * HEADS * HEAD_DIM * seq_length


class Visit:
    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments
        self.output = arguments.output
        self.output.mkdir(parents=True, exist_ok=True)
        self.scratch = Path(arguments.scratch)
        self.results: dict[str, dict] = {}
        gpus = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout.splitlines()
        self.gpus = len(gpus)
        self.results["machine"] = {"gpus": [line.split("(")[0].strip() for line in gpus], "cores": os.cpu_count()}

    def wanted(self, name: str) -> bool:
        return not self.arguments.only or any(word in name for word in self.arguments.only)

    def run(self, name: str, command: list[str], limit: float) -> dict:
        """Runs a command with its output in OUTPUT_DIR/NAME.log; returns what is known of it."""
        start = time.monotonic()
        log = self.output / f"{name}.log"
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        with log.open("w") as stream:
            process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, env=environment)
            try:
                status = process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                # mpirun takes its ranks down when it is asked to end, not when it is killed.
                process.terminate()
                process.wait(timeout=60)
                status = 124
        result = {"command": " ".join(command), "status": status, "seconds": round(time.monotonic() - start, 2)}
        self.results[name] = result
        tail = log.read_text(errors="replace").splitlines()[-3:]
        print(f"{name}: status {status}, {result['seconds']} s | " + " | ".join(tail), flush=True)
        self.write()
        return result

    def write(self) -> None:
        (self.output / "results.json").write_text(json.dumps(self.results, indent=1) + "\n")

    def test(self, name: str, ranks: int = 1, limit: float = 120) -> None:
        label = name if ranks == 1 else f"{name}_{ranks}ranks"
        if self.wanted(label) and ranks <= self.gpus:
            program = str(self.arguments.build / "tests" / name)
            self.run(label, ["mpirun", "--bind-to", "none", "-n", str(ranks), program], limit)

    def train(
        self, name: str, *, ranks: int, stage: int, offload: bool, steps: int, resume: bool = False, **options
    ) -> None:
        """One training run; `options`: micro_batch, seq_length, gas, offload_param, recompute."""
        if not self.wanted(name) or ranks > self.gpus:
            return
        folder = self.scratch / name
        if not resume:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        zero: dict = {"stage": stage}
        if offload:
            zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if options.get("offload_param"):
            zero["offload_param"] = {"device": "cpu", "pin_memory": True}
        seq_length = options.get("seq_length", 1024)
        config = {
            "train_micro_batch_size_per_gpu": options.get("micro_batch", 4),
            "gradient_accumulation_steps": options.get("gas", 1),
            "gradient_clipping": 1.0,
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}},
            "scheduler": {
                "type": "WarmupCosineLR",
                "params": {"warmup_num_steps": 10, "cos_min_ratio": 0.1, "total_num_steps": 200},
            },
            "zero_optimization": zero,
        }
        (folder / "ds_config.json").write_text(json.dumps(config))
        if "users_config" in options:
            config = json.loads((REPOSITORY / options["users_config"]).read_text())
            (folder / "ds_config.json").write_text(json.dumps(config))
        flags = {
            "deepspeed_config": folder / "ds_config.json",
            "model_type": options.get("model_type", "qwen3_0_6b"),
            "vocab_size": options.get("vocab_size", LLAMA3_VOCAB),
            "train_data": self.arguments.train_data,
            "validation_data": self.arguments.validation_data,
            "seq_length": seq_length,
            "max_steps": steps,
            "validation_freq": options.get("validation_freq", 0),
            "validation_batches": 4,
            "checkpoint_freq": options.get("checkpoint_freq", 0),
            "checkpoint_dir": folder / "checkpoints",
            "metrics_file": folder / "metrics.jsonl",
            "device": "cuda",
            "recompute": options.get("recompute", "none"),
            "deterministic": str(options.get("deterministic", False)).lower(),
        }
        command = [
            "mpirun",
            "--bind-to",
            "none",
            "-n",
            str(ranks),
            str(self.arguments.build / "bin" / "mpzero"),
            "train",
        ]
        flags |= options.get("flags", {})
        command += [f"--{flag}={value}" for flag, value in flags.items()]
        label = f"{name}_resumed" if resume else name
        result = self.run(label, command, options.get("limit", 150))
        if (folder / "metrics.jsonl").exists():
            shutil.copy(folder / "metrics.jsonl", self.output / f"{label}.jsonl")
            lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
            timed = [line["step_seconds"] for line in lines[options.get("warm_up", WARM_UP_STEPS) :]]
            if timed:
                seconds = statistics.median(timed)
                tokens = lines[0]["tokens"] / ranks
                result["step_ms"] = round(seconds * 1e3, 2)
                result["tokens_per_second_per_gpu"] = round(tokens / seconds)
                if flags["model_type"] == "qwen3_0_6b":
                    result["mfu_percent"] = round(
                        tokens / seconds * flops_per_token(seq_length, flags["vocab_size"]) / PEAK_FLOPS * 100, 1
                    )
                result["peak_memory_gib"] = round(max(line["peak_memory_bytes"] for line in lines) / 2**30, 2)
            result["losses"] = [line["loss"] for line in lines]
            result["validation_losses"] = [line["validation_loss"] for line in lines if "validation_loss" in line]
            print(
                "   ",
                {key: result[key] for key in result if key not in ("command", "losses")},
                "loss",
                result["losses"][:1],
                "->",
                result["losses"][-1:],
                flush=True,
            )
            self.write()
        if not options.get("keep_checkpoints"):
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)

    def compare(self, one: str, other: str, tolerance: float) -> None:
        """Records how far the losses of two runs are apart."""
        if "losses" not in self.results.get(one, {}) or "losses" not in self.results.get(other, {}):
            return
        pairs = list(zip(self.results[one]["losses"], self.results[other]["losses"], strict=False))
        apart = max(abs(a - b) / abs(a) for a, b in pairs)
        verdict = {
            "steps": len(pairs),
            "largest_relative_difference": apart,
            "tolerance": tolerance,
            "agree": apart <= tolerance,
        }
        self.results[f"{one} against {other}"] = verdict
        print(f"{one} against {other}: {verdict}", flush=True)
        self.write()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build")
    parser.add_argument("--train_data", type=Path, required=True)
    parser.add_argument("--validation_data", type=Path, required=True)
    parser.add_argument("--scratch", default="/tmp/mpzero-bench", help="for checkpoints; tens of GB")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--only", nargs="*", help="only runs whose name contains one of these words")
    visit = Visit(parser.parse_args())
    steps = visit.arguments.steps

    visit.test("test_model_gpu")
    visit.test("test_gpu_parallel")
    visit.test("test_gpu_parallel", ranks=2)
    if visit.wanted("golden"):
        golden = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "gpus"]
        os.environ["BUILD_DIR"] = str(visit.arguments.build.resolve())
        visit.run("golden", [*golden, str(REPOSITORY / "tests" / "e2e" / "test_golden.py")], 150)
    if visit.wanted("host_adamw_alone"):
        visit.run("host_adamw_alone", [str(visit.arguments.build / "bin" / "bench_host_adamw")], 60)
    for stage in (2, 3):
        for offload in (False, True):
            place = "host_adamw" if offload else "gpu_adamw"
            shared = {"stage": stage, "offload": offload, "steps": steps, "validation_freq": 25}
            visit.train(f"qwen3_zero{stage}_{place}_1gpu", ranks=1, micro_batch=8, **shared)
            visit.train(f"qwen3_zero{stage}_{place}_2gpu", ranks=2, micro_batch=4, **shared)
            visit.compare(f"qwen3_zero{stage}_{place}_1gpu", f"qwen3_zero{stage}_{place}_2gpu", 1e-2)
        visit.compare(f"qwen3_zero{stage}_gpu_adamw_1gpu", f"qwen3_zero{stage}_host_adamw_1gpu", 1e-2)
    shared = {"stage": 3, "offload": True, "offload_param": True, "validation_freq": 25}
    visit.train("qwen3_zero3_offload_param_1gpu", ranks=1, micro_batch=8, steps=steps, **shared)
    visit.train("qwen3_zero3_offload_param_2gpu", ranks=2, micro_batch=4, steps=steps, **shared)
    visit.train("qwen3_recompute_1gpu", ranks=1, micro_batch=8, stage=2, offload=False, steps=20, recompute="full")
    # A run that is stopped at half its steps and taken up again repeats the straight one: bit for bit with
    # deterministic kernels, to rounding without.
    for ranks in (1, 2):
        for deterministic in (True, False):
            kind = "deterministic" if deterministic else "default"
            shared = {
                "ranks": ranks,
                "stage": 3,
                "offload": False,
                "micro_batch": 8 // ranks,
                "deterministic": deterministic,
            }
            straight, stopped = f"qwen3_{kind}_straight_{ranks}gpu", f"qwen3_{kind}_stopped_{ranks}gpu"
            visit.train(straight, steps=20, **shared)
            visit.train(stopped, steps=10, keep_checkpoints=True, **shared)
            visit.train(stopped, steps=20, resume=True, **shared)
            visit.compare(straight, f"{stopped}_resumed", 0.0 if deterministic else 1e-2)
    # The two users' files as they are. The second would save 96 GB at its end: its time limit stops it before.
    users = {"stage": 0, "offload": False, "seq_length": 2048}
    qwen3 = {"vocab_size": QWEN3_VOCAB, "users_config": "configs/ds_config.json"}
    visit.train("users_qwen3_zero2", ranks=1, steps=30, **qwen3, **users)
    users["seq_length"] = 512
    llama = {"model_type": "llama_3_8b", "users_config": "configs/ds_config_llama3_8b_zero3_offload.json", "limit": 110}
    visit.train("users_llama3_8b_zero3_2gpu", ranks=2, steps=1000, warm_up=2, **llama, **users)
    # Throughput at the shapes of the peers' figures.
    shared = {"ranks": 1, "stage": 2, "offload": False, "steps": 40, "seq_length": 2048, "vocab_size": QWEN3_VOCAB}
    visit.train("speed_mb8_t2048", micro_batch=8, **shared)
    visit.train("speed_mb1_t2048", micro_batch=1, **shared)
    failed = [name for name, result in visit.results.items() if result.get("status", 0) != 0]
    print("failed:", failed or "none")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
