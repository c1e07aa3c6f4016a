"""mpzero generate and app/generate.py: texts of models that were trained, exported, or made by others."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from golden_run import SAVED_ZERO2, saved_by_deepspeed
from tiny_run import MODEL, TinyRun
from trainer import BUILD, ENVIRONMENT, GOLDEN, REPOSITORY

pytestmark = pytest.mark.e2e

TEXT = "The prince looked at Natasha. “Well,” said the prince, “how do you do?” Natasha looked at the prince.\n"


def generate(*arguments: object, check: bool = True, program: str = "mpzero") -> subprocess.CompletedProcess[str]:
    words = [str(BUILD / "bin/mpzero"), "generate"]
    if program != "mpzero":
        words = [sys.executable, str(REPOSITORY / "app" / program)]
    words += [*map(str, arguments), "--device=cpu"]
    environment = {**os.environ, **ENVIRONMENT, "BUILD_DIR": str(BUILD)}
    result = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment, check=False)
    if check:
        assert result.returncode == 0, result.stderr
    return result


def on_a_terminal(words: list[object]) -> str:
    """What a program writes to a terminal."""
    terminal, end = pty.openpty()
    environment = {**os.environ, **ENVIRONMENT, "BUILD_DIR": str(BUILD)}
    shown = b""
    with subprocess.Popen([*map(str, words)], stdout=end, stderr=end, env=environment):
        os.close(end)
        with contextlib.suppress(OSError):  # EIO: nobody has the terminal open
            while block := os.read(terminal, 65536):
                shown += block
    os.close(terminal)
    return shown.decode().replace("\r\n", "\n")


def ids(*arguments: object) -> list[int]:
    return [int(line) for line in generate(*arguments).stdout.splitlines()]


def prepare(folder: Path, tokenizer: str) -> Path:
    text = folder / "text.txt"
    text.write_text(TEXT * 60)
    output = folder / "prepared.h5"
    command = [sys.executable, REPOSITORY / "app/prepare_data.py", text, output, "--tokenizer", tokenizer]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return output


def trained(folder: Path, tokenizer: str, *flags: object, vocab_size: int = 320) -> TinyRun:
    run = TinyRun(folder, ranks=1)
    (folder / "tiny.json").write_text(json.dumps({**MODEL, "vocab_size": vocab_size}))
    run.data = prepare(folder, tokenizer)
    run.train("--max_steps=3", "--seed=11", *flags)
    return run


def make_tokenizer(folder: Path, added: int = 0) -> Path:
    """A byte-level BPE tokenizer of 280 words and an end of text, which lies after `added` more."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet))
    tokenizer.add_special_tokens([f"<|{i}|>" for i in range(added)] + ["<|endoftext|>"])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    return folder


@pytest.mark.parametrize(
    "family", ["Qwen3", "Llama", "Qwen2", "Mistral", "Granite", "Olmo2", "Phi3", "SeedOss", "SmolLM3"]
)
def test_greedy_tokens_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    sizes = {key: MODEL[key] for key in MODEL if key not in ("model_type", "architectures", "head_dim")}
    sizes |= dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    if family == "SeedOss":
        sizes |= {"head_dim": 16, "attention_dropout": 0.0, "residual_dropout": 0.0}
    config = getattr(transformers, f"{family}Config")(**sizes)
    torch.manual_seed(3)
    model = getattr(transformers, f"{family}ForCausalLM")(config).float()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    model.save_pretrained(tmp_path)
    prompt = [5, 0, 63, 17, 17, 2]
    flags = {"do_sample": False, "max_new_tokens": 40}
    expected = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), **flags)[
        0, 6:
    ].tolist()
    assert len(set(expected)) > 5
    words = ",".join(map(str, prompt))
    assert ids(tmp_path, f"--prompt_tokens={words}", "--max_tokens=40", "--temperature=0") == expected


