"""Runs app/prepare_data.py with its arguments, and reads what it wrote."""

import importlib
import io
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass
class Tokens:
    tokens: np.ndarray
    offsets: np.ndarray
    attributes: dict

    def documents(self) -> list[np.ndarray]:
        return [self.tokens[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]

    def texts(self) -> list[str]:
        """The documents of a file that the bytes tokenizer made. Each must end with the end-of-text id."""
        assert all(document[-1] == 256 and (document[:-1] < 256).all() for document in self.documents())
        return [bytes(document[:-1].astype(np.uint8)).decode() for document in self.documents()]


def read_tokens(path: Path) -> Tokens:
    with h5py.File(path) as file:
        texts = {name: value.decode() for name, value in file.attrs.items() if isinstance(value, bytes)}
        tokens = Tokens(file["tokens"][:], file["document_offsets"][:], {**file.attrs, **texts})
    assert tokens.offsets.dtype == np.uint64
    assert tokens.offsets[0] == 0
    assert tokens.offsets[-1] == len(tokens.tokens)
    return tokens


def prepare_module(name: str):
    """A module of app/prepare, for what a separate process cannot show."""
    return app_module(f"prepare.{name}".rstrip("."))


def app_module(name: str):
    """A Python module in app/."""
    sys.path.insert(0, str(REPOSITORY / "app"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def command(*arguments) -> list[str]:
    return [sys.executable, str(REPOSITORY / "app/prepare_data.py"), *map(str, arguments)]


def run_here(folder: Path, words: list[str]) -> subprocess.CompletedProcess:
    """A program of app/ in this process, which has its libraries already: they take seconds to import."""
    program = app_module(Path(words[0]).stem)
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace") for _ in range(2))
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setattr(sys, "argv", words)
        patched.setattr(sys, "stdout", out)
        patched.setattr(sys, "stderr", err)
        patched.setattr(signal, "signal", lambda *_: None)
        try:
            status = program.main()
        except SystemExit as end:
            status = end.code
    said = []
    for stream in (out, err):
        stream.flush()
        said.append(stream.buffer.getvalue().decode())
    return subprocess.CompletedProcess(words, status, *said)


@pytest.fixture
def prepare(tmp_path):
    """prepare(ARGUMENTS..., fails=False): the finished program; runs in its own folder, `apart`: as a process."""

    def run(*arguments, fails: bool = False, apart: bool = False) -> subprocess.CompletedProcess:
        if "--tokenizer" not in arguments:
            arguments = (*arguments, "--tokenizer", "bytes")
        elif "--workers" not in arguments:
            arguments = (*arguments, "--workers", 1)
        else:
            apart = True  # workers import the program again
        words = command(*arguments)
        if apart:
            process = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        else:
            process = run_here(tmp_path, words[1:])
        if fails:
            assert process.returncode == 2, process.stderr
            assert len(process.stderr.strip().splitlines()) == 1, process.stderr
        else:
            assert process.returncode == 0, process.stderr
        return process

    return run


@pytest.fixture(scope="session")
def novel() -> str:
    return (REPOSITORY / "assets/tiny_corpus/train.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def small_bpe(tmp_path_factory, novel) -> Path:
    """A byte-level BPE of 600 ids in three forms: tokenizer.json, vocab.json and merges.txt, tokenizer_config.json."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<|endoftext|>", "<stop>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator([novel[:200_000]], trainer)
    folder = tmp_path_factory.mktemp("small_bpe")
    tokenizer.save(str(folder / "tokenizer.json"))
    tokenizer.model.save(str(folder))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<stop>"}}), encoding="utf-8")
    return folder


# Added to small_bpe's 600: the marks of Llama 3 and Qwen3. Those of the second list are not special, as in Qwen3.
CHAT_TOKENS = ["begin_of_text", "start_header_id", "end_header_id", "eot_id", "im_start", "im_end"]
CHAT_WORDS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]


@pytest.fixture(scope="session")
def chat_tokenizer(tmp_path_factory, small_bpe):
    """chat_tokenizer(TEMPLATE): the folder of a tokenizer with this template of tests/data/templates; None: without."""
    from tokenizers import AddedToken, Tokenizer

    tokenizer = Tokenizer.from_file(str(small_bpe / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(f"<|{name}|>", special=True, normalized=False) for name in CHAT_TOKENS])
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in CHAT_WORDS])
    parent = tmp_path_factory.mktemp("chat_tokenizers")

    def folder_of(template: str | None) -> Path:
        folder = parent / str(template)
        if not folder.exists():
            folder.mkdir()
            tokenizer.save(str(folder / "tokenizer.json"))
            tokens = {"bos_token": "<|begin_of_text|>", "eos_token": "<stop>"}
            (folder / "tokenizer_config.json").write_text(json.dumps(tokens), encoding="utf-8")
            if template is not None:
                source = REPOSITORY / f"tests/data/templates/{template}.jinja"
                (folder / "chat_template.jinja").write_bytes(source.read_bytes())
        return folder

    return folder_of
