"""A base in 8 or 4 bits: losses are those of a base with the decoded weights, by the formulas of arXiv 2305.14314."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from statistics import NormalDist

import h5py
import numpy as np
import pytest
from tiny_run import MODEL, TinyRun
from trainer import BUILD

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.e2e

# Layers of 43,008 coded values: two groups and a part of a third one.
SHAPE = {key: value for key, value in MODEL.items() if key not in ("model_type", "architectures")}
SHAPE |= {"hidden_size": 64, "intermediate_size": 160, "head_dim": 16}
GROUP = 16384
LORA = ["--lora_r=4", "--lora_alpha=8"]


# bitsandbytes' code book, whose quantiles are rounded on the way.
BOOK = """-1.0 -0.6961928009986877 -0.5250730514526367 -0.39491748809814453 -0.28444138169288635 -0.18477343022823334
-0.09105003625154495 0.0 0.07958029955625534 0.16093020141124725 0.24611230194568634 0.33791524171829224
0.44070982933044434 0.5626170039176941 0.7229568362236023 1.0"""
LEVELS = np.array(BOOK.split(), "float32")


def levels() -> np.ndarray:
    """Appendix E: 8 quantiles of the positive and 7 of the negative half, and 0, divided by the largest."""
    offset = 0.5 * ((1 - 1 / 32) + (1 - 1 / 30))
    quantile = NormalDist().inv_cdf
    upper = [quantile(p) for p in np.linspace(offset, 0.5, 9)[:-1]]
    lower = [-quantile(p) for p in np.linspace(offset, 0.5, 8)[:-1]]
    return np.array(sorted([*upper, 0.0, *lower])) / max(upper)


def nf4(values: np.ndarray) -> np.ndarray:
    blocks = np.pad(values, (0, -len(values) % GROUP)).reshape(-1, 64)
    scales = np.abs(blocks).max(1)
    scaled = blocks / np.maximum(scales, 1e-30)[:, None]
    codes = (scaled[:, :, None] > (LEVELS[1:] + LEVELS[:-1]) / 2).sum(2)
    # The second quantization: 256 scales, from the least to the largest in 255 steps.
    groups = scales.reshape(-1, 256)
    least = groups.min(1, keepdims=True)
    steps = np.maximum(groups.max(1, keepdims=True) - least, np.float32(1e-30)) / np.float32(255)
    decoded = (np.rint((groups - least) / steps).astype("float64") * steps + least).astype("float32").reshape(-1, 1)
    return (LEVELS[codes] * decoded).reshape(-1)[: len(values)]


def int8(values: np.ndarray) -> np.ndarray:
    blocks = np.pad(values, (0, -len(values) % 256)).reshape(-1, 256)
    scales = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
    return (np.rint(blocks / scales) * scales).reshape(-1)[: len(values)]


KINDS = {"load_in_4bit": nf4, "load_in_8bit": int8}


def test_rows_of_small_weights_keep_their_precision() -> None:
    """As rows of real weights differ: the second quantization adds a tenth of NF4's own error, not several times it."""
    values = np.random.default_rng(0).standard_normal((1024, 128)).astype("float32")
    values[:50] *= 0.05
    decoded = nf4(values.reshape(-1)).reshape(values.shape)
    errors = np.linalg.norm(decoded - values, axis=1) / np.linalg.norm(values, axis=1)
    assert errors[:50].max() < 1.2 * errors[50:].max()


def test_the_code_book_is_the_papers() -> None:
    assert pytest.approx(levels(), abs=3e-7) == LEVELS


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SHAPE))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
        # Scales that differ within a group.
        model.model.layers[0].mlp.up_proj.weight[3] *= 8
    folder = tmp_path_factory.mktemp("qlora") / "base"
    model.save_pretrained(folder)
    return folder


