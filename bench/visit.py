"""A benchmark session on a machine: runs programs with time limits, and stores their output and measurements.

OUTPUT_DIR/results.json contains the results, and OUTPUT_DIR/logs.tar.gz the logs and metrics files. Both are rewritten
after each run, so that an interrupted session keeps its results.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from measures import (
    MPI_AS_ROOT,
    compare_losses,
    flops_per_token,
    planned_memory,
    ratio_table,
    read_metrics,
    read_model,
    summarize,
)

REPOSITORY = Path(__file__).resolve().parents[1]
WARM_UP_STEPS = 10
POLL_SECONDS = 0.02
TIMED_OUT = 124
SKIPPED = 77  # exit status of a skipped test program (tests/skip.hpp)


@dataclass(frozen=True)
class Settings:
    output: Path
    build: Path
    train_data: Path | None  # None: random tokens only
    validation_data: Path | None
    scratch: Path
    only: tuple[str, ...] = ()  # words, one of which must be in the run's name; empty: all runs


def ds_config(
    *,
    stage: int,
    offload: bool = False,
    micro_batch: int,
    gas: int = 1,
    offload_param: bool = False,
    bf16_moments: bool = False,
) -> dict:
    """Returns the ds_config.json of runs that do not use a file in configs."""
    zero: dict = {"stage": stage}
    if offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if offload_param:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    bf16 = {"enabled": True, "bf16_optimizer_states": True} if bf16_moments else {"enabled": True}
    return {
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": gas,
        "gradient_clipping": 1.0,
        "bf16": bf16,
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}},
        "scheduler": {
            "type": "WarmupCosineLR",
            "params": {"warmup_num_steps": 10, "cos_min_ratio": 0.1, "total_num_steps": 200},
        },
        "zero_optimization": zero,
    }


def descendants(pid: int) -> list[int]:
    """Returns the descendant processes of `pid`."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in task.read_text(encoding="utf-8").split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def end(process: subprocess.Popen) -> None:
    """Kills a program with all its ranks.

    On SIGTERM, mpzero first saves a checkpoint, which may take longer than the measured run. Instead, all ranks are
    killed before any rank can detect a lost peer. mpirun then exits; if mpirun were killed, the ranks would remain.
    """
    for pid in descendants(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)
        return
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=30)


def run_logged(command: list[str], log: Path, limit: float, until: Callable[[float], bool] = lambda _: False) -> int:
    """Runs a command with its output in `log`. Returns the exit status, or TIMED_OUT after `limit` seconds.

    `until`: called every 20 ms with the seconds since the start. If it returns True, the program is terminated and
    counts as successful.
    """
    start = time.monotonic()
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, **MPI_AS_ROOT},
        )
        try:
            while (status := process.poll()) is None:
                seconds = time.monotonic() - start
                if until(seconds):
                    return 0
                if seconds >= limit:
                    return TIMED_OUT
                time.sleep(POLL_SECONDS)
            return status
        finally:
            if process.poll() is None:
                end(process)


def gpus_here() -> list[str]:
    """Returns the names of this machine's GPUs."""
    if shutil.which("nvidia-smi") is None:
        return []
    words = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=60, encoding="utf-8"
    ).stdout.splitlines()


