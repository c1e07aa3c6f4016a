"""Tokenizers: the built-in 'bytes', or a Hugging Face name, folder, tokenizer.json, or vocab.json and merges.txt."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np
import xxhash

from . import PrepareError, shown
from .boundaries import BYTES, cuts_of
from .cutting import Cuts, cut
from .fingerprints import digest_of
from .hub import refusal, use_cache_where_unreachable
from .special_tokens import (
    bos_of,
    counter_of,
    eos_of,
    hash_of,
    needed_note,
    special_tokens_of,
    with_special_tokens_as_text,
)
from .tokenizer_files import (
    CONFIG,
    DECLARATIONS,
    SPECIAL_TOKENS,
    TEMPLATE,
    Declared,
    check_ids,
    declared_in,
    read_tokenizer,
)

SHORT = 1024  # characters
# Llama 3's pre-tokenization pattern (as in its tokenizer.json).
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_BASE_SIZE = 128_000
LLAMA3_NAMED = {0: "begin_of_text", 1: "end_of_text", 6: "start_header_id", 7: "end_header_id", 9: "eot_id"}
LLAMA3_NUM_SPECIAL = 256
BYTES_EOS = "<|endoftext|>"  # represents the end-of-text id of 'bytes' in conversations
LLAMA3_BOS, LLAMA3_EOS = "<|begin_of_text|>", "<|end_of_text|>"


@dataclass(frozen=True)
class Encoder:
    """Converts text to token ids. Picklable, because `definition` is the text of a tokenizer.json."""

    name: str
    vocab_size: int  # greater than every id
    eos_token_id: int
    definition: str | None = None  # None: bytes
    cuts: Cuts = BYTES  # positions at which a text can be split without changing its ids
    bos_token_id: int | None = None  # None: the tokenizer has no BOS
    add_bos: bool = False  # True: documents begin with BOS
    special_tokens: str = "text"  # or "ids": encoding of special token names in text
    special_names: tuple[str, ...] = ()
    tokenizer_hash: str | None = None  # hash of the vocabulary
    notes: tuple[str, ...] = ()  # notes for the user
    folder: Path | None = None  # contains the tokenizer's files
    template_tokens: dict[str, str] = field(default_factory=dict)  # variables for chat templates

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.uint16 if self.vocab_size <= 1 << 16 else np.uint32)

    def attributes(self) -> dict[str, int | str]:
        """Returns the tokenizer's attributes for a token file."""
        found = {
            "vocab_size": self.vocab_size,
            "eos_token_id": self.eos_token_id,
            "bos_token_id": self.bos_token_id,
            "add_bos": int(self.add_bos),
            "tokenizer": shown(self._lasting_name()),
            "tokenizer_hash": self.tokenizer_hash,
            "special_tokens": self.special_tokens,
        }
        return {name: value for name, value in found.items() if value is not None}

    def _lasting_name(self) -> str:
        """Returns the name; for a local tokenizer, its absolute path, so that programs find it from any folder."""
        path = Path(self.name).expanduser()
        return self.name if self.definition is None or not path.exists() else str(path.absolute())

    def function(self):
        """Returns a function that maps a list of (preceding character, text) to (list of id arrays of `dtype`, number
        of special token names in each text). Slow, because it builds a tokenizer."""
        if self.definition is None:

            def encode_bytes(texts: list[tuple[str, str]]) -> tuple[list[np.ndarray], list[int]]:
                ids = [np.frombuffer(text.encode(), np.uint8).astype(self.dtype) for _, text in texts]
                return ids, [0] * len(texts)

            return encode_bytes
        # Each worker process runs one such function in one thread.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        tokenizer = encoding_tokenizer(self.definition, self.special_tokens)
        count = counter_of(self.special_names)
        lengths = {"": 0}  # number of ids by preceding character

        def length_of(before: str) -> int:
            if before not in lengths:
                lengths[before] = len(tokenizer.encode(before, add_special_tokens=False).ids)
            return lengths[before]

        def encode(texts: list[tuple[str, str]]) -> tuple[list[np.ndarray], list[int]]:
            # The library takes less time per character for short texts than for long ones.
            divided = [
                [
                    (piece.before or before * (i == 0), piece.text)
                    for i, piece in enumerate(_short_pieces(text, self.cuts))
                ]
                for before, text in texts
            ]
            inputs = [before + text for pieces in divided for before, text in pieces]
            encodings = iter(tokenizer.encode_batch_fast(inputs, add_special_tokens=False))
            ids = ([next(encodings).ids[length_of(before) :] for before, _ in pieces] for pieces in divided)
            return [np.fromiter(chain(*parts), self.dtype) for parts in ids], [count(text) for _, text in texts]

        return encode


