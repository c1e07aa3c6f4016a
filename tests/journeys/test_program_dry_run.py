"""`mpzero train --dry_run`: before anything long, a user asks whether the run can start and what it would be."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from refusals import the_sentence
from tiny_run import MODEL, VOCAB_SIZE, TinyRun
from trainer import REPOSITORY

from .program import mpzero

pytestmark = pytest.mark.e2e


def ask(run: TinyRun, *flags: object) -> str:
    result = mpzero("train", *run.flags(), "--dry_run", *flags)
    assert result.returncode == 0, result.stderr
    return result.stdout


def refused(run: TinyRun, *flags: object) -> str:
    result = mpzero("train", *run.flags(), "--dry_run", *flags)
    assert result.returncode == 2, result.stdout
    assert result.stdout == ""
    return the_sentence(result.stderr)


def files_below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def test_it_says_what_eight_ranks_would_train(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.flags()
    before = files_below(tmp_path)
    seen = ask(run, "--max_steps=20", "--world_size=8", "--nproc_per_node=4")
    assert re.search(r"model +tiny, \d+ parameters, 2 layers", seen)
    assert "8 on 2 hosts, ZeRO-2 over 2 shard groups of 4 ranks, fp32" in seen
    assert re.search(r"between shard groups: \d+\.\d+ [kMG]B per group per step; one level of ZeRO: ", seen)
    assert "32 = 2 x 2 x 8" in seen
    assert "20 steps of 32 sequences x 16 tokens: 10240 tokens in total" in seen
    assert re.search(r"0 at step 1, 0\.01 at step 3, 0\.001\d* at step 20", seen)
    assert "187 sequences of 16 tokens" in seen
    assert re.search(r"Memory per host .* for 4 ranks", seen)
    assert re.search(r"learning rate +0\.01 +file: optimizer.params.lr", seen)
    assert "from step 0, with random weights from seed 42" in seen
    assert files_below(tmp_path) == before


def test_it_agrees_with_the_run(tmp_path: Path) -> None:
    """The settings and the steps that a dry run names are those of the run."""
    run = TinyRun(tmp_path)
    dry = ask(run, "--epochs=1", "--world_size=2")
    real = run.train("--epochs=1").stdout
    table = [line for line in dry.splitlines() if "  file: " in line or "  flag: " in line]
    table = [line for line in table if not line.endswith("flag: --world_size")]  # set by the launcher in the run
    assert len(table) > 5
    assert all(line in real for line in table)
    steps = re.search(r"length +(\d+) steps", dry).group(1)
    assert f"{steps} steps of 8 sequences" in real
    assert run.metrics()[-1]["step"] == int(steps)


def test_data_need_not_be_prepared_yet(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.data.unlink()
    seen = ask(run, "--dataset=wikitext", "--tokenizer=bytes", "--vocab_size=257")
    assert f"not prepared: --train_data {run.data}" in seen
    assert "app/prepare_data.py --dataset wikitext --tokenizer bytes" in seen
    assert "unknown until --train_data is prepared" in ask(run, "--epochs=3")


def test_mistakes_show_before_the_data_is_prepared(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.data.unlink()
    assert "--learning_rate" in refused(run, "--learning_rat=1")
    assert "--seq_length 100 exceeds the model's max_position_embeddings 64" in refused(
        TinyRun(tmp_path, seq_length=100)
    )
    window = TinyRun(tmp_path / "window")
    (window.folder / "tiny.json").write_text(json.dumps({**MODEL, "model_type": "mistral", "sliding_window": 15}))
    assert "--seq_length 16 exceeds the model's sliding_window 15" in refused(window)
    sentence = refused(run, "--tokenizer=bytes")
    assert f"has 257 ids, but the largest id in the model's vocabulary is {VOCAB_SIZE - 1}" in sentence
    assert "--vocab_size 257" in sentence
    assert "gradient_cliping" in refused(TinyRun(tmp_path, config={"gradient_cliping": 1}))
    assert "train_batch_size 12 is not" in refused(TinyRun(tmp_path, config={"train_batch_size": 12}), "--world_size=8")


def test_the_checkpoint_that_it_would_resume_from(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=4", "--checkpoint_freq=2")
    before = files_below(tmp_path)
    seen = ask(run, "--max_steps=10", "--world_size=2")
    assert f"after step 4, from {run.latest}; 6 steps remain" in seen
    assert "Changed since the checkpoint: max_steps 4 -> 10" in seen
    assert "which is the end of the run" in ask(run, "--max_steps=4", "--world_size=2")
    assert files_below(tmp_path) == before


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=4", "--checkpoint_freq=2")
    (run.latest / "manifest.json").write_text("{")
    result = mpzero("train", *run.flags(), "--dry_run", "--max_steps=10")
    assert result.returncode == 0, result.stderr
    assert str(run.latest) in result.stderr
    assert "after step 2" in result.stdout


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=2")
    weights = tmp_path / "weights"
    assert mpzero(run.checkpoints, weights, program="zero_to_fp32").returncode == 0
    shutil.rmtree(run.checkpoints)
    assert f"with the weights of {weights}" in ask(run, f"--init_from={weights}")
    config = json.loads((tmp_path / "tiny.json").read_text())
    (tmp_path / "tiny.json").write_text(json.dumps({**config, "intermediate_size": 64}))
    (weights / "config.json").unlink()
    assert "mlp" in refused(run, f"--init_from={weights}")


def test_the_memory_of_gpus_needs_no_gpu(tmp_path: Path) -> None:
    run = TinyRun(tmp_path, device="cuda", bf16=True)
    seen = ask(run, "--world_size=4")
    assert re.search(r"Memory per GPU: (0\.\d\d GiB to )?0\.\d\d GiB, plus", seen)
    assert "Memory per host: 0.00 GiB for 4 ranks" in seen


def test_a_login_node_chooses_the_nodes_of_the_cluster(tmp_path: Path) -> None:
    """The command of bench/RESULTS.md, on a machine that is no host of the run."""
    config = json.loads((REPOSITORY / "configs" / "ds_config_llama3_8b_zero3_offload.json").read_text())
    config["zero_optimization"]["zero_hpz_partition_size"] = "auto"
    file = tmp_path / "ds.json"
    file.write_text(json.dumps(config))
    run = ["--model_type=llama_3_8b", f"--deepspeed_config={file}", "--seq_length=512", "--max_steps=50"]
    ranks = ["--world_size=16", "--nproc_per_node=4"]
    result = mpzero("train", "--dry_run", *run, *ranks, f"--train_data={tmp_path / 'T.h5'}")
    between = "between shard groups: 24.09 GB per group per step; one level of ZeRO: up to 180.68 GB"
    assert between in result.stdout, result.stderr


def test_under_mpirun_one_rank_answers_for_all(tmp_path: Path) -> None:
    result = TinyRun(tmp_path).train("--dry_run")
    assert result.stdout.count("Dry run:") == 1
    assert "8 = 2 x 2 x 2" in result.stdout


def test_ranks_are_the_launchers_in_a_run(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    result = mpzero("train", *run.flags(), "--world_size=2")
    assert result.returncode == 2
    assert "--world_size 2 requires --dry_run" in the_sentence(result.stderr)
