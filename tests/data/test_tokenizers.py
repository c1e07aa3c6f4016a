"""Tokenizers of every form give the ids that the tokenizers library gives for the full text."""

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from .conftest import REPOSITORY, read_tokens

# What pre-tokenizers disagree on: runs of spaces and newlines, contractions, digits, other scripts, emoji, controls.
TRICKY = (
    "I'LL  go \n\n\n  to 12345678 places.\nDon't\n'quote\n\n1 x\n\ttab\r\nвойна и мир\n北京市\n"
    "👩‍👩‍👧 é e\u0301\n \n!?\n/a\n"
)


@pytest.mark.parametrize("form", ["folder", "tokenizer.json", "vocab and merges"])
def test_ids_of_a_long_text_are_those_of_the_full_text(prepare, tmp_path, small_bpe, novel, form):
    text = novel[:300_000] + TRICKY * 3000
    (tmp_path / "a.txt").write_bytes(text.encode())
    arguments = {
        "folder": small_bpe,
        "tokenizer.json": small_bpe / "tokenizer.json",
        "vocab and merges": tmp_path / "bare",
    }
    if form == "vocab and merges":
        (tmp_path / "bare").mkdir()
        for name in ("vocab.json", "merges.txt"):
            (tmp_path / "bare" / name).write_bytes((small_bpe / name).read_bytes())
    # A folder defines its end-of-text token in tokenizer_config.json; bare files do not.
    flags = ["--eos_token", "<|endoftext|>"] if form == "vocab and merges" else []
    prepare("a.txt", "a.h5", "--tokenizer", arguments[form], *flags)
    made = read_tokens(tmp_path / "a.h5")
    tokenizer = Tokenizer.from_file(str(small_bpe / "tokenizer.json"))
    eos = tokenizer.token_to_id("<|endoftext|>" if form == "vocab and merges" else "<stop>")
    assert np.array_equal(made.tokens, [*tokenizer.encode(text).ids, eos])
    assert made.attributes["eos_token_id"] == eos
    assert made.attributes["vocab_size"] == 600
    assert made.tokens.dtype == np.uint16


def test_text_is_not_cut_for_a_tokenizer_that_depends_on_the_full_text(prepare, tmp_path, novel):
    """Metaspace puts a space before a text: if it is cut into pieces, each would get one."""
    from tokenizers import models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    text = novel[:200_000]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>", "</s>"])
    tokenizer.train_from_iterator([text], trainer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "a.txt").write_bytes(text.encode())
    prepare("a.txt", "a.h5", "--tokenizer", "tokenizer.json", "--eos_token", "</s>")
    made = read_tokens(tmp_path / "a.h5")
    assert np.array_equal(made.tokens, [*tokenizer.encode(text).ids, 1])
    # Programs find the tokenizer from any folder.
    assert made.attributes["tokenizer"] == str(tmp_path / "tokenizer.json")


@pytest.fixture(scope="session")
def llama3(tmp_path_factory, novel) -> Path:
    """vocab.json and merges.txt of Llama 3's size, by which they are recognized: learned words, then unused ones."""
    from tokenizers import models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=3000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([novel[:200_000]], trainer)
    folder = tmp_path_factory.mktemp("llama3")
    tokenizer.model.save(str(folder))
    words = json.loads((folder / "vocab.json").read_text())
    words.update({f"<unused {i}>": i for i in range(len(words), 128_000)})
    (folder / "vocab.json").write_text(json.dumps(words))
    return folder


def test_llama3_vocabulary(prepare, tmp_path, novel, llama3):
    """Compares with the library's encoder for the same files, configured like the published tokenizer.json of Llama
    3."""
    from tokenizers import Regex, decoders, models, pre_tokenizers

    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    pattern += r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    oracle = Tokenizer(models.BPE.from_file(str(llama3 / "vocab.json"), str(llama3 / "merges.txt"), ignore_merges=True))
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    oracle.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    oracle.decoder = decoders.ByteLevel()
    text = novel[:250_000] + TRICKY * 2000
    (tmp_path / "a.txt").write_bytes(text.encode())
    prepare("a.txt", "a.h5", "--tokenizer", llama3)
    made = read_tokens(tmp_path / "a.h5")
    assert made.attributes["vocab_size"] == 128256
    assert made.attributes["eos_token_id"] == 128001
    assert made.tokens.dtype == np.uint32
    assert (made.tokens[0], made.tokens[-1]) == (128000, 128001)
    assert np.array_equal(made.tokens[1:-1], oracle.encode(text).ids)
    assert oracle.decode(made.tokens[1:-1].tolist()) == text
    # As in the published model: at most three digits, and words include their space.
    cut = [text for text, _ in oracle.pre_tokenizer.pre_tokenize_str("Hello world 12345")]
    assert cut == ["Hello", "Ġworld", "Ġ", "123", "45"]


def test_llama3_special_tokens_have_their_published_ids(llama3):
    import sys

    sys.path.insert(0, str(REPOSITORY / "app"))
    try:
        from prepare.encoders import load_encoder
    finally:
        sys.path.pop(0)
    tokenizer = Tokenizer.from_str(load_encoder(str(llama3), None, None).definition)
    published = {
        "<|begin_of_text|>": 128000,
        "<|end_of_text|>": 128001,
        "<|reserved_special_token_0|>": 128002,
        "<|start_header_id|>": 128006,
        "<|end_header_id|>": 128007,
        "<|eot_id|>": 128009,
        "<|reserved_special_token_250|>": 128255,
    }
    assert {name: tokenizer.token_to_id(name) for name in published} == published
    assert tokenizer.get_vocab_size() == 128256


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vocab_size", 256], "--vocab_size 256 is smaller than the 257 ids of tokenizer 'bytes'"),
        (["--tokenizer", "no/such/folder"], "no/such/folder does not exist"),
        (["--tokenizer", "missing.json"], "missing.json does not exist"),
        (["--tokenizer", "."], "contains neither tokenizer.json nor vocab.json"),
        (["--tokenizer", "a.txt"], "a.txt cannot be read as a tokenizer.json"),
    ],
)
def test_bad_tokenizer_gets_one_sentence(prepare, tmp_path, arguments, message):
    (tmp_path / "a.txt").write_text("text")
    assert message in prepare("a.txt", "a.h5", *arguments, fails=True).stderr
    assert not (tmp_path / "a.h5").exists()


def test_eos_token_must_be_in_the_vocabulary(prepare, tmp_path, small_bpe):
    (tmp_path / "a.txt").write_text("text")
    prepare("a.txt", "a.h5", "--tokenizer", small_bpe, "--eos_token", "<|endoftext|>")
    made = read_tokens(tmp_path / "a.h5")
    assert made.tokens[-1] == made.attributes["eos_token_id"] == 0
    process = prepare("a.txt", "b.h5", "--tokenizer", small_bpe, "--eos_token", "<none>", fails=True)
    assert "has no token '<none>'" in process.stderr


def test_unreachable_tokenizer_names_the_alternatives(prepare, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "a.txt").write_text("text")
    error = prepare("a.txt", "a.h5", "--tokenizer", "Qwen/Qwen3-0.6B", fails=True, apart=True).stderr
    assert "cannot be downloaded from Hugging Face" in error
    assert "vocab.json and merges.txt" in error
