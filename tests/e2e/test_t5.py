"""T5 against transformers: losses, gradient norms and updates of training, exported weights. fp32, within 1e-4."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from dropout_masks import masks_of_mpzero
from trainer import BUILD, REPOSITORY, metrics, train, write_pairs

pytestmark = pytest.mark.e2e

VOCAB_SIZE, SOURCE, TARGET, PAIRS, PAD, EOS = 48, 24, 9, 36, 0, 1
STEPS, BATCH, CLIPPING, SEED = 3, 12, 1.0, 2**33 + 5
ADAMW = {"lr": 3e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
LAYOUTS = {
    "one rank": (1, 0, {}, ()),
    "2 ranks, ZeRO-1, accumulation": (2, 1, {}, ("--train_micro_batch_size_per_gpu=2",)),
    "3 ranks, ZeRO-2": (3, 2, {}, ()),
    "4 ranks, ZeRO-3": (4, 3, {}, ()),
    "2 ranks, ZeRO-3, full recomputation": (2, 3, {}, ("--recompute=full",)),
    "2 ranks, ZeRO-3, selective recomputation, offload": (
        2,
        3,
        {"offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}},
        ("--recompute=selective",),
    ),
}


def pairs(count: int = PAIRS) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Sources and targets of several lengths, with eos; a target follows from its source."""
    rng = np.random.default_rng(0)
    sources = [np.append(rng.integers(2, VOCAB_SIZE, rng.integers(3, SOURCE)), EOS) for _ in range(count)]
    targets = [np.append(source[: rng.integers(1, TARGET)], EOS)[:TARGET] for source in sources]
    return sources, targets


def padded(rows: list[np.ndarray], length: int, padding: int):
    torch = pytest.importorskip("torch")
    return torch.tensor(np.stack([np.pad(row, (0, length - len(row)), constant_values=padding) for row in rows]))


def tiny_model(folder: Path, gated: bool, dropout: float = 0.0):
    """Of transformers, saved in `folder`. Gated as v1.1: with a head of its own, which is not scaled."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        vocab_size=VOCAB_SIZE,
        d_model=24,
        d_kv=10,
        d_ff=40,
        num_heads=3,
        num_layers=2,
        num_decoder_layers=3,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
        dropout_rate=dropout,
        decoder_start_token_id=PAD,
        **({"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False} if gated else {}),
    )
    torch.manual_seed(7)
    model = transformers.T5ForConditionalGeneration(config)
    if gated:
        model.lm_head.weight = torch.nn.Parameter(torch.randn(VOCAB_SIZE, 24) * 0.2)
    model.save_pretrained(folder)
    return transformers.T5ForConditionalGeneration.from_pretrained(folder, attn_implementation="eager").train()


def loss_of(model, rows: slice):
    sources, targets = pairs()
    source = padded(sources[rows], SOURCE, PAD)
    return model(
        input_ids=source, attention_mask=(source != PAD).long(), labels=padded(targets[rows], TARGET, -100)
    ).loss


def expected_steps(model, steps: int = STEPS) -> tuple[list[float], list[float]]:
    """Losses and gradient norms of the steps that transformers and PyTorch take."""
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    losses, norms = [], []
    for step in range(steps):
        with masks_of_mpzero(model.config, SEED, step * BATCH):
            loss = loss_of(model, slice(step * BATCH, (step + 1) * BATCH))
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIPPING).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


class T5Run:
    def __init__(self, folder: Path, weights: Path, stage: int = 0, zero: dict | None = None):
        self.folder, self.weights = folder, weights
        folder.mkdir(exist_ok=True)
        self.data = write_pairs(folder / "pairs.h5", *pairs(), SOURCE, TARGET, PAD, VOCAB_SIZE)
        config = {
            "train_batch_size": BATCH,
            "gradient_clipping": CLIPPING,
            "bf16": {"enabled": False},
            "optimizer": {"type": "AdamW", "params": ADAMW},
            "zero_optimization": {"stage": stage, **(zero or {})},
        }
        (folder / "ds_config.json").write_text(json.dumps(config))

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def train(self, *flags: str, ranks: int = 1, check: bool = True) -> subprocess.CompletedProcess[str]:
        usual = (
            f"--deepspeed_config={self.folder / 'ds_config.json'}",
            f"--init_from={self.weights}",
            f"--train_data={self.data}",
            f"--seq_length={SOURCE + TARGET}",
            f"--source_length={SOURCE}",
            f"--max_steps={STEPS}",
            "--lr_scheduler_type=constant",
            f"--seed={SEED}",
            "--shuffle=false",
            f"--checkpoint_dir={self.checkpoints}",
            f"--metrics_file={self.folder / 'metrics.jsonl'}",
            "--device=cpu",
        )
        chosen = {flag.split("=")[0]: flag for flag in (*usual, *flags)}
        return train(*chosen.values(), ranks=ranks, check=check)

    def steps(self) -> list[dict]:
        return metrics(self.folder / "metrics.jsonl")


V1_0, V1_1, DROPOUT = (False, 0.0), (True, 0.0), (True, 0.1)


@pytest.mark.parametrize(
    ("layout", "model"),
    [
        *(("one rank", model) for model in (V1_0, V1_1, DROPOUT)),
        *zip(list(LAYOUTS)[1:], (DROPOUT, V1_0, V1_1, DROPOUT, DROPOUT), strict=True),
    ],
)
def test_steps_are_those_of_transformers(tmp_path: Path, layout: str, model: tuple[bool, float]) -> None:
    ranks, stage, zero, flags = LAYOUTS[layout]
    gated, dropout = model
    losses, norms = expected_steps(tiny_model(tmp_path / "weights", gated, dropout))
    run = T5Run(tmp_path / "run", tmp_path / "weights", stage, zero)
    run.train(*flags, ranks=ranks)
    assert [line["loss"] for line in run.steps()] == pytest.approx(losses, rel=1e-4)
    assert [line["grad_norm"] for line in run.steps()] == pytest.approx(norms, rel=1e-4)


def exported(run: T5Run):
    """The folder that zero_to_fp32 writes of a run's last checkpoint, and the model loaded from it as it says."""
    transformers = pytest.importorskip("transformers")
    folder = run.folder / "exported"
    program = str(BUILD / "bin" / "zero_to_fp32")
    command = [program, str(run.checkpoints), str(folder)]
    said = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True).stdout
    kind = getattr(transformers, re.search(r"transformers\.(\w+)\.from_pretrained", said)[1])
    return folder, kind.from_pretrained(folder, attn_implementation="eager")