def _short_pieces(text: str, cuts: Cuts):
    return cut([text], cuts, SHORT, most=math.inf)


def encoding_tokenizer(definition: str, special_tokens: str):
    from tokenizers import Tokenizer

    if special_tokens == "ids":
        return Tokenizer.from_str(definition)
    tokenizer = Tokenizer.from_str(with_special_tokens_as_text(definition))
    tokenizer.encode_special_tokens = True
    return tokenizer


def bytes_encoder() -> Encoder:
    return Encoder(name="bytes", vocab_size=257, eos_token_id=256, template_tokens={"eos_token": BYTES_EOS})


def fingerprint(name: str) -> str:
    """Identifies a tokenizer by its name and, if it is local, by the content of its files."""
    path = Path(name).expanduser()
    if not path.exists():
        return name
    folder = path.parent if path.is_file() else path
    declared = declared_in(folder)
    by_model = bool(declared.eos_ids) or declared.bos_id is not None
    return fingerprint_of(path, DECLARATIONS if by_model else (CONFIG, SPECIAL_TOKENS))


def fingerprint_of(path: Path, declarations: tuple[str, ...]) -> str:
    """Hashes the tokenizer's files, and the files `declarations` in the same folder."""
    folder = path.parent if path.is_file() else path
    files = [path] if path.is_file() else [folder / part for part in ("tokenizer.json", "vocab.json", "merges.txt")]
    files = [file for file in (*files, *(folder / part for part in declarations)) if file.is_file()]
    content = xxhash.xxh3_128("".join(f"{file.name} {digest_of(file)}\n" for file in files).encode())
    return f"{path.resolve().name}:{content.hexdigest()}"


def template_fingerprint(name: str, given: Path | None) -> str | None:
    """Identifies a chat template in a separate file. fingerprint() covers a template in tokenizer_config.json."""
    path = Path(name).expanduser()
    file = given or (path.parent if path.is_file() else path) / TEMPLATE
    return digest_of(file) if file.is_file() else None


def load_encoder(
    name: str, eos_token: str | None, vocab_size: int | None, add_bos: str = "auto", special_tokens: str = "text"
) -> Encoder:
    """Loads a tokenizer. add_bos: auto, true or false. special_tokens: text or ids."""
    if name == "bytes":
        if add_bos == "true":
            raise PrepareError("Tokenizer 'bytes' has no BOS: omit --add_bos true.")
        if eos_token is not None:
            raise PrepareError(f"Tokenizer 'bytes' has no token '{shown(eos_token)}': omit --eos_token.")
        encoder = bytes_encoder()
    else:
        encoder = _describe(load_tokenizer(name), eos_token, add_bos, special_tokens)
    if vocab_size is None:
        return encoder
    if vocab_size < encoder.vocab_size:
        raise PrepareError(
            f"--vocab_size {vocab_size} is smaller than the {encoder.vocab_size} ids of tokenizer '{name}': "
            f"pass {encoder.vocab_size} or more, or use a different --tokenizer."
        )
    return replace(encoder, vocab_size=vocab_size)


@dataclass(frozen=True)
class LoadedTokenizer:
    name: str
    library: object  # tokenizers.Tokenizer
    declared: Declared
    file: dict | None  # parsed tokenizer.json, if it exists
    folder: Path

    def vocabulary(self) -> dict[str, int]:
        return self.library.get_vocab(with_added_tokens=True)

    def bos(self, add_bos: str) -> tuple[int | None, bool, str | None]:
        """add_bos: value of --add_bos. Returns the BOS id (or None), whether documents begin with BOS, and a note for
        the user (or None)."""
        return bos_of(self.name, self.library, self.vocabulary(), self.declared, add_bos)


def load_tokenizer(name: str) -> LoadedTokenizer:
    path = Path(name).expanduser()
    if path.is_dir():
        folder = path
    elif path.is_file():
        folder = path.parent
    elif path.suffix == ".json" or name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise PrepareError(f"Tokenizer {name} does not exist: pass a file, a folder, a Hugging Face name, or 'bytes'.")
    else:
        folder = _download(name)
    if path.is_file():
        (tokenizer, file), declared = read_tokenizer(path), declared_in(folder)
    else:
        tokenizer, declared, file = _in_folder(folder)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return LoadedTokenizer(name, tokenizer, declared, file, folder)