class Visit:
    def __init__(self, settings: Settings):
        self.settings = settings
        settings.output.mkdir(parents=True, exist_ok=True)
        # Never reuse the folder of an earlier session, because its logs would be mixed with this session's logs.
        self.logs = settings.scratch / "logs"
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        self.results: dict[str, dict] = {}
        self.peers: list[dict] = []
        gpus = gpus_here()
        self.gpus = len(gpus)
        self.results["machine"] = {"gpus": gpus, "cores": os.cpu_count()}

    def wanted(self, name: str) -> bool:
        return not self.settings.only or any(word in name for word in self.settings.only)

    def run(self, name: str, command: list[str], limit: float, **options) -> dict:
        """Runs a command with its output in NAME.log, and returns the record. `options`: as in run_logged()."""
        log = self.logs / f"{name}.log"
        start = time.monotonic()
        status = run_logged(command, log, limit, **options)
        result = {"command": " ".join(command), "status": status, "seconds": round(time.monotonic() - start, 2)}
        self.results[name] = result
        tail = log.read_text(errors="replace", encoding="utf-8").splitlines()[-3:]
        print(f"{name}: status {status}, {result['seconds']} s | " + " | ".join(tail), flush=True)
        self.write()
        return result

    def write(self) -> None:
        (self.settings.output / "results.json").write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")
        unfinished = self.settings.output / "logs.tar.gz.part"
        with tarfile.open(unfinished, "w:gz", compresslevel=3) as archive:
            archive.add(self.logs, arcname="logs")
        unfinished.replace(self.settings.output / "logs.tar.gz")

    def mpirun(self, ranks: int) -> list[str]:
        return ["mpirun", "--bind-to", "none", "-n", str(ranks)]

    def test(self, name: str, ranks: int = 1, limit: float = 120) -> None:
        label = name if ranks == 1 else f"{name}_{ranks}ranks"
        if self.wanted(label) and ranks <= self.gpus:
            # Line-buffered, so that the log of a run that exceeds its limit shows the progress.
            program = ["stdbuf", "-oL", str(self.settings.build / "tests" / name), "--durations", "yes"]
            self.run(label, [*self.mpirun(ranks), *program], limit)

    def sanitize(self, tool: str, program: str, *, cases: list[str], limit: float) -> None:
        """Runs a GPU test program under compute-sanitizer. `cases`: Catch2's test specification.

        Only mpzero's kernels are instrumented, because instrumented cuBLAS and cuDNN kernels take hours.
        """
        label = f"{tool}_{program.removeprefix('test_')}"
        if not self.wanted(label) or self.gpus == 0:
            return
        checker = [
            *["compute-sanitizer", "--tool", tool, "--error-exitcode", "99", "--print-limit", "20"],
            *["--kernel-name", "kernel_substring=mpzero"],
            # NCCL looks up kernels that CUDA does not have for this GPU, and handles the failure.
            *["--report-api-errors", "no"],
        ]
        self.run(label, [*self.mpirun(1), *checker, str(self.settings.build / "tests" / program), *cases], limit)
        text = (self.logs / f"{label}.log").read_text(errors="replace", encoding="utf-8")
        summaries = [line.lstrip("= ") for line in text.splitlines() if "SUMMARY" in line]
        self.results[label]["summary"] = summaries
        print("   ", summaries, flush=True)
        self.write()

    def random_tokens(self, vocab_size: int, packed: int | None = None) -> Path:
        """Returns a file of random token IDs below `vocab_size`, created once, or the given text if h5py is missing.
        `packed`: sequence length for documents of mean length 600.
        """
        path = self.settings.scratch / f"random_{vocab_size}_{packed}.h5"
        if not path.exists():
            program = Path(__file__).with_name("random_tokens.py")
            command = [sys.executable, str(program), str(path), f"--vocab_size={vocab_size}"]
            command += [f"--packed={packed}"] if packed else []
            made = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, encoding="utf-8")
            if made.returncode != 0:
                if self.settings.train_data is None:
                    raise RuntimeError(f"random tokens: {made.stderr.strip()[-300:]}")
                print(f"random tokens: {made.stderr.strip()[-300:]}; using {self.settings.train_data} instead")
                return self.settings.train_data
        return path

    def train(
        self,
        name: str,
        *,
        ranks: int,
        steps: int,
        stage: int = 0,
        offload: bool = False,
        resume: bool = False,
        model_type: str = "qwen3_0_6b",
        vocab_size: int | None = None,
        seq_length: int = 1024,
        users_config: str | dict | None = None,
        random: bool = False,
        endless: bool = False,
        **options,
    ) -> None:
        """Performs one training run.

        `users_config`: path of a ds_config.json in the repository, or its content; replaces `stage`, `offload` and
        the `options` micro_batch, gas, offload_param and bf16_moments. `random`: use random tokens. `endless`: end the
        run after `steps` steps, without the final checkpoint. Other options: validation_freq, recompute,
        deterministic, packed, keep_checkpoints, warm_up (steps), limit (seconds), flags.
        """
        if not self.wanted(name) or ranks > self.gpus:
            return
        folder = self.settings.scratch / name
        if not resume:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(users_config, dict):
            config = users_config
        elif users_config is not None:
            config = json.loads((REPOSITORY / users_config).read_text(encoding="utf-8"))
        else:
            config = ds_config(
                stage=stage,
                offload=offload,
                micro_batch=options.get("micro_batch", 4),
                gas=options.get("gas", 1),
                offload_param=options.get("offload_param", False),
                bf16_moments=options.get("bf16_moments", False),
            )
        (folder / "ds_config.json").write_text(json.dumps(config), encoding="utf-8")
        model = read_model(model_type, vocab_size)
        metrics = folder / "metrics.jsonl"
        flags = {
            "deepspeed_config": folder / "ds_config.json",
            "model_type": model_type,
            "train_data": self.random_tokens(model["vocab_size"], seq_length if options.get("packed") else None)
            if random
            else self.settings.train_data,
            "seq_length": seq_length,
            "max_steps": 100_000 if endless else steps,
            "checkpoint_freq": 0,
            "checkpoint_dir": folder / "checkpoints",
            "metrics_file": metrics,
            "device": "cuda",
            "deterministic": str(options.get("deterministic", False)).lower(),
        }
        if vocab_size is not None:
            flags["vocab_size"] = vocab_size
        if options.get("validation_freq"):
            flags["validation_data"] = self.settings.validation_data
            flags["validation_freq"] = options["validation_freq"]
            flags["validation_sequences"] = 64
        if "recompute" in options:
            flags["recompute"] = options["recompute"]
        flags |= options.get("flags", {})
        program = [str(self.settings.build / "bin" / "mpzero"), "train"]
        command = [*self.mpirun(ranks), *program, *(f"--{flag}={value}" for flag, value in flags.items())]

        first_step: list[float] = []
        lines_before = metrics.read_bytes().count(b"\n") if metrics.exists() else 0

        def watch(seconds: float) -> bool:
            lines = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
            if not first_step and lines > lines_before:
                first_step.append(seconds)
            return endless and lines >= steps

        label = f"{name}_resumed" if resume else name
        result = self.run(label, command, options.get("limit", 150), until=watch)
        if first_step:
            result["first_step_seconds"] = round(first_step[0], 2)
        if metrics.exists():
            shutil.copy(metrics, self.logs / f"{label}.jsonl")
            result |= summarize(
                read_metrics(metrics),
                ranks=ranks,
                warm_up=options.get("warm_up", WARM_UP_STEPS),
                flops=flops_per_token({**model, **options.get("flags", {})}, seq_length, frozen="lora_r" in flags),
            )
        result |= planned_memory((self.logs / f"{label}.log").read_text(errors="replace", encoding="utf-8"))
        shown = {key: value for key, value in result.items() if key not in ("command", "losses", "memory_line")}
        losses = result.get("losses", [])
        print("   ", shown, "loss", losses[:1], "->", losses[-1:], flush=True)
        self.results[label] = result
        if not options.get("keep_checkpoints"):
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        self.write()

    def compare(self, one: str, other: str, tolerance: float) -> None:
        """Records the difference between two runs' losses."""
        if "losses" not in self.results.get(one, {}) or "losses" not in self.results.get(other, {}):
            return
        verdict = compare_losses(self.results[one]["losses"], self.results[other]["losses"], tolerance)
        self.results[f"{one} against {other}"] = verdict
        print(f"{one} against {other}: {verdict}", flush=True)
        self.write()

    def finish(self) -> list[str]:
        """Prints the table of ratios, and returns the names of the failed runs."""
        table = ratio_table(self.results, self.peers)
        if len(table) > 2:
            print("\n".join(table), flush=True)
            (self.settings.output / "ratios.md").write_text("\n".join(table) + "\n", encoding="utf-8")
        skipped = [name for name, result in self.results.items() if result.get("status") == SKIPPED]
        print("runs with skipped cases:", skipped or "none")
        return [name for name, result in self.results.items() if result.get("status", 0) not in (0, SKIPPED)]
