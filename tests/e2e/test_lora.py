"""Adapters: losses, gradients and weights are those of PEFT, on any ranks; PEFT loads what is exported, and back."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tiny_run import MODEL, TinyRun
from torch_training import tokens_of, train_in_torch
from trainer import BUILD

pytestmark = pytest.mark.e2e

SEQ_LENGTH, BATCH, STEPS = 16, 6, 20
SHAPE = {key: value for key, value in MODEL.items() if key not in ("model_type", "architectures")}
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# Classes of transformers, and keys of their configurations.
MODELS = {
    "qwen3": ("Qwen3", {}),
    "llama": ("Llama", {"tie_word_embeddings": False}),
    "phi3": ("Phi3", {"tie_word_embeddings": False, "eos_token_id": None, "pad_token_id": None}),
}
# Settings of adapters, as PEFT names them.
SETTINGS = {
    "qwen3": {"r": 4, "lora_alpha": 8, "target_modules": TARGETS},
    "llama": {"r": 3, "lora_alpha": 6, "target_modules": ["q_proj", "v_proj", "down_proj"], "use_rslora": True},
    "phi3": {"r": 2, "lora_alpha": 6, "target_modules": ["qkv_proj", "gate_up_proj", "down_proj"]},
}


def base_model(kind: str):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    name, own = MODELS[kind]
    config = getattr(transformers, f"{name}Config")(**SHAPE | own)
    model = getattr(transformers, f"{name}ForCausalLM")(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return model


class Reference:
    """PEFT's run in fp32: base/ and adapters/, losses and gradient norms by step, the result."""

    def __init__(self, folder: Path, kind: str) -> None:
        torch = pytest.importorskip("torch")
        peft = pytest.importorskip("peft")
        self.folder, self.kind = folder, kind
        base_model(kind).save_pretrained(folder / "base")
        model = base_model(kind)
        model.name_or_path = str(folder / "base")
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **SETTINGS[kind]))
        adapters = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        with torch.no_grad():
            # B, too, so that both matrices have gradients from the first step on.
            for name, weight in adapters.items():
                if "lora_B" in name:
                    weight.add_(torch.randn_like(weight) * 0.05)
        model.peft_config["default"].base_model_name_or_path = str(folder / "base")
        model.save_pretrained(folder / "adapters")
        self.losses, self.norms = [], []
        data, shape = TinyRun(folder / "data").data, {"steps": STEPS, "batch": BATCH, "seq_length": SEQ_LENGTH}
        for loss, norm in train_in_torch(model, data, **shape, lr=0.002, clip=1e9):
            self.losses.append(loss)
            self.norms.append(norm)
        self.tokens = tokens_of(data, SEQ_LENGTH).view(1, SEQ_LENGTH)
        self.model = model.eval()
        with torch.no_grad():
            self.logits = self.model(self.tokens).logits


@pytest.fixture(scope="module", params=list(MODELS))
def reference(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(tmp_path_factory.mktemp(request.param), request.param)


def run_in(folder: Path, base: Path, ranks: int, stage: int, **config: object) -> TinyRun:
    run = TinyRun(folder, ranks=ranks, stage=stage, micro_batch=1)
    (folder / "tiny.json").write_text((base / "config.json").read_text())
    run.config = {
        "gradient_accumulation_steps": BATCH // ranks,
        "gradient_clipping": 0,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.002, "betas": [0.9, 0.95], "weight_decay": 0.1}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0.002, "warmup_max_lr": 0.002}},
        **config,
    }
    return run


