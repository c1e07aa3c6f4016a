"""Reads the files of a tokenizer's folder: the tokenizer and the special tokens that transformers uses with it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from run_files.regular_files import NotReadable, read_bytes

from . import PrepareError, shown

CONFIG, SPECIAL_TOKENS, GENERATION, MODEL = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "config.json",
)
TEMPLATE = "chat_template.jinja"
MOST_BYTES = 1 << 30
# Files that determine the special tokens, in addition to tokenizer.json, or vocab.json and merges.txt.
DECLARATIONS = (CONFIG, SPECIAL_TOKENS, GENERATION, MODEL)
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True)
class Declared:
    """Special tokens that transformers reads from a folder. None: not declared."""

    eos_token: str | None = None
    bos_token: str | None = None
    add_bos: bool | None = None
    eos_ids: tuple[int, ...] = ()  # ids in the model's files, if no file declares eos_token
    bos_id: int | None = None  # id in the model's files, if no file declares bos_token
    named: dict[str, str] = field(default_factory=dict)  # special tokens by key in NAMED

    def template_tokens(self) -> dict[str, str]:
        """Returns the variables for a chat template."""
        found = {**self.named, "bos_token": self.bos_token, "eos_token": self.eos_token}
        return {name: token for name, token in found.items() if token is not None}


def declared_in(folder: Path) -> Declared:
    config = read_object(folder / CONFIG)
    tokens = read_object(folder / SPECIAL_TOKENS)
    if "added_tokens_decoder" in config and not isinstance(config["added_tokens_decoder"], dict):
        raise _wrong(folder / CONFIG, "added_tokens_decoder", config["added_tokens_decoder"], "an object")
    # An old tokenizer_config.json lacks this key; as in transformers, special_tokens_map.json then overrides it.
    sources = [(folder / CONFIG, config), (folder / SPECIAL_TOKENS, tokens)]
    if "added_tokens_decoder" not in config:
        sources.reverse()
    named = {key: token for key in NAMED if (token := _first_token(sources, key)) is not None}
    eos, bos = named.get("eos_token"), named.get("bos_token")
    add_bos = config.get("add_bos_token")
    if add_bos is not None and not isinstance(add_bos, bool):
        raise _wrong(folder / CONFIG, "add_bos_token", add_bos, "true or false")
    eos_ids = _first_ids(folder, "eos_token_id") if eos is None else ()
    bos_ids = _first_ids(folder, "bos_token_id") if bos is None else ()
    return Declared(eos, bos, add_bos, eos_ids, bos_ids[0] if len(bos_ids) == 1 else None, named)


def read_object(path: Path) -> dict:
    """Returns the JSON object in the file, or {} if the file does not exist."""
    text = read_text(path)
    try:
        value = {} if text is None else json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise PrepareError(f"{shown(path)} is not JSON ({reason}): copy or download it again.") from error
    if not isinstance(value, dict):
        raise PrepareError(f"{shown(path)} does not contain a JSON object: copy or download it again.")
    return value


def read_text(path: Path) -> str | None:
    """Returns the text of the file, or None if the file does not exist."""
    try:
        content = read_bytes(path, MOST_BYTES)
        return None if content is None else content.decode("utf-8-sig")
    except NotReadable as error:
        raise PrepareError(f"{shown(error)}: copy or download it again.") from error
    except UnicodeDecodeError as error:
        raise PrepareError(f"{shown(path)} is not UTF-8 text ({error.reason}): copy or download it again.") from error


def read_tokenizer(path: Path):
    """Returns (tokenizers.Tokenizer, parsed file)."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:
        raise PrepareError(f"{shown(path)} cannot be read as a tokenizer.json: {shown(error)}.") from error
    definition = read_object(path)
    if isinstance(words := definition["model"]["vocab"], dict):
        check_ids(path, words)
    return tokenizer, definition


def check_ids(path: Path, words: dict[str, int]) -> None:
    """words: maps each word to its id. Raises PrepareError if two words have the same id."""
    first: dict[int, str] = {}
    for word, index in words.items():
        if (other := first.setdefault(index, word)) != word:
            raise PrepareError(
                f"{shown(path)} has the id {index} for both '{shown(other)}' and '{shown(word)}': assign distinct ids, "
                "or download the file again."
            )


def _first_token(sources: list[tuple[Path, dict]], key: str) -> str | None:
    for path, values in sources:
        value = values.get(key)
        token = value.get("content") if isinstance(value, dict) else value
        if value is None:
            continue
        if not isinstance(token, str) or not token:
            raise _wrong(path, key, value, "a token or an object with a token as 'content'")
        return token
    return None


def _first_ids(folder: Path, key: str) -> tuple[int, ...]:
    for path in (folder / GENERATION, folder / MODEL):
        value = read_object(path).get(key)
        if value is None:
            continue
        ids = value if isinstance(value, list) else [value]
        if not ids or any(isinstance(token, bool) or not isinstance(token, int) or token < 0 for token in ids):
            raise _wrong(path, key, value, "an id or a list of ids")
        return tuple(dict.fromkeys(ids))
    return ()


def _wrong(path: Path, key: str, value: object, expected: str) -> PrepareError:
    text = json.dumps(value)
    text = text if len(text) <= 60 else text[:60] + "…"
    return PrepareError(f"{shown(path)}: '{key}' is {text}, not {expected}: fix it, or download the file again.")
