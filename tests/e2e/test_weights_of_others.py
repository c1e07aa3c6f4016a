"""Hugging Face folders as other programs save them: `mpzero generate` and `mpzero train` read the same model, or refuse
it with the key and the file to change. The oracle is transformers."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
import xxhash
from test_generate import generate, ids
from tiny_run import MODEL, TinyRun
from trainer import BUILD

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")

pytestmark = pytest.mark.e2e

PROMPT = [5, 0, 63, 17, 17, 2]
FLAGS = ("--prompt_tokens=" + ",".join(map(str, PROMPT)), "--max_tokens=20", "--temperature=0")
PREFIXES = ("_orig_mod.", "_forward_module.", "module.", "model.", "module._orig_mod.")


def make_model(folder: Path, tied: bool, **changes: object):
    """Saves a Qwen3 whose greedy tokens vary."""
    sizes = {key: MODEL[key] for key in MODEL if key not in ("model_type", "architectures")}
    config = transformers.Qwen3Config(**{**sizes, "tie_word_embeddings": tied, "eos_token_id": None, **changes})
    torch.manual_seed(3)
    model = transformers.Qwen3ForCausalLM(config).float()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    model.save_pretrained(folder)
    return model


def greedy(model) -> list[int]:
    found = model.generate(
        torch.tensor([PROMPT]), attention_mask=torch.ones(1, len(PROMPT)), do_sample=False, max_new_tokens=20
    )
    return found[0, len(PROMPT) :].tolist()


def variant(source: Path, folder: Path, change) -> Path:
    """The folder with the tensors that `change` makes of those in `source`."""
    folder.mkdir()
    shutil.copy(source / "config.json", folder)
    safetensors.save_file(change(safetensors.load_file(source / "model.safetensors")), folder / "model.safetensors")
    return folder


def set_key(folder: Path, **keys: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **keys}))


def refused_by_both(run: TinyRun, weights: Path, *parts: str) -> None:
    """In a dry run, which reads no bytes but the first, and by generate."""
    shutil.copy(weights / "config.json", run.folder / "tiny.json")
    dry = run.train("--max_steps=1", f"--init_from={weights}", "--dry_run", check=False)
    for result in (dry, generate(weights, *FLAGS, check=False)):
        assert result.returncode == 2, result.stdout
        sentence = next(line for line in result.stderr.splitlines() if "error" in line)
        assert all(part in sentence for part in parts), sentence


def test_names_with_a_prefix_or_without_are_the_same_model(tmp_path: Path) -> None:
    model = make_model(tmp_path / "hf", tied=False)
    expected = greedy(model)
    assert len(set(expected)) > 3
    assert ids(tmp_path / "hf", *FLAGS) == expected
    for prefix in PREFIXES:
        folder = variant(tmp_path / "hf", tmp_path / prefix, lambda t, p=prefix: {p + name: t[name] for name in t})
        assert ids(folder, *FLAGS) == expected
    tied = make_model(tmp_path / "tied", tied=True)
    tied.model.save_pretrained(tmp_path / "base")  # without "model.", as Qwen3-Embedding is saved
    assert "embed_tokens.weight" in safetensors.load_file(tmp_path / "base/model.safetensors")
    set_key(tmp_path / "base", architectures=["Qwen3Model"])
    assert ids(tmp_path / "base", *FLAGS) == greedy(tied)


@pytest.mark.parametrize(("shard", "dtype"), [("1GB", torch.float32), ("20KB", torch.bfloat16)])
def test_pytorch_model_bin_is_read(tmp_path: Path, shard: str, dtype: torch.dtype) -> None:
    """Files of torch.save, with the index that transformers writes, and with a tied head that shares its storage."""
    model = make_model(tmp_path / "hf", tied=True).to(dtype)
    folder = tmp_path / "bin"
    folder.mkdir()
    shutil.copy(tmp_path / "hf/config.json", folder)
    tensors = model.state_dict()
    assert "lm_head.weight" in tensors
    names = list(tensors)
    if shard == "1GB":
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        parts = [names[:5], names[5:]]
        for i, part in enumerate(parts):
            torch.save({name: tensors[name] for name in part}, folder / f"pytorch_model-0000{i + 1}-of-00002.bin")
        weight_map = {name: f"pytorch_model-0000{i + 1}-of-00002.bin" for i, part in enumerate(parts) for name in part}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert ids(folder, *FLAGS, "--dtype=fp32") == greedy(model.float())
    if shard == "1GB":
        torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
        refused_by_both(TinyRun(tmp_path / "run", ranks=1), folder, "pytorch_model.bin", "1.6")


def test_a_head_that_differs_at_its_end_is_found_by_a_run(tmp_path: Path) -> None:
    """A dry run reads the beginning alone."""
    make_model(tmp_path / "hf", tied=True, vocab_size=9000)
    tensors = safetensors.load_file(tmp_path / "hf/model.safetensors")
    head = tensors["model.embed_tokens.weight"].clone()
    head[-1, -1] += 1
    folder = variant(tmp_path / "hf", tmp_path / "other", lambda t: {**t, "lm_head.weight": head})
    run = TinyRun(tmp_path / "run", stage=3)
    shutil.copy(folder / "config.json", run.folder / "tiny.json")
    result = run.train("--max_steps=1", f"--init_from={folder}", check=False)
    assert result.returncode == 2
    assert "[8999, 31]" in result.stderr and "tie_word_embeddings" in result.stderr
    head[-1, -1] -= 1
    safetensors.save_file({**tensors, "lm_head.weight": head}, folder / "model.safetensors")
    run.train("--max_steps=1", f"--init_from={folder}")


def test_ids_and_unused_keys_of_the_source_are_those_of_the_export(tmp_path: Path) -> None:
    make_model(tmp_path / "hf", tied=True, eos_token_id=63, bos_token_id=1, pad_token_id=2)
    set_key(tmp_path / "hf", use_cache=False, tokenizer_class="Mine")
    (tmp_path / "hf/tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    (tmp_path / "hf/generation_config.json").write_text('{"eos_token_id": [63, 5], "pad_token_id": 2, "top_p": 0.5}')
    run = TinyRun(tmp_path / "run", ranks=1)
    source = tmp_path / "hf"
    for name in ("first", "second"):  # the second from the first one's checkpoint
        run = TinyRun(tmp_path / name, ranks=1)
        command = [f"--init_from={source}", "--max_steps=1"]
        shutil.copy(tmp_path / "hf/config.json", run.folder / "tiny.json")
        run.train(*command)
        source = run.checkpoints
    out = tmp_path / "out"
    subprocess.run([BUILD / "bin/zero_to_fp32", run.checkpoints, out], check=True, capture_output=True, timeout=60)
    config = json.loads((out / "config.json").read_text())
    assert config["use_cache"] is False and config["tokenizer_class"] == "Mine"
    ours = transformers.AutoConfig.from_pretrained(out)
    theirs = transformers.AutoConfig.from_pretrained(tmp_path / "hf")
    assert (ours.pad_token_id, ours.bos_token_id) == (theirs.pad_token_id, theirs.bos_token_id) == (2, 1)
    # So do the documents of the token file.
    model = transformers.AutoModelForCausalLM.from_pretrained(out)
    assert model.generation_config.eos_token_id == 63
    first = tmp_path / "first_out"
    checkpoints = tmp_path / "first/checkpoints"
    subprocess.run([BUILD / "bin/zero_to_fp32", checkpoints, first], check=True, capture_output=True, timeout=60)
    generation = json.loads((first / "generation_config.json").read_text())
    assert json.loads((first / "config.json").read_text())["eos_token_id"] == generation["eos_token_id"] == [63, 5]
    assert generation["top_p"] == 0.5 and generation["pad_token_id"] == 2


def test_generate_ends_at_each_id_that_ends_a_text(tmp_path: Path) -> None:
    """In an export as transformers does: at the ids of config.json and of generation_config.json, in any form."""
    model = make_model(tmp_path / "hf", tied=False)
    expected = greedy(model)
    stop = expected[7]
    before = expected[: expected.index(stop)]
    for of_config, of_generation in ((stop, None), ([60, stop], None), (60, stop), (60, [61, stop]), (None, [stop])):
        set_key(tmp_path / "hf", eos_token_id=of_config)
        (tmp_path / "hf/generation_config.json").write_text(json.dumps({"eos_token_id": of_generation}))
        assert ids(tmp_path / "hf", *FLAGS) == before


def with_attributes(data: Path, copy: Path, **attributes: object) -> Path:
    """The token file with these attributes, as app/prepare_data.py writes them."""
    shutil.copy(data, copy)
    with h5py.File(copy, "r+") as file:
        for name, value in attributes.items():
            file.attrs[name] = np.bytes_(value) if isinstance(value, str) else value
    return copy


def test_tokens_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    """By --dry_run and by a start, of training and of validation data; and where the weights are a checkpoint's."""
    run = TinyRun(tmp_path / "run", ranks=1)
    weights = tmp_path / "hf"
    make_model(weights, tied=True, eos_token_id=63)
    shutil.copy(weights / "config.json", run.folder / "tiny.json")
    words = {f"w{i}": i for i in range(63)}
    tokenizer = {"model": {"vocab": words}, "added_tokens": [{"id": 63, "content": "<end>"}]}
    (weights / "tokenizer.json").write_text(json.dumps(tokenizer))
    lines = "".join(f"{i}\t{word}\n" for i, word in enumerate([*words, "<end>"]))
    attributes = {"bos_token_id": 5, "add_bos": 0, "special_tokens": "text", "special_tokens_in_text": 0}
    mine = "xxh3:" + xxhash.xxh3_64_hexdigest(lines.encode())
    old = run.data
    same = with_attributes(old, tmp_path / "same.h5", tokenizer_hash=mine, **attributes)
    other = with_attributes(old, tmp_path / "other.h5", tokenizer_hash="xxh3:" + "0" * 16, **attributes)

    def refused(*flags: object) -> None:
        for more in ((), ("--dry_run",)):
            result = run.train("--max_steps=1", *flags, *more, check=False)
            assert result.returncode == 2, result.stdout
            assert str(other) in result.stderr and "--allow_changed tokenizer" in result.stderr

    run.data = other
    refused(f"--init_from={weights}")
    run.data = same
    refused(f"--init_from={weights}", f"--validation_data={other}")
    assert "tokenizer" not in run.train("--max_steps=1", f"--init_from={weights}").stderr
    tuned = TinyRun(tmp_path / "tuned", ranks=1)
    shutil.copy(weights / "config.json", tuned.folder / "tiny.json")
    first = run.checkpoints
    run = tuned
    run.data = other
    refused(f"--init_from={first}")
    result = run.train("--max_steps=1", f"--init_from={first}", "--allow_changed=tokenizer")
    assert str(other) in result.stderr
    old_run = TinyRun(tmp_path / "old", ranks=1)
    shutil.copy(weights / "config.json", old_run.folder / "tiny.json")
    assert "tokenizer" not in old_run.train("--max_steps=1", f"--init_from={weights}").stderr