def test_a_checkpoint_and_its_export_go_on_alike_in_either_format(tmp_path: Path) -> None:
    flags = ("--prompt=The prince", "--max_tokens=30", "--temperature=0")
    run = trained(tmp_path / "run", "bytes")
    text = generate(run.checkpoints, *flags)
    assert text.stdout.startswith("The prince")
    assert f"mpzero: step 3 of {run.latest}: 30 tokens; prompt of 10 tokens: " in text.stderr
    subprocess.run([BUILD / "bin/zero_to_fp32", run.checkpoints, tmp_path / "fp32"], check=True, capture_output=True)
    assert generate(tmp_path / "fp32", "--tokenizer=bytes", *flags).stdout == text.stdout
    assert generate(tmp_path / "fp32", *flags).stdout == text.stdout
    lora = trained(tmp_path / "lora", "bytes", f"--init_from={tmp_path / 'fp32'}", "--lora_r=2")
    subprocess.run(
        [BUILD / "bin/zero_to_fp32", lora.checkpoints, tmp_path / "adapters"], check=True, capture_output=True
    )
    assert generate(tmp_path / "adapters", *flags).stdout.startswith("The prince")
    config = json.loads((tmp_path / "fp32/config.json").read_text())
    del config["mpzero_tokenizer"]  # as in exports before
    (tmp_path / "fp32/config.json").write_text(json.dumps(config))
    refused = generate(tmp_path / "fp32", *flags, check=False)
    assert refused.returncode == 2
    assert f"mpzero: error: {tmp_path / 'fp32'} does not record a tokenizer; pass --tokenizer bytes" in refused.stderr
    other = trained(tmp_path / "deepspeed", "bytes", "--checkpoint_format=deepspeed")
    assert generate(other.checkpoints, *flags).stdout == text.stdout
    assert (
        generate(other.checkpoints, *flags, "--untrained").stdout == generate(run.latest, *flags, "--untrained").stdout
    )


def test_untrained_weights_are_those_before_the_first_step(tmp_path: Path) -> None:
    """A run whose learning rate is next to nothing keeps them."""
    nothing_learned = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-30}}}
    run = TinyRun(tmp_path, ranks=1, config=nothing_learned)
    (tmp_path / "tiny.json").write_text(json.dumps({**MODEL, "vocab_size": 260, "initializer_range": 0.3}))
    run.data = prepare(tmp_path, "bytes")
    run.train("--max_steps=1", "--seed=7")
    flags = ("--prompt_tokens=1,2,3", "--max_tokens=25", "--temperature=0")
    learned = ids(run.checkpoints, *flags)
    assert len(set(learned)) > 3
    assert ids(run.checkpoints, *flags, "--untrained") == learned


def test_what_deepspeed_saved_needs_the_models_config_json() -> None:
    saved = saved_by_deepspeed(SAVED_ZERO2)
    flags = (saved, "--prompt_tokens=1,2,3", "--max_tokens=5")
    refused = generate(*flags, check=False)
    assert refused.returncode == 2
    assert "has no config.json" in refused.stderr
    config = GOLDEN / SAVED_ZERO2 / "init/config.json"
    for path in (config, config.parent):
        assert len(ids(*flags, f"--model_config={path}", "--temperature=0")) == 5
    refused = generate(*flags, f"--model_config={config}", "--untrained", check=False)
    assert "was saved by DeepSpeed" in refused.stderr


