#!/usr/bin/env python3
"""Runs the GPU tests and the training runs of bench/RESULTS.md on this machine's GPUs, and writes the results.

    bench/gpu_run.py OUTPUT_DIR --build build --train_data T.h5 --validation_data V.h5 [--steps 50] [--only WORD ...]

Every program has a time limit. A failure is recorded, and the remaining programs still run. Peer runs (peer_…) run only
if --only selects them, because they require transformers or DeepSpeed. Writes results.json, logs.tar.gz and ratios.md
to OUTPUT_DIR.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from deepspeed_peer import LLAMA_FILE, WORKS, users_llama_at_8192
from measures import read_peers
from visit import REPOSITORY, Settings, Visit, ds_config

# The text is tokenized with the Llama-3 vocabulary. Qwen3's vocabulary is larger.
LLAMA3_VOCAB = 128256
BENCH = Path(__file__).resolve().parent


def tests(visit: Visit) -> None:
    for kind in ("model", "fp8", "plan", "timing", "memory", "snapshot"):
        visit.test(f"test_{kind}_gpu", limit=200)
    for program in ("test_gpu_parallel", "test_network_gpu", "test_network_plugin_gpu", "test_flight_recorder_gpu"):
        for ranks in (1, 2, 4):
            visit.test(program, ranks=ranks, limit=120 if ranks == 1 else 240)
    os.environ["BUILD_DIR"] = str(visit.settings.build.resolve())
    for name, file, selection, limit in (
        ("golden", "golden", "gpus", 300),
        ("memory_e2e", "memory", "", 200),
        ("saving_e2e", "saving", "gpu", 200),
        ("failures_e2e", "failures", "gpu", 150),
        ("network_e2e", "network", "", 120),
        ("doctor_e2e", "doctor", "gpus", 60),
        ("devices_e2e", "devices", "", 60),
    ):
        if visit.wanted(name):
            pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", selection]
            visit.run(name, [*pytest, str(REPOSITORY / "tests" / "e2e" / f"test_{file}.py")], limit)
    if visit.wanted("host_adamw_alone"):
        visit.run("host_adamw_alone", [str(visit.settings.build / "bin" / "bench_host_adamw")], 60)


def sanitized_tests(visit: Visit) -> None:
    visit.sanitize("memcheck", "test_model_gpu", cases=[], limit=170)
    # Skip cases with cuBLAS kernels, which make racecheck itself fail.
    visit.sanitize("racecheck", "test_model_gpu", cases=["[kernels]"], limit=170)
    for tool in ("memcheck", "racecheck"):
        visit.sanitize(tool, "test_gpu_parallel", cases=[], limit=120)


def stages_on_text(visit: Visit, steps: int) -> None:
    text = {"vocab_size": LLAMA3_VOCAB}
    for stage in (2, 3):
        for offload in (False, True):
            place = "host_adamw" if offload else "gpu_adamw"
            shared = {"stage": stage, "offload": offload, "steps": steps, "validation_freq": 25, **text}
            one = f"qwen3_zero{stage}_{place}_1gpu"
            visit.train(one, ranks=1, micro_batch=8, **shared)
            for ranks in (2, 4):
                several = f"qwen3_zero{stage}_{place}_{ranks}gpu"
                visit.train(several, ranks=ranks, micro_batch=8 // ranks, **shared)
                visit.compare(one, several, 1e-2)
        visit.compare(f"qwen3_zero{stage}_gpu_adamw_1gpu", f"qwen3_zero{stage}_host_adamw_1gpu", 1e-2)
    visit.compare("qwen3_zero2_gpu_adamw_1gpu", "qwen3_zero3_gpu_adamw_1gpu", 1e-2)
    shared = {"stage": 3, "offload": True, "offload_param": True, "validation_freq": 25, **text}
    visit.train("qwen3_zero3_offload_param_1gpu", ranks=1, micro_batch=8, steps=steps, **shared)
    visit.train("qwen3_zero3_offload_param_2gpu", ranks=2, micro_batch=4, steps=steps, **shared)
    for recompute in ("selective", "full"):
        visit.train(
            f"qwen3_recompute_{recompute}_1gpu", ranks=1, micro_batch=8, stage=2, steps=20, recompute=recompute, **text
        )


def repetitions(visit: Visit) -> None:
    """Compares an uninterrupted run with a repeated run, and with a run that was stopped halfway and resumed. Losses
    are bit-identical with deterministic kernels, and otherwise equal up to rounding.
    """
    for ranks in (1, 2):
        for deterministic in (True, False):
            kind = "deterministic" if deterministic else "default"
            shared = {
                "ranks": ranks,
                "stage": 3,
                "micro_batch": 8 // ranks,
                "deterministic": deterministic,
                "vocab_size": LLAMA3_VOCAB,
            }
            straight, stopped = f"qwen3_{kind}_straight_{ranks}gpu", f"qwen3_{kind}_stopped_{ranks}gpu"
            again = f"qwen3_{kind}_again_{ranks}gpu"
            tolerance = 0.0 if deterministic else 1e-2
            visit.train(straight, steps=20, **shared)
            visit.train(stopped, steps=10, keep_checkpoints=True, **shared)
            visit.train(stopped, steps=20, resume=True, **shared)
            visit.compare(straight, f"{stopped}_resumed", tolerance)
            visit.train(again, steps=20, endless=True, **shared)
            visit.compare(straight, again, tolerance)


def users_files(visit: Visit) -> None:
    """Trains with the files in configs and CPU AdamW. Run names are the workload names in bench/deepspeed_peer.py."""
    gpus = visit.gpus
    qwen = json.loads((REPOSITORY / "configs" / "ds_config.json").read_text(encoding="utf-8"))
    zero = qwen["zero_optimization"]
    on_gpu = {**zero, "offload_optimizer": {**zero["offload_optimizer"], "ratio": "auto"}}
    small = {"seq_length": 2048, "steps": 60, "random": True, "endless": True}
    visit.train("users_qwen3_zero2", ranks=1, users_config=qwen, **small)
    visit.train("users_qwen3_zero2_clipped", ranks=1, users_config={**qwen, "gradient_clipping": 0.001}, **small)
    for name, work in WORKS.items():
        if name.startswith("users_superoffload"):
            options = {**small, "seq_length": work.seq_length, "steps": 30, "limit": 240}
            # DeepSpeed's examples disable overlap_comm. In mpzero, this would also disable concurrent updates.
            config = {**work.config, "zero_optimization": {**work.config["zero_optimization"], "overlap_comm": True}}
            visit.train(name, ranks=1, model_type=work.model, users_config=config, **options)
    moments = {**qwen, "bf16": {"enabled": True, "bf16_optimizer_states": True}}
    visit.train("users_qwen3_zero2_bf16_moments", ranks=1, users_config=moments, **small)
    visit.train("users_qwen3_zero2_ratio_auto", ranks=1, users_config={**qwen, "zero_optimization": on_gpu}, **small)
    saving = {"seq_length": 2048, "users_config": qwen, "flags": {"checkpoint_freq": 10}}
    # Default configuration: first step, saves, resume, and verification of the saved files.
    visit.train("users_default", ranks=1, steps=30, keep_checkpoints=True, **saving)
    visit.train("users_default", ranks=1, steps=35, resume=True, keep_checkpoints=True, **saving)
    if visit.wanted("users_default_verify"):
        checkpoints = visit.settings.scratch / "users_default" / "checkpoints"
        program = str(visit.settings.build / "bin" / "mpzero")
        visit.run("users_default_verify", [program, "checkpoint", "verify", str(checkpoints)], 120)
    shutil.rmtree(visit.settings.scratch / "users_default" / "checkpoints", ignore_errors=True)
    if gpus < 2:
        return
    visit.train(f"users_qwen3_zero2_{gpus}gpu", ranks=gpus, users_config=qwen, **small)
    large = {"model_type": "llama_3_8b", "steps": 14, "warm_up": 3, "random": True, "endless": True, "limit": 280}
    name = f"users_llama3_8b_zero3_{gpus}gpu"
    visit.train(name, ranks=gpus, seq_length=512, users_config=LLAMA_FILE, **large)
    visit.train(f"{name}_t8192", ranks=gpus, seq_length=8192, users_config=users_llama_at_8192(), **large)


def speeds(visit: Visit) -> None:
    """Measures throughput of the peers' workloads, with random tokens and all training states in GPU memory."""
    shared = {"ranks": 1, "stage": 2, "steps": 50, "seq_length": 2048, "random": True, "endless": True}
    for micro_batch in (8, 1):
        for model, work in (("qwen3_0_6b", "qwen3_0_6b"), ("qwen2_5_0_5b", "qwen2_5_0_5b")):
            steps = {"steps": 50 if micro_batch == 8 else 120}
            visit.train(
                f"speed_{work}_mb{micro_batch}", model_type=model, micro_batch=micro_batch, **{**shared, **steps}
            )
    for recipe in ("tensorwise", "rowwise"):
        name = f"speed_qwen3_0_6b_mb8_fp8_{recipe}"
        visit.train(name, model_type="qwen3_0_6b", micro_batch=8, flags={"fp8": recipe}, **shared)
    for packed in (False, True):
        for recipe in ({}, {"fp8": "tensorwise"}):
            name = f"speed_qwen3_0_6b_t8192{'_packed' * packed}{'_fp8' * bool(recipe)}"
            at_8192 = {**shared, "seq_length": 8192, "steps": 30, "packed": packed, "flags": recipe}
            visit.train(name, model_type="qwen3_0_6b", micro_batch=2, **at_8192)
    large = {"random": True, "endless": True, "steps": 25, "warm_up": 4, "limit": 170}
    qwen = {"model_type": "qwen2_5_7b", "ranks": 1, "stage": 2, "micro_batch": 1, "gas": 4, "seq_length": 8192}
    visit.train("speed_qwen2_5_7b", bf16_moments=True, **qwen, **large)
    adapters = {"model_type": "llama_3_8b", "seq_length": 4096, "micro_batch": 1, **large}
    for recompute in ({}, {"recompute": "full"}):
        for recipe in ({}, {"fp8": "tensorwise"}):
            name = f"speed_llama3_8b_lora_t4096{'_recompute' * bool(recompute)}{'_fp8' * bool(recipe)}"
            flags = {"lora_r": 16, "lora_alpha": 32, **recipe}
            for ranks in {1, visit.gpus}:
                several = f"_{ranks}gpu" if ranks > 1 else ""
                visit.train(f"{name}{several}", ranks=ranks, stage=2, flags=flags, **recompute, **adapters)
    ranks = visit.gpus
    if ranks < 2:
        return
    for stage in (2, 3):
        name = f"speed_qwen3_zero{stage}_{ranks}gpu_mb8"
        visit.train(name, **{**shared, "ranks": ranks, "stage": stage}, micro_batch=8)
    llama = {"model_type": "llama_3_8b", "ranks": ranks, "stage": 3, **large}
    name = f"speed_llama3_8b_zero3_{ranks}gpu"
    visit.train(f"{name}_t8192", micro_batch=1, seq_length=8192, **llama)
    visit.train(f"{name}_t512", micro_batch=4, gas=4, seq_length=512, **llama)