@pytest.mark.parametrize("gated", [False, True], ids=["v1.0", "v1.1"])
def test_exported_weights_are_those_of_transformers(tmp_path: Path, gated: bool) -> None:
    """After three steps of each; the export starts a run, and generates what transformers generates."""
    torch = pytest.importorskip("torch")
    model = tiny_model(tmp_path / "weights", gated)
    expected_steps(model)
    run = T5Run(tmp_path / "run", tmp_path / "weights", stage=3)
    run.train(ranks=2)
    folder, loaded = exported(run)
    for (name, mine), (same, theirs) in zip(loaded.named_parameters(), model.named_parameters(), strict=True):
        assert name == same
        assert torch.allclose(mine, theirs, rtol=1e-3, atol=1e-5), name
    with torch.no_grad():
        expected = loss_of(loaded.eval(), slice(0, BATCH)).item()
    again = T5Run(tmp_path / "again", folder)
    again.train("--max_steps=1")
    assert again.steps()[0]["loss"] == pytest.approx(expected, rel=1e-5)
    for source in pairs()[0][:4]:
        with torch.no_grad():
            output = loaded.generate(torch.tensor(source)[None], max_new_tokens=12, do_sample=False, use_cache=False)[
                0, 1:
            ]
        expected_ids = [str(i) for i in output.tolist() if i != EOS]
        flags = [f"--prompt_tokens={','.join(map(str, source))}", "--max_tokens=12", "--temperature=0", "--device=cpu"]
        command = [str(BUILD / "bin" / "mpzero"), "generate", str(folder), *flags]
        done = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
        assert done.stdout.split() == expected_ids


def test_a_resumed_run_takes_the_same_steps(tmp_path: Path) -> None:
    """On another number of ranks and another stage."""
    tiny_model(tmp_path / "weights", gated=False, dropout=0.1)
    whole = T5Run(tmp_path / "whole", tmp_path / "weights", stage=2)
    whole.train(ranks=2)
    halves = T5Run(tmp_path / "halves", tmp_path / "weights", stage=3)
    halves.train("--max_steps=2", ranks=3)
    halves.train(ranks=2)
    for key in ("loss", "grad_norm"):
        assert [line[key] for line in halves.steps()] == pytest.approx([line[key] for line in whole.steps()], rel=1e-5)


