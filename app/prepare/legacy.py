"""Compatibility with token files of older versions.

Before --add_bos and --special_tokens, documents did not begin with BOS, special token names in text were
encoded as ids, and only tokenizer_config.json was read for declarations of special tokens.
"""

from __future__ import annotations

from pathlib import Path

from . import OVERWRITE
from .encoders import fingerprint_of
from .tokenizer_files import CONFIG

NO_SPECIAL_TOKENS = (
    "{}: kept, although it was created by an older version: documents do not begin with BOS, and special token names "
    f"in the text are encoded as ids; {OVERWRITE} recreates it."
)


def special_tokens_of(record: dict) -> dict:
    """Returns entries that old records lack. Defaults count as unchanged, so that a requeued job keeps its file."""
    made_with = {"add_bos": "false", "special_tokens": "ids"}
    defaults = {"add_bos": "auto", "special_tokens": "text"}
    return {name: value if record[name] == value else made_with[name] for name, value in defaults.items()}


def fingerprint(tokenizer: str) -> str:
    path = Path(tokenizer).expanduser()
    return fingerprint_of(path, (CONFIG,)) if path.exists() else tokenizer
