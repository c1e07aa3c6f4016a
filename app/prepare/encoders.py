"""Tokenizers: built-in bytes, or Hugging Face's by name, folder, tokenizer.json, or vocab.json and merges.txt."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import xxhash

from . import PrepareError
from .cutting import cut
from .fingerprints import digest_of
from .hub import refusal, use_cache_where_unreachable

SHORT = 1024  # characters
# How Llama 3 cuts a text into words before byte-pair encoding (as in its tokenizer.json).
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_BASE_SIZE = 128_000
LLAMA3_NAMED = {0: "begin_of_text", 1: "end_of_text", 6: "start_header_id", 7: "end_header_id", 9: "eot_id"}
LLAMA3_NUM_SPECIAL = 256
# Tried in this order if no tokenizer_config.json names the end-of-text token.
COMMON_EOS = ("<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>", "<|im_end|>")


@dataclass(frozen=True)
class Encoder:
    """Converts text to token ids. `definition` is the text of a tokenizer.json, so that it can be sent to other
    processes."""

    name: str
    vocab_size: int  # every id is smaller
    eos_token_id: int
    definition: str | None  # None: bytes
    cuttable: bool  # a text may be cut after a single newline and encoded in pieces: the ids are the same

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.uint16 if self.vocab_size <= 1 << 16 else np.uint32)

    def function(self):
        """list of texts -> list of id arrays of `dtype`. Costs time once (a tokenizer is built)."""
        if self.definition is None:
            return lambda texts: [np.frombuffer(text.encode(), np.uint8).astype(self.dtype) for text in texts]
        # Callers run many of these in parallel, with one thread each.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_str(self.definition)

        def encode(texts: list[str]) -> list[np.ndarray]:
            # The library needs less time per character for short texts.
            pieces = [[piece for piece, _ in cut([text], self.cuttable, SHORT)] for text in texts]
            encodings = iter(tokenizer.encode_batch_fast(list(chain(*pieces)), add_special_tokens=False))
            ids = ([next(encodings).ids for _ in parts] for parts in pieces)
            return [np.fromiter(chain(*parts), self.dtype) for parts in ids]

        return encode


def bytes_encoder() -> Encoder:
    return Encoder(name="bytes", vocab_size=257, eos_token_id=256, definition=None, cuttable=True)


def fingerprint(name: str) -> str:
    """Identifies a tokenizer: its name, and the content of its files if it is on this machine."""
    path = Path(name).expanduser()
    if not path.exists():
        return name
    folder = path.parent if path.is_file() else path
    files = [path] if path.is_file() else [folder / part for part in ("tokenizer.json", "vocab.json", "merges.txt")]
    files = [file for file in (*files, folder / "tokenizer_config.json") if file.is_file()]
    content = xxhash.xxh3_128("".join(f"{file.name} {digest_of(file)}\n" for file in files).encode())
    return f"{path.resolve().name}:{content.hexdigest()}"


def load_encoder(name: str, eos_token: str | None, vocab_size: int | None) -> Encoder:
    if name == "bytes":
        encoder = bytes_encoder()
    else:
        tokenizer, declared_eos = _load_tokenizer(name)
        encoder = _describe(name, tokenizer, eos_token or declared_eos)
    if vocab_size is None:
        return encoder
    if vocab_size < encoder.vocab_size:
        raise PrepareError(
            f"--vocab_size {vocab_size} is smaller than the {encoder.vocab_size} ids of tokenizer '{name}': "
            f"give {encoder.vocab_size} or more, or another --tokenizer."
        )
    return Encoder(encoder.name, vocab_size, encoder.eos_token_id, encoder.definition, encoder.cuttable)


def _describe(name: str, tokenizer, eos_token: str | None) -> Encoder:
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if eos_token is None:
        eos_token = next((token for token in COMMON_EOS if token in vocabulary), None)
    if eos_token is None:
        raise PrepareError(f"Tokenizer '{name}' does not define an end-of-text token: give --eos_token.")
    if eos_token not in vocabulary:
        raise PrepareError(f"Tokenizer '{name}' has no token '{eos_token}': give another --eos_token.")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    definition = tokenizer.to_str()
    return Encoder(
        name=name,
        vocab_size=max(vocabulary.values()) + 1,
        eos_token_id=vocabulary[eos_token],
        definition=definition,
        cuttable=_is_cuttable(json.loads(definition)),
    )


def _is_cuttable(definition: dict) -> bool:
    """Byte-level BPE never joins a single newline to the next word; others add spaces or depend on the full text."""
    pre_tokenizer = definition.get("pre_tokenizer") or {}
    normalizer = definition.get("normalizer") or {"type": "NFC"}
    steps = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    byte_level = [step for step in steps if step.get("type") == "ByteLevel"]
    return (
        bool(byte_level)
        and not any(step.get("add_prefix_space") for step in byte_level)
        and all(step.get("type") in ("ByteLevel", "Split", "Digits") for step in steps)
        and normalizer["type"] in ("NFC", "NFD", "NFKC", "NFKD")
    )


def _load_tokenizer(name: str):
    """-> (tokenizers.Tokenizer, its end-of-text token or None)"""
    path = Path(name).expanduser()
    if path.is_dir():
        if (path / "tokenizer.json").is_file():
            return _read_tokenizer(path / "tokenizer.json"), _declared_eos(path / "tokenizer_config.json")
        if (path / "vocab.json").is_file() and (path / "merges.txt").is_file():
            return _byte_level_bpe(path / "vocab.json", path / "merges.txt"), _declared_eos(
                path / "tokenizer_config.json"
            )
        raise PrepareError(f"Tokenizer folder {path} contains neither tokenizer.json nor vocab.json and merges.txt.")
    if path.is_file():
        return _read_tokenizer(path), _declared_eos(path.parent / "tokenizer_config.json")
    if path.suffix == ".json" or name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise PrepareError(f"Tokenizer {name} does not exist: give a file, a folder, a Hugging Face name, or 'bytes'.")
    return _download(name)


def _download(name: str):
    use_cache_where_unreachable()
    from huggingface_hub import hf_hub_download, logging
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    logging.set_verbosity_error()  # the error below reports it once
    try:
        tokenizer = _read_tokenizer(Path(hf_hub_download(name, "tokenizer.json")))
        try:
            return tokenizer, _declared_eos(Path(hf_hub_download(name, "tokenizer_config.json")))
        except (EntryNotFoundError, LocalEntryNotFoundError):
            return tokenizer, None
    except PrepareError:
        raise
    except Exception as error:
        if refused := refusal("tokenizer", name, error):
            raise PrepareError(refused) from error
        raise PrepareError(
            f"Tokenizer '{name}' could not be fetched from Hugging Face ({type(error).__name__}): check the name and "
            "the network, or give a local folder with tokenizer.json or with vocab.json and merges.txt, or 'bytes'."
        ) from error


def _read_tokenizer(path: Path):
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        raise PrepareError(f"{path} cannot be read as a tokenizer.json: {error}.") from error


def _declared_eos(path: Path) -> str | None:
    if not path.is_file():
        return None
    eos = json.loads(path.read_text(encoding="utf-8")).get("eos_token")
    return eos.get("content") if isinstance(eos, dict) else eos


def _byte_level_bpe(vocab: Path, merges: Path):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    try:
        words, pairs = models.BPE.read_file(str(vocab), str(merges))
    except Exception as error:
        raise PrepareError(f"{vocab} and {merges} cannot be read as a byte-level BPE vocabulary: {error}.") from error
    llama3 = len(words) == LLAMA3_BASE_SIZE
    tokenizer = Tokenizer(models.BPE(words, pairs, ignore_merges=llama3))
    tokenizer.decoder = decoders.ByteLevel()
    if not llama3:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        return tokenizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    unnamed = (f"reserved_special_token_{i}" for i in range(LLAMA3_NUM_SPECIAL))
    names = [LLAMA3_NAMED.get(i) or next(unnamed) for i in range(LLAMA3_NUM_SPECIAL)]
    tokenizer.add_special_tokens([AddedToken(f"<|{special}|>", special=True) for special in names])
    return tokenizer