def _describe(loaded: LoadedTokenizer, eos_token: str | None, add_bos: str, special_tokens: str) -> Encoder:
    definition = loaded.library.to_str()
    parsed = json.loads(definition)
    vocabulary, special = loaded.vocabulary(), special_tokens_of(parsed)
    eos_token_id = eos_of(loaded.name, vocabulary, special, loaded.declared, eos_token)
    bos_token_id, adds_bos, note = loaded.bos(add_bos)
    notes = [note, needed_note(parsed) if special_tokens == "text" else None]
    return Encoder(
        name=loaded.name,
        vocab_size=max(vocabulary.values()) + 1,
        eos_token_id=eos_token_id,
        definition=definition,
        cuts=cuts_of(encoding_tokenizer(definition, special_tokens), parsed),
        bos_token_id=bos_token_id,
        add_bos=adds_bos,
        special_tokens=special_tokens,
        special_names=tuple(special),
        # The library renumbers added tokens if their ids have gaps.
        tokenizer_hash=hash_of(loaded.file or parsed),
        notes=tuple(note for note in notes if note is not None),
        folder=loaded.folder,
        template_tokens=loaded.declared.template_tokens(),
    )


def _in_folder(folder: Path):
    """Returns (tokenizers.Tokenizer, Declared, parsed tokenizer.json or None)."""
    declared = declared_in(folder)
    if (folder / "tokenizer.json").is_file():
        # As in transformers, only the post-processor of tokenizer.json determines BOS.
        tokenizer, file = read_tokenizer(folder / "tokenizer.json")
        return tokenizer, declared, file
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return *_byte_level_bpe(folder / "vocab.json", folder / "merges.txt", declared), None
    raise PrepareError(f"Tokenizer folder {folder} contains neither tokenizer.json nor vocab.json and merges.txt.")


def _download(name: str) -> Path:
    """Returns the folder of the downloaded files."""
    use_cache_where_unreachable()
    from huggingface_hub import hf_hub_download, logging
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    logging.set_verbosity_error()  # the exception below reports the problem
    try:
        folder = Path(hf_hub_download(name, "tokenizer.json")).parent
        for part in (*DECLARATIONS, TEMPLATE):
            try:
                hf_hub_download(name, part)
            except (EntryNotFoundError, LocalEntryNotFoundError):
                continue
    except Exception as error:
        if refused := refusal("tokenizer", name, error):
            raise PrepareError(refused) from error
        raise PrepareError(
            f"Tokenizer '{name}' cannot be downloaded from Hugging Face ({type(error).__name__}): check the name and "
            "the network, or pass a local folder with tokenizer.json or with vocab.json and merges.txt, or 'bytes'."
        ) from error
    return folder


def _byte_level_bpe(vocab: Path, merges: Path, declared: Declared):
    """Returns (tokenizers.Tokenizer, Declared)."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

    try:
        words, pairs = models.BPE.read_file(str(vocab), str(merges))
        llama3 = len(words) == LLAMA3_BASE_SIZE
        model = models.BPE(words, pairs, ignore_merges=llama3)
    except Exception as error:
        raise PrepareError(
            f"{shown(vocab)} and {shown(merges)} cannot be read as a byte-level BPE vocabulary: {shown(error)}."
        ) from error
    check_ids(vocab, words)
    tokenizer = Tokenizer(model)
    tokenizer.decoder = decoders.ByteLevel()
    if not llama3:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        bos = declared.bos_token
        if declared.add_bos and bos in words:
            tokenizer.post_processor = processors.TemplateProcessing([bos, "$A"], special_tokens=[(bos, words[bos])])
        return tokenizer, declared
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    unnamed = (f"reserved_special_token_{i}" for i in range(LLAMA3_NUM_SPECIAL))
    names = [LLAMA3_NAMED.get(i) or next(unnamed) for i in range(LLAMA3_NUM_SPECIAL)]
    tokenizer.add_special_tokens([AddedToken(f"<|{special}|>", special=True) for special in names])
    first = (LLAMA3_BOS, tokenizer.token_to_id(LLAMA3_BOS))
    tokenizer.post_processor = processors.TemplateProcessing([LLAMA3_BOS, "$A"], special_tokens=[first])
    bos, eos = declared.bos_token or LLAMA3_BOS, declared.eos_token or LLAMA3_EOS
    return tokenizer, replace(declared, bos_token=bos, eos_token=eos)