@pytest.mark.parametrize(
    ("recipe", "flags", "rates"),
    [
        ("workshop", [], [1e-5] * 8),
        ("fsdp", ["--lr_scheduler_type=step_lr", "--lr_gamma=0.7"], [2e-3] * 4 + [1.4e-3] * 4),
    ],
)
def test_recipes(tmp_path: Path, recipe: str, flags: list[str], rates: list[float]) -> None:
    """docs/t5.md: two epochs of the 36 pairs in whole steps of 2 ranks with 4 each; StepLR's rate falls after one."""
    tiny_model(tmp_path / "weights", gated=False, dropout=0.1)
    run = T5Run(tmp_path / "run", tmp_path / "weights")
    config = REPOSITORY / "configs" / f"ds_config_t5_{recipe}.json"
    run.train(f"--deepspeed_config={config}", "--num_train_epochs=2", "--max_steps=8", *flags, ranks=2)
    assert [line["lr"] for line in run.steps()] == pytest.approx(rates)


@pytest.mark.parametrize(("gated", "stage"), [(False, 2), (True, 3)], ids=["v1.0", "v1.1"])
def test_deepspeed_reads_what_is_saved(tmp_path: Path, gated: bool, stage: int) -> None:
    """Parameters and second names are those of transformers' modules; the run resumes from the files."""
    torch = pytest.importorskip("torch")
    model = tiny_model(tmp_path / "weights", gated)
    run = T5Run(tmp_path / "run", tmp_path / "weights", stage)
    run.train("--max_steps=2", "--checkpoint_format=deepspeed", ranks=2)
    tag = run.checkpoints / (run.checkpoints / "latest").read_text().strip()
    states = torch.load(min(tag.glob("*_model_states.pt")), weights_only=False)
    assert [name for group in states["param_shapes"] for name in group] == [
        name for name, _ in model.named_parameters()
    ]
    assert set(states["module"]) == set(model.state_dict())
    names = dict(model.named_parameters())
    assert states["shared_params"] == {name: "shared.weight" for name in model.state_dict() if name not in names}
    if stage == 2:
        model.load_state_dict(states["module"])
        losses = [line["loss"] for line in run.steps()]
        with torch.no_grad():
            third = loss_of(model, slice(2 * BATCH, STEPS * BATCH)).item()
    run.train(ranks=1)
    assert len(run.steps()) == STEPS
    if stage == 2:
        assert [line["loss"] for line in run.steps()] == pytest.approx([*losses, third], rel=1e-5)


def test_validation_is_the_mean_over_targets(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = tiny_model(tmp_path / "weights", gated=True, dropout=0.1)
    run = T5Run(tmp_path / "run", tmp_path / "weights")
    expected_steps(model, steps=1)
    with torch.no_grad():
        expected = loss_of(model.eval(), slice(0, 5)).item()
    flags = (f"--validation_data={run.data}", "--validation_freq=1", "--validation_sequences=5", "--max_steps=1")
    run.train(*flags, "--train_micro_batch_size_per_gpu=2", ranks=2)
    assert run.steps()[0]["validation_loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--source_length=20"], "--source_length 24"),
        (["--source_length=0"], "--source_length"),
        (["--dropout_rate=1"], "--dropout_rate"),
        (["--document_mask=true"], "--document_mask"),
        (["--recompute=tiled"], "--recompute tiled"),
        (["--recompute=host"], "--recompute host"),
        (["--num_hidden_layers=3"], "--dropout_rate"),
        (["--freeze_parameters=block.0.layer.0.layer_norm"], "encoder.block.0"),
    ],
)
def test_refusals(tmp_path: Path, flags: list[str], named: str) -> None:
    tiny_model(tmp_path / "weights", gated=False)
    done = T5Run(tmp_path / "run", tmp_path / "weights").train(*flags, check=False)
    assert done.returncode != 0
    assert named in done.stderr


def test_the_remedy_for_a_refused_key_runs(tmp_path: Path) -> None:
    tiny_model(tmp_path / "weights", gated=False)
    run = T5Run(tmp_path / "run", tmp_path / "weights")
    file = run.folder / "ds_config.json"
    key = {"activation_checkpointing": {"cpu_checkpointing": True}}
    file.write_text(json.dumps(json.loads(file.read_text()) | key))
    refused = run.train(check=False)
    remedy = re.search(r"cpu_checkpointing true .* use --(\w+) (\w+) --(\w+) (\w+)$", refused.stderr, re.M)
    assert remedy, refused.stderr
    flag, value, yields, boolean = remedy.groups()
    run.train(f"--{flag}={value}", f"--{yields}={boolean}")