def convert(run: TinyRun, out: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    words = [str(BUILD / "bin" / "zero_to_fp32"), str(run.checkpoints), str(out), *flags]
    return subprocess.run(words, check=True, capture_output=True, text=True)


# Ranks and stage, before and after a resume.
LAYOUTS = {"qwen3": ((1, 0), (2, 3)), "llama": ((2, 2), (3, 1)), "phi3": ((3, 3), (1, 2))}


def test_trains_as_peft_does(reference: Reference, tmp_path: Path) -> None:
    before, after = LAYOUTS[reference.kind]
    torch = pytest.importorskip("torch")
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    for steps, (ranks, stage) in ((STEPS // 2, before), (STEPS, after)):
        run = run_in(tmp_path, reference.folder / "base", ranks, stage)
        run.train(f"--max_steps={steps}", "--shuffle=false", f"--init_from={reference.folder / 'adapters'}")
    steps = run.metrics()
    assert [step["loss"] for step in steps] == pytest.approx(reference.losses, rel=1e-5)
    assert [step["grad_norm"] for step in steps] == pytest.approx(reference.norms, rel=1e-5)

    # PEFT loads the adapters, and transformers the merged weights.
    peft_out, merged_out = tmp_path / "peft", tmp_path / "merged"
    convert(run, peft_out, "--format=peft")
    settings = [
        json.loads((out / "adapter_config.json").read_text()) for out in (peft_out, reference.folder / "adapters")
    ]
    for key in ("peft_type", "r", "lora_alpha", "use_rslora", "bias", "base_model_name_or_path"):
        assert settings[0][key] == settings[1][key], key
    assert set(settings[0]["target_modules"]) == set(settings[1]["target_modules"])
    base = transformers.AutoModelForCausalLM.from_pretrained(reference.folder / "base")
    loaded = peft.PeftModel.from_pretrained(base, peft_out).eval()
    convert(run, merged_out, "--format=merged")
    assert "mpzero" not in (merged_out / "config.json").read_text()
    merged = transformers.AutoModelForCausalLM.from_pretrained(merged_out).eval()
    theirs = dict(reference.model.named_parameters())
    for name, weight in loaded.named_parameters():
        assert torch.allclose(weight, theirs[name], atol=1e-5, rtol=1e-5), name
    with torch.no_grad():
        for model in (loaded, merged):
            logits = model(reference.tokens).logits
            assert torch.allclose(logits, reference.logits, atol=1e-5, rtol=1e-5)
        # The two exports are one model.
        assert torch.allclose(merged(reference.tokens).logits, loaded(reference.tokens).logits, atol=1e-5, rtol=1e-5)


def test_exported_adapters_go_with_their_base_alone(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the revision on the hub that they were trained on, and no other weights of the same shapes."""
    cache = tmp_path / "hub" / "models--org--m"
    monkeypatch.setenv("HF_HUB_CACHE", str(cache.parent))
    other = tmp_path / "other"
    model = base_model("qwen3")
    for weight in model.parameters():
        weight.data.mul_(1.5)
    model.save_pretrained(other)
    for commit, folder in (("aaaa111", base), ("bbbb222", other)):
        shutil.copytree(folder, cache / "snapshots" / commit)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("aaaa111")
    run = run_in(tmp_path / "first", base, 1, 0)
    run.train("--max_steps=2", "--init_from=org/m", "--lora_r=4")
    convert(run, tmp_path / "export", "--format=peft")
    (cache / "refs" / "main").write_text("bbbb222")
    again = run_in(tmp_path / "again", base, 1, 0)
    again.train("--max_steps=1", f"--init_from={tmp_path / 'export'}")
    right = run_in(tmp_path / "right", base, 1, 0)
    right.train("--max_steps=1", f"--init_from={tmp_path / 'export'}", f"--base_model={base}")
    assert again.metrics()[0]["loss"] == right.metrics()[0]["loss"]
    wrong = run_in(tmp_path / "wrong", base, 1, 0)
    result = wrong.train("--max_steps=1", f"--init_from={tmp_path / 'export'}", f"--base_model={other}", check=False)
    assert result.returncode == 2
    assert "xxh3" in result.stderr
    shutil.rmtree(cache / "snapshots" / "aaaa111")
    result = wrong.train("--max_steps=1", f"--init_from={tmp_path / 'export'}", check=False)
    assert result.returncode == 2
    assert "aaaa111" in result.stderr


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({}, "lora.r"),
        ({"load_in_4bit": False}, "lora.r"),
        ({"r": 4, "targets": []}, "lora.targets"),
        ({"r": 4, "lora_alpha": 8}, "lora.alpha"),
        ({"r": 4, "target_modules": ["q_proj"]}, "lora.targets"),
        ({"r": 4, "use_rslora": True}, "lora.rslora"),
        ({"r": 4, "bias": "all"}, "lora.bias"),
    ],
)
def test_settings_of_the_file_that_mean_something_else_are_refused(tmp_path: Path, section: dict, named: str) -> None:
    run = TinyRun(tmp_path, ranks=1, config={"lora": section})
    result = run.train("--max_steps=1", check=False)
    assert result.returncode == 2
    assert named in result.stderr


def test_a_resume_with_other_adapters_names_the_flags(tmp_path: Path) -> None:
    run = TinyRun(tmp_path, ranks=1)
    run.train("--max_steps=1", "--lora_r=4", "--lora_alpha=8", "--lora_dropout=0.1")
    for flags, named in (
        ("", "--lora_dropout 0.1"),
        ("--lora_r=4", "--lora_alpha 8"),
        ("--lora_r=2 --lora_alpha=8", "--lora_r 4"),
        ("--lora_r=4 --lora_alpha=8 --use_rslora", "--lora_alpha 8"),
    ):
        result = run.train("--max_steps=2", *flags.split(), check=False)
        assert result.returncode == 2
        assert named in " ".join(result.stderr.split()), flags


def test_dropout_is_the_same_on_any_ranks_when_recomputed_and_after_a_resume(base: Path, tmp_path: Path) -> None:
    losses = []
    for number, (ranks, stage, stops, *flags) in enumerate(
        (
            (1, 0, (STEPS,), "--lora_dropout=0.3"),
            (2, 3, (2, STEPS), "--lora_dropout=0.3", "--recompute=full"),
            (1, 0, (STEPS,), "--lora_dropout=0"),
        )
    ):
        run = run_in(tmp_path / str(number), base, ranks, stage)
        for stop in stops:
            run.train(f"--max_steps={stop}", "--shuffle=false", f"--init_from={base}", "--lora_r=4", *flags)
        losses.append([step["loss"] for step in run.metrics()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] != pytest.approx(losses[0], rel=1e-5)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora") / "base"
    base_model("qwen3").save_pretrained(folder)
    return folder


def losses_of(run: TinyRun, *flags: object, steps: int = 4) -> list[float]:
    run.train(f"--max_steps={steps}", *flags)
    return [step["loss"] for step in run.metrics()]


def test_new_adapters_are_the_same_on_any_ranks_stage_and_recomputation(base: Path, tmp_path: Path) -> None:
    """A begins from the seed alone, and B at zero: the first loss is that of the base."""
    flags = [f"--init_from={base}", "--lora_r=4", "--lora_alpha=8"]
    first = losses_of(run_in(tmp_path / "first", base, 1, 0), *flags)
    of_base = losses_of(run_in(tmp_path / "base", base, 1, 0), f"--init_from={base}", steps=1)
    assert first[0] == of_base[0]
    offload = {"stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}
    for number, (ranks, stage, config, more) in enumerate(
        [
            (2, 1, {}, ["--recompute=full"]),
            (3, 2, {}, ["--recompute=selective"]),
            (2, 3, {"zero_optimization": offload}, []),
            (6, 3, {"lora": {"r": 4, "alpha": 8, "targets": TARGETS}}, []),
        ]
    ):
        run = run_in(tmp_path / str(number), base, ranks, stage, **config)
        assert losses_of(run, *flags, *more) == pytest.approx(first, rel=1e-5), (ranks, stage)


def test_a_checkpoint_refers_to_its_base(base: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(base, moved)
    run = run_in(tmp_path / "run", base, 2, 2)
    whole = losses_of(run_in(tmp_path / "whole", base, 2, 2), f"--init_from={base}", "--lora_r=4")
    flags = ["--lora_r=4", f"--init_from={moved}"]
    losses_of(run, *flags, steps=2)
    size = sum(path.stat().st_size for path in run.latest.iterdir())
    assert size < (base / "model.safetensors").stat().st_size

    # A changed base is refused, with its folder and both hashes.
    weights = moved / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-2] ^= 1
    weights.write_bytes(content)
    hashes = json.loads((run.latest / "manifest.json").read_text())["content"]["run"]["init_from_xxh3_64"]
    refused = run.train("--max_steps=4", *flags, check=False)
    assert refused.returncode == 2
    assert str(moved) in refused.stderr and hashes in refused.stderr
    words = [str(BUILD / "bin" / "zero_to_fp32"), str(run.checkpoints), str(tmp_path / "out"), "--format=merged"]
    refused = subprocess.run(words, check=False, capture_output=True, text=True)
    assert refused.returncode == 2 and str(moved) in refused.stderr and hashes in refused.stderr
    subprocess.run([*words, f"--base_model={base}"], check=True, capture_output=True)

    # The same weights elsewhere are the same base.
    shutil.rmtree(moved)
    run.ranks, run.stage, run.config["gradient_accumulation_steps"] = 3, 3, 2
    assert losses_of(run, "--lora_r=4", f"--init_from={base}") == pytest.approx(whole, rel=1e-5)
    # New checkpoints, and their exports, refer to the base at its new path.
    recorded = json.loads((run.latest / "manifest.json").read_text())["content"]["run"]
    assert (recorded["init_from"], recorded["init_from_xxh3_64"]) == (str(base), hashes)
    convert(run, tmp_path / "adapters")
    assert json.loads((tmp_path / "adapters/adapter_config.json").read_text())["base_model_name_or_path"] == str(base)


def test_other_adapters_are_refused(base: Path, tmp_path: Path) -> None:
    flags = [f"--init_from={base}", "--max_steps=1"]
    run = run_in(tmp_path / "run", base, 1, 2)
    run.train(*flags, "--lora_r=4")
    out = tmp_path / "adapters"
    convert(run, out)

    def refusal(folder: str, *more: str) -> str:
        result = run_in(tmp_path / folder, base, 1, 2).train(*more, "--max_steps=1", check=False)
        assert result.returncode == 2, result.stderr
        return result.stderr

    error = refusal("1", f"--init_from={out}", "--lora_r=8")
    assert "r 4" in error and "r 8" in error
    settings = json.loads((out / "adapter_config.json").read_text())
    for key, value, named in [
        ("use_dora", True, "use_dora"),
        ("r", 8, "[8, "),
        ("rank_pattern", {"q_proj": 2}, "rank_pattern"),
        ("init_lora_weights", "pissa", "init_lora_weights"),
    ]:
        (out / "adapter_config.json").write_text(json.dumps({**settings, key: value}))
        assert named in refusal(f"of_{key}", f"--init_from={out}")
    (out / "adapter_config.json").write_text(json.dumps({**settings, "base_model_name_or_path": None}))
    assert "--base_model" in refusal("unnamed", f"--init_from={out}")
    run_in(tmp_path / "named", base, 1, 2).train(f"--init_from={out}", f"--base_model={base}", "--max_steps=1")
    # As PEFT saved them until 0.6.
    (out / "adapter_model.safetensors").rename(out / "adapter_model.bin")
    assert "adapter_model.safetensors" in refusal("pickled", f"--init_from={out}", f"--base_model={base}")


def test_flags_without_effect_and_an_export_over_the_base_are_refused(base: Path, tmp_path: Path) -> None:
    random, run = run_in(tmp_path / "random", base, 1, 2), run_in(tmp_path / "run", base, 1, 2)
    random.train("--max_steps=1", "--lora_r=4")
    run.train("--max_steps=1", "--lora_r=4", f"--init_from={base}")
    of_base, prompt = f"--base_model={base}", ["--prompt_tokens=3", "--max_tokens=1"]
    for words, named in [
        (["zero_to_fp32", random.checkpoints, tmp_path / "out", "--format=merged", of_base], "--base_model"),
        (["zero_to_fp32", run.checkpoints, tmp_path / "out", "--max_shard_size=5GB"], "--max_shard_size"),
        (["zero_to_fp32", run.checkpoints, base], str(base)),
        (["mpzero", "generate", random.checkpoints, of_base, *prompt], "--base_model"),
        (["mpzero", "generate", base, of_base, *prompt], "--base_model"),
    ]:
        result = subprocess.run([BUILD / "bin" / words[0], *words[1:]], check=False, capture_output=True, text=True)
        assert result.returncode == 2 and named in result.stderr, (words, result.stderr)
    assert not (tmp_path / "out").exists() and (base / "model.safetensors").exists()


def test_adapters_of_a_random_base_are_exported_with_a_warning(base: Path, tmp_path: Path) -> None:
    run = run_in(tmp_path, base, 1, 0)
    run.train("--lora_r=4", "--max_steps=1")
    result = convert(run, tmp_path / "peft")
    assert str(run.latest) in result.stderr and "--format merged" in result.stderr
    assert "from_pretrained" not in result.stdout and (tmp_path / "peft" / "adapter_config.json").exists()


def test_generate_reads_adapters(base: Path, tmp_path: Path) -> None:
    """The likeliest tokens are those that transformers generates with the merged weights."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    run = run_in(tmp_path, base, 2, 2)
    run.train(f"--init_from={base}", "--lora_r=4", "--lora_alpha=40", "--max_steps=6")
    convert(run, tmp_path / "merged", "--format=merged")
    convert(run, tmp_path / "peft")
    prompt = [3, 6, 9, 12]
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
    expected = model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=None)
    for folder in (run.checkpoints, tmp_path / "peft"):
        words = [str(BUILD / "bin" / "mpzero"), "generate", str(folder), "--prompt_tokens=3,6,9,12"]
        words += ["--max_tokens=12", "--temperature=0", "--device=cpu"]
        result = subprocess.run(words, check=True, capture_output=True, text=True)
        assert [int(line) for line in result.stdout.split()] == expected[0, len(prompt) :].tolist()