def test_a_text_goes_through_the_tokenizer_that_the_checkpoint_records(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    folder = make_tokenizer(tmp_path / "tokenizer")
    run = trained(tmp_path / "run", str(folder))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompt = tokenizer.encode("The prince “said”").ids
    assert len(prompt) < len("The prince “said”".encode())
    flags = (run.checkpoints, "--max_tokens=30", "--seed=5")
    following = ids(*flags, "--prompt_tokens=" + ",".join(map(str, prompt)))
    text = generate(*flags, "--prompt=The prince “said”", program="generate.py")
    # Characters that controls the terminal come out as they are from the library.
    expected = "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in tokenizer.decode(prompt + following))
    assert text.stdout == expected + "\n"
    assert "tokens/s" in text.stderr
    refused = generate(*flags, "--prompt=The prince", check=False)
    assert refused.returncode == 2
    assert f"is {folder}, but mpzero generate supports only bytes; use app/generate.py" in refused.stderr
    not_utf8 = generate(*flags, "--prompt=a\udcffb", program="generate.py", check=False)
    assert not_utf8.returncode == 2 and "generate.py: --prompt is not UTF-8" in not_utf8.stderr
    # More ids than fit into one argument of a command.
    too_long = generate(*flags, "--prompt=" + "a b" * 40_000, program="generate.py", check=False)
    assert too_long.returncode == 2 and "but step 3 of" in too_long.stderr and " 64 positions" in too_long.stderr
    words = [sys.executable, REPOSITORY / "app/generate.py", *flags, "--prompt=The prince", "--device=cpu"]
    environment = {**os.environ, **ENVIRONMENT, "BUILD_DIR": str(BUILD)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as reading:
        reading.stdout.read(3)
        reading.stdout.close()
        assert "Traceback" not in reading.stderr.read().decode()
        assert reading.wait(timeout=60) in (0, 141)
    # The bar is gone before the prompt is shown.
    bar, _, after = on_a_terminal(words).partition("The prince")
    assert "Reading weights" in bar and after
    assert bar.endswith(("\n", "\x1b[K")) and "\x1b" not in after and "\r" not in after
    # The statistics follow the text on a line of their own.
    *_, statistics = after.splitlines()
    assert statistics.startswith("mpzero: step 3 of ") and after.count("tokens/s") == 1
    larger = make_tokenizer(tmp_path / "larger", added=60)
    refused = generate(*flags, "--prompt=a", f"--tokenizer={larger}", program="generate.py", check=False)
    assert refused.returncode == 2
    assert f"generate.py: tokenizer '{larger}' has 341 ids, but step 3 of {run.latest} has 320" in refused.stderr


def test_generate_py_leaves_bytes_to_mpzero(tmp_path: Path) -> None:
    run = trained(tmp_path, "bytes")
    flags = (run.checkpoints, "--prompt=The prince", "--max_tokens=20")
    assert generate(*flags, program="generate.py").stdout == generate(*flags).stdout
    # An export has no files of this tokenizer, but its name.
    out = tmp_path / "out"
    subprocess.run([BUILD / "bin/zero_to_fp32", run.checkpoints, out], check=True, capture_output=True)
    for program in ("mpzero", "generate.py"):
        assert generate(out, *flags[1:], program=program).stdout == generate(*flags).stdout
    assert "did you mean --prompt?" in generate(out, "-p", "The", program="generate.py", check=False).stderr
    for program, flag in itertools.product(("mpzero", "generate.py"), ("-t", "--temp", "--temprature")):
        refused = generate(*flags, flag, "0.7", program=program, check=False)
        assert refused.returncode == 2 and f"{flag} is not a " in refused.stderr
        assert "did you mean --temperature?" in refused.stderr
    missing = generate(tmp_path / "none", "--prompt=a", program="generate.py", check=False)
    assert missing.returncode == 2 and "does not exist" in missing.stderr


def test_a_prompt_begins_with_bos_where_the_tokenizer_adds_it(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, processors

    folder = make_tokenizer(tmp_path / "tokenizer", added=1)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bos = tokenizer.token_to_id("<|0|>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<|0|> $A", special_tokens=[("<|0|>", bos)])
    tokenizer.save(str(folder / "tokenizer.json"))
    run = trained(tmp_path / "run", str(folder))
    prompt = tokenizer.encode("The prince", add_special_tokens=False).ids
    flags = (run.checkpoints, "--max_tokens=20", "--temperature=0")

    def expected(before: list[int]) -> str:
        following = ids(*flags, "--prompt_tokens=" + ",".join(map(str, before + prompt)))
        return tokenizer.decode(prompt + following) + "\n"

    def text(*more: str) -> str:
        return generate(*flags, "--prompt=The prince", *more, program="generate.py").stdout

    assert expected([bos]) != expected([])
    assert text() == text("--add_bos=true") == expected([bos])
    assert text("--add_bos=false") == expected([])
    of_bytes = trained(tmp_path / "bytes", "bytes")
    refused = generate(of_bytes.checkpoints, "--prompt=a", "--add_bos=true", program="generate.py", check=False)
    assert refused.returncode == 2 and "--add_bos" in refused.stderr


def test_a_text_ends_where_the_documents_of_the_data_do(tmp_path: Path) -> None:
    """A new model adopts the id of the data where config.json has another, in the checkpoint and in its export; a start
    warns of it. The keys of config.json that mpzero does not use stay."""
    run = TinyRun(tmp_path / "run", ranks=1)
    layers = {"layer_types": ["full_attention"] * MODEL["num_hidden_layers"]}
    (run.folder / "tiny.json").write_text(json.dumps({**MODEL, "eos_token_id": 2, **layers}))
    flags = ("--prompt_tokens=5,0,60", "--max_tokens=30", "--temperature=0")
    result = run.train("--max_steps=1")
    assert "eos_token_id 63" in result.stderr and result.stderr.count("eos_token_id") == 1
    described = json.loads(generate(run.checkpoints, "--describe").stdout)
    assert described["eos_token_ids"] == [63]
    out = tmp_path / "out"
    subprocess.run([BUILD / "bin/zero_to_fp32", run.checkpoints, out], check=True, capture_output=True)
    config = json.loads((out / "config.json").read_text())
    assert config["eos_token_id"] == 63 and config["layer_types"] == layers["layer_types"]
    # Weights of others keep their ids, since they were trained with them.
    config["eos_token_id"] = 2
    (out / "config.json").write_text(json.dumps(config))
    tuned = TinyRun(tmp_path / "tuned", ranks=1)
    (tuned.folder / "tiny.json").write_text(json.dumps(config))
    tuned.train("--max_steps=1", f"--init_from={out}")
    assert json.loads(generate(tuned.checkpoints, "--describe").stdout)["eos_token_ids"] == [2, 63]
    assert ids(out, *flags) == ids(run.checkpoints, *flags)