def long_sequences(visit: Visit) -> None:
    """Compares sequence parallelism with a single rank. Uses only four layers, so that a step takes seconds."""
    four_layers = {"num_hidden_layers": 4, "max_position_embeddings": 262_144}
    for length, ranks, recompute in (
        (131_072, 1, "full"),
        (131_072, 1, "tiled"),
        (131_072, 1, "host"),
        (131_072, 2, "full"),
        (131_072, 2, "tiled"),
        (262_144, 2, "tiled"),
    ):
        visit.train(
            f"long_llama3_8b_4layers_t{length}_{ranks}gpu_{recompute}",
            ranks=ranks,
            steps=4,
            warm_up=2,
            seq_length=length,
            model_type="llama_3_8b",
            users_config={**ds_config(stage=3, micro_batch=1), "sequence_parallel_size": ranks},
            recompute=recompute,
            random=True,
            endless=True,
            flags=four_layers,
        )


def large_on_host(visit: Visit) -> None:
    """Trains large models and long sequences with bf16 moments in host memory."""
    on_host = ds_config(stage=3, offload=True, offload_param=True, micro_batch=16, bf16_moments=True)
    shared = {"model_type": "llama_3_8b", "ranks": 1, "random": True, "endless": True}
    for name, clipping in (("", 1.0), ("_unclipped", 0.0)):
        config = {**on_host, "gradient_clipping": clipping}
        visit.train(
            f"host_llama3_8b_16x1024{name}", seq_length=1024, users_config=config, steps=12, warm_up=3, **shared
        )
    for length, steps, recompute in ((131_072, 2, "tiled"), (131_072, 2, "attention"), (262_144, 1, "tiled")):
        visit.train(
            f"host_llama3_8b_t{length}_{recompute}",
            seq_length=length,
            users_config={**on_host, "train_micro_batch_size_per_gpu": 1},
            steps=steps,
            warm_up=steps - 1,
            recompute=recompute,
            flags={"max_position_embeddings": length},
            limit=400,
            **shared,
        )
    one_sequence = {**on_host, "train_micro_batch_size_per_gpu": 1}
    for recompute in ("attention", "host_attention"):
        visit.train(
            f"host_llama3_8b_4layers_t500000_{recompute}",
            seq_length=500_000,
            users_config=one_sequence,
            steps=2,
            warm_up=1,
            recompute=recompute,
            flags={"num_hidden_layers": 4, "max_position_embeddings": 500_000},
            limit=300,
            **shared,
        )
    visit.train(
        "host_llama3_8b_4layers_t1000000_2gpu_host_attention",
        seq_length=1_000_000,
        users_config={**one_sequence, "sequence_parallel_size": 2},
        steps=2,
        warm_up=1,
        recompute="host_attention",
        flags={"num_hidden_layers": 4, "max_position_embeddings": 1_000_000},
        limit=420,
        **{**shared, "ranks": 2},
    )
    for layers in (10, 11):  # parameters and states of 99 and 107 GiB
        visit.train(
            f"host_llama3_1_70b_{layers}layers_8x4096",
            seq_length=4096,
            users_config={**on_host, "train_micro_batch_size_per_gpu": 8},
            steps=4,
            warm_up=2,
            flags={"num_hidden_layers": layers},
            limit=200,
            **{**shared, "model_type": "llama_3_1_70b"},
        )
    # Optimizer states divided between the host and two GPUs; parameters on the GPUs.
    divided = ds_config(stage=3, offload=True, micro_batch=8, bf16_moments=True)
    divided["zero_optimization"]["offload_optimizer"]["ratio"] = 0.9
    visit.train(
        "host_llama3_1_70b_36layers_2gpu_8x4096",
        seq_length=4096,
        users_config=divided,
        steps=4,
        warm_up=2,
        flags={"num_hidden_layers": 36},
        limit=300,
        **{**shared, "ranks": 2, "model_type": "llama_3_1_70b"},
    )