def test_a_checkpoint_does_without_damaged_files_of_its_tokenizer(tmp_path: Path) -> None:
    """zero_to_fp32, generate and a resume; a new run is refused, and so is a damaged folder of --tokenizer."""
    weights = tmp_path / "hf"
    make_model(weights, tied=True, eos_token_id=63)
    (weights / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    (weights / "generation_config.json").write_text('{"eos_token_id": [-1, 5, 18446744073709551615]}')
    mine = "xxh3:" + xxhash.xxh3_64_hexdigest(b"0\ta\n")
    run = TinyRun(tmp_path / "run", ranks=1)
    run.data = with_attributes(run.data, tmp_path / "own.h5", add_bos=0, tokenizer_hash=mine)
    shutil.copy(weights / "config.json", run.folder / "tiny.json")
    run.train("--max_steps=1", f"--init_from={weights}")

    def export(*flags: object) -> tuple[subprocess.CompletedProcess, Path]:
        out = tmp_path / f"out{len(list(tmp_path.glob('out*')))}"
        command = [BUILD / "bin/zero_to_fp32", run.checkpoints, out, *flags]
        return subprocess.run(command, capture_output=True, text=True, timeout=60), out

    result, out = export()
    assert result.returncode == 0 and result.stderr.count("outside the vocabulary") == 2
    assert json.loads((out / "config.json").read_text())["eos_token_id"] == [63, 5]
    tokenizer = tmp_path / "tokenizer"
    shutil.copytree(weights, tokenizer)
    damaged = [weights / "generation_config.json", weights / "tokenizer.json"]
    for i, file in enumerate(damaged):
        file.write_text("[")
        result, out = export()
        assert result.returncode == 0 and str(file) in result.stderr
        assert (out / "tokenizer.json").exists() == (i == 0) and not (out / "generation_config.json").exists()
        result, out = export("--tokenizer", tokenizer)
        assert result.returncode == 0 and str(weights) not in result.stderr and (out / "tokenizer.json").exists()
        assert str(file) in generate(run.checkpoints, *FLAGS).stderr
        assert str(file.parent) in run.train(f"--max_steps={i + 2}", f"--init_from={weights}").stderr
    new = TinyRun(tmp_path / "new", ranks=1)
    shutil.copy(weights / "config.json", new.folder / "tiny.json")
    assert new.train("--max_steps=1", f"--init_from={weights}", check=False).returncode == 2
    assert export("--tokenizer", weights)[0].returncode == 2