def run_in(folder: Path, base: Path, ranks: int = 1, stage: int = 2, **config: object) -> TinyRun:
    run = TinyRun(folder, ranks=ranks, stage=stage, micro_batch=1)
    (folder / "tiny.json").write_text((base / "config.json").read_text())
    run.config = {"gradient_accumulation_steps": 4 // ranks, **config}
    return run


def losses_of(run: TinyRun, *flags: object, steps: int = 4) -> list[float]:
    run.train(f"--max_steps={steps}", *flags)
    return [step["loss"] for step in run.metrics()]


def decoded_base(run: TinyRun, base: Path, folder: Path, decode) -> None:
    """The base, with the matrices of each unit that the checkpoint has as codes decoded."""
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    weights = dict(model.named_parameters())
    with h5py.File(run.latest / "mp_rank_00_model_states.h5") as file:
        units = [unit for unit in json.loads(file.attrs["param_shapes"]) if unit["unit"].endswith(".coded")]
    assert len(units) == SHAPE["num_hidden_layers"]
    assert all(unit["in_base"] for unit in units)
    for unit in units:
        names = [parameter["name"] for parameter in unit["parameters"]]
        assert len(names) == 7 and all(name.endswith("_proj.weight") for name in names)
        values = decode(np.concatenate([weights[name].detach().numpy().reshape(-1) for name in names]))
        begin = 0
        for name in names:
            with torch.no_grad():
                count = math.prod(weights[name].shape)
                changed = torch.from_numpy(values[begin : begin + count].copy()).view(weights[name].shape)
                assert not torch.equal(weights[name], changed)
                weights[name].copy_(changed)
                begin += count
    model.save_pretrained(folder)


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def decoded(base: Path, kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(kind)
    run = run_in(folder / "run", base)
    run.train("--max_steps=1", *LORA, f"--{kind}", f"--init_from={base}")
    decoded_base(run, base, folder / "base", KINDS[kind])
    return folder / "base"


def test_losses_are_those_of_the_decoded_base(base: Path, decoded: Path, kind: str, tmp_path: Path) -> None:
    offload = {"stage": 3, "offload_param": {"device": "cpu"}}
    for number, (ranks, stage, bf16, config, more) in enumerate(
        [
            (2, 2, True, {}, ["--recompute=full"]),
            (2, 3, True, {}, []),
            (2, 3, False, {"zero_optimization": offload}, ["--recompute=full"]),
            (4, 3, True, {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2}}, []),
            (2, 0, False, {"lora": {"r": 4, "alpha": 8, kind: True}}, []),
        ]
    ):
        losses = []
        for name, weights, flags in (("coded", base, [f"--{kind}=true"]), ("plain", decoded, [])):
            if "lora" in config and name == "plain":
                config = {}
            run = run_in(tmp_path / f"{number}{name}", base, ranks, stage, **config)
            run.bf16 = bf16
            losses.append(losses_of(run, *LORA, *flags, *more, f"--init_from={weights}"))
        assert losses[0] == pytest.approx(losses[1], rel=1e-6), (ranks, stage, config)
        assert losses[0][0] != losses[0][-1]


def test_resumes_with_the_same_losses_on_other_ranks(base: Path, tmp_path: Path) -> None:
    flags = [*LORA, "--load_in_4bit", f"--init_from={base}"]
    whole = losses_of(run_in(tmp_path / "whole", base), *flags)
    run = run_in(tmp_path / "run", base, 2, 2)
    losses_of(run, *flags, steps=2)
    size = sum(path.stat().st_size for path in run.latest.iterdir())
    assert size < (base / "model.safetensors").stat().st_size
    run.stage = 3
    assert losses_of(run, *flags, steps=3) == pytest.approx(whole[:3], rel=1e-5)
    # The base that the checkpoint refers to.
    run = run_in(tmp_path / "run", base, 1, 2)
    assert losses_of(run, *LORA, "--load_in_4bit", steps=4) == pytest.approx(whole, rel=1e-5)
    with h5py.File(run.latest / "mp_rank_00_model_states.h5") as file:
        for unit in json.loads(file.attrs["param_shapes"]):
            assert unit.get("in_base", False) == (not unit["parameters"][0].get("trainable", True)), unit["unit"]
        assert json.loads(file.attrs["settings"])["base_codes"] == "nf4"

    words = [str(BUILD / "bin" / "zero_to_fp32"), str(run.checkpoints), str(tmp_path / "out")]
    subprocess.run(words, check=True, capture_output=True)
    assert (tmp_path / "out" / "adapter_model.safetensors").exists()
    words = [*words[:2], str(tmp_path / "merged"), "--format=merged"]
    assert str(base) in subprocess.run(words, check=True, capture_output=True, text=True).stdout
    words = [str(BUILD / "bin" / "mpzero"), "generate", str(run.checkpoints), "--prompt_tokens=3,6,9"]
    text = subprocess.run([*words, "--max_tokens=4", "--device=cpu"], check=True, capture_output=True, text=True)
    assert len(text.stdout.split()) == 4

    # Another base is no error, and is reported.
    changed = run.train(*LORA, f"--init_from={base}", "--max_steps=5")
    assert "base_codes nf4 -> none" in changed.stdout


def test_refuses_what_codes_do_not_support(base: Path, tmp_path: Path) -> None:
    def refusal(*flags: str, **config: object) -> str:
        result = run_in(tmp_path, base, **config).train("--max_steps=1", *flags, check=False)
        assert result.returncode == 2, result.stderr
        return result.stderr

    weights = f"--init_from={base}"
    assert "--lora_r" in refusal("--load_in_4bit", weights)
    assert "--load_in_8bit" in refusal(*LORA, "--load_in_4bit", "--load_in_8bit", weights)
    assert "--init_from" in refusal(*LORA, "--load_in_4bit")
    assert "--bnb_4bit_quant_type" in refusal(*LORA, "--load_in_4bit", weights, "--bnb_4bit_quant_type=fp4")
    for key, value in {"bnb_4bit_quant_type": "fp4", "bnb_4bit_use_double_quant": False}.items():
        assert f"lora.{key}" in refusal(weights, lora={"r": 4, "load_in_4bit": True, key: value})
    # The base of a run that began with random weights.
    run = run_in(tmp_path / "random", base)
    run.train(*LORA, "--max_steps=1")
    result = run.train(*LORA, "--load_in_4bit", "--max_steps=2", check=False)
    assert result.returncode == 2 and "--load_in_4bit" in result.stderr
    result = run_in(tmp_path, base).train(f"--init_from={run.checkpoints}", "--max_steps=1", check=False)
    assert result.returncode == 2 and "--format merged" in result.stderr
    zero = {"stage": 3, "zero_quantized_weights": True}
    assert "zero_quantized_weights" in refusal(*LORA, "--load_in_4bit", weights, zero_optimization=zero)