def named(visit: Visit, name: str) -> bool:
    """Returns True if --only selects this run by a prefix: "speed" does not select "peer_deepspeed_…"."""
    return any(name.startswith(word) for word in visit.settings.only)


def peers(visit: Visit) -> None:
    """Runs the peers. read_peers() parses their output."""

    def peer(name: str, gpus: int, limit: float, *command: str) -> None:
        if not named(visit, name) or gpus > visit.gpus:
            return
        visit.run(name, [sys.executable, *command], limit)
        found = read_peers([visit.logs / f"{name}.log"])
        visit.results[name]["figures"] = found
        visit.peers += found
        visit.write()

    peer("peer_hugging_face", 1, 240, str(BENCH / "hugging_face_peer.py"))
    lora = ("llama3_8b_lora_t4096", "llama3_8b_lora_t4096_recompute")
    peer("peer_peft", 1, 240, str(BENCH / "hugging_face_peer.py"), *lora, "--steps=10")
    deepspeed = str(BENCH / "deepspeed_peer.py")
    for work, gpus in (
        ("users_qwen3_zero2", 1),
        ("users_superoffload_0_6b", 1),
        ("users_superoffload_0_6b_unclipped", 1),
        ("users_superoffload_4b", 1),
        ("users_superoffload_4b_unclipped", 1),
        ("zero3_offload_4b", 1),
        ("users_qwen3_zero2_4gpu", 4),
        ("qwen3_zero2_4gpu_mb8", 4),
        ("llama3_8b_zero3_4gpu_t8192", 4),
        ("llama3_8b_zero3_4gpu_t512", 4),
        ("users_llama3_8b_zero3_4gpu", 4),
        ("users_llama3_8b_zero3_4gpu_t8192", 4),
    ):
        peer(f"peer_deepspeed_{work}", gpus, 240, deepspeed, work, f"--gpus={gpus}")
    # With bf16 rounding, gradients diverge slightly at each step. The control and fp32 runs measure this divergence.
    for name, flags in (("compare_hugging_face_bf16", ["--control"]), ("compare_hugging_face_fp32", ["--fp32"])):
        if not named(visit, name) or visit.gpus == 0:
            continue
        folder = visit.settings.scratch / name
        command = [sys.executable, str(BENCH / "compare_hugging_face.py"), str(folder), "--device=cuda", *flags]
        command += [f"--build={visit.settings.build}", f"--train_data={visit.settings.train_data}"]
        visit.run(name, [*command, f"--vocab_size={LLAMA3_VOCAB}"], 280)
        for file in folder.glob("*.jsonl"):
            (visit.logs / f"{name}_{file.name}").write_bytes(file.read_bytes())
        visit.write()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build")
    parser.add_argument("--train_data", type=Path, required=True)
    parser.add_argument("--validation_data", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/mpzero-bench"), help="checkpoint folder, tens of GB")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument(
        "--only", nargs="*", default=[], help="run only programs whose names contain one of these words"
    )
    parser.add_argument("--peers", type=Path, nargs="*", default=[], help="output files of other peers in this session")
    arguments = parser.parse_args()
    settings = Settings(
        output=arguments.output,
        build=arguments.build,
        train_data=arguments.train_data,
        validation_data=arguments.validation_data,
        scratch=arguments.scratch,
        only=tuple(arguments.only),
    )
    visit = Visit(settings)
    visit.peers += read_peers(path for path in arguments.peers if path.exists())
    tests(visit)
    speeds(visit)
    long_sequences(visit)
    large_on_host(visit)
    peers(visit)
    users_files(visit)
    stages_on_text(visit, arguments.steps)
    repetitions(visit)
    sanitized_tests(visit)
    failed = visit.finish()
    print("failed:", failed or "none")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
