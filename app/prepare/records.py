"""Records the inputs of a token file, and compares them with the record of an existing file."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import OVERWRITE, PrepareError, encoders, shown, shown_count, shown_size
from .fingerprints import File, is_unchanged
from .masks import SPLIT
from .pairs import OF_PAIRS, PAIRS
from .plan import Input
from .row_kinds import TEXT
from .spans import OF_SPANS, SPANS
from .token_file import arguments_of, is_foreign
from .tokenizer_files import CONFIG

CONTENT = "content"
TOO_FEW = "none: too few documents"  # value of "validation" for a training file that contains all documents
# Minimum size at which the comparison of file contents is announced.
MANY_BYTES = 1_000_000_000
# Before --add_bos and --special_tokens existed, documents did not begin with BOS, special token names in text were
# encoded as ids, and only tokenizer_config.json was read for declarations of special tokens.
NO_SPECIAL_TOKENS = (
    "{}: kept, although it was created by an older version: documents do not begin with BOS, and special token names "
    f"in the text are encoded as ids; {OVERWRITE} recreates it."
)


def record_of(arguments: argparse.Namespace, local: bool) -> dict:
    """Returns all inputs that determine the token files, except the content of the dataset. Omits parent folders, so
    that a checkout can be moved."""
    return {
        "dataset": Path(arguments.dataset).expanduser().resolve().name if local else arguments.dataset,
        "tokenizer": encoders.fingerprint(arguments.tokenizer),
        "dataset_config_name": arguments.dataset_config_name,
        "split": arguments.split or "train",
        "text_field": arguments.text_column,
        "document_separator": arguments.document_separator,
        "skip_empty": arguments.skip_empty or None,  # None: as in files older than this flag
        "max_documents": arguments.max_documents,
        "eos_token": arguments.eos_token,
        "add_bos": arguments.add_bos,
        "special_tokens": arguments.special_tokens or "text",
        "vocab_size": arguments.vocab_size,
        "validation": arguments.validation_output is not None,
        "validation_fraction": arguments.validation_fraction,
    }


def record_of_format(arguments: argparse.Namespace, format: str | None) -> dict:
    """Returns the record's entries for this format; {} for plain text, so that records of old versions still match."""
    if format in (None, TEXT):
        return {}
    if format == PAIRS:
        return {"format": format, "seq_length": arguments.seq_length} | {
            name: getattr(arguments, name) for name in OF_PAIRS
        }
    if format == SPANS:
        return {"format": format} | {name: getattr(arguments, name) for name in ("source_length", *OF_SPANS)}
    return {
        "format": format,
        "seq_length": arguments.seq_length,
        "packing": arguments.packing or "true",
        "rewritten_turns": arguments.rewritten_turns or SPLIT,
        "chat_template_kwargs": arguments.chat_template_kwargs or "{}",
        "chat_template": encoders.template_fingerprint(arguments.tokenizer, arguments.chat_template),
    }


def record_of_all(inputs: list[Input]) -> dict:
    records = [record_of(item.arguments, item.plan is not None) for item in inputs]
    lists = {name: [record[name] for record in records] for name in ("dataset", "text_field")}
    return records[0] if len(records) == 1 else {**records[0], **lists}


def is_made_already(inputs: list[Input], record: dict) -> bool:
    arguments = inputs[0].arguments
    outputs = [path for path in (arguments.output, arguments.validation_output) if path is not None]
    existing = [path for path in outputs if path.exists()]
    for path in existing:
        if is_foreign(path):
            raise PrepareError(f"{shown(path)} exists but is not a token file: choose a different output.")
    if not existing or arguments.overwrite:
        return False
    lines = []
    for path in existing:
        made_from = arguments_of(path)
        if made_from is None or CONTENT not in made_from:
            raise PrepareError(
                f"{shown(path)} exists but was not written by app/prepare_data.py: choose a different output."
            )
        if not arguments.if_missing:
            raise PrepareError(f"{shown(path)} exists: use {OVERWRITE} to replace it, or --if_missing to keep it.")
        if path == arguments.output and made_from.get("validation") == TOO_FEW:
            outputs = [path]
            lines += _check(path, made_from, inputs, {**record, "validation": TOO_FEW})
        else:
            lines += _check(path, made_from, inputs, record)
    if len(existing) < len(outputs):
        return False
    print(f"{' and '.join(map(shown, outputs))}: up to date.")
    for line in lines:
        print(line)
    return True


def _check(path: Path, made_from: dict, inputs: list[Input], record: dict) -> list[str]:
    """Returns the lines to print if the file is kept."""
    arguments = inputs[0].arguments
    content = made_from.pop(CONTENT)
    notes = []
    if "add_bos" not in made_from:
        made_from |= entries_of_old(record)
        record = {**record, "tokenizer": fingerprint_of_old(arguments.tokenizer)}
        if arguments.tokenizer != "bytes":
            notes.append(NO_SPECIAL_TOKENS.format(shown(path)))
    # The detected format depends only on the content.
    format = made_from.get("format") if arguments.format == "auto" else arguments.format
    record = {**record, **record_of_format(arguments, format)}
    _check_arguments(path, made_from, record)
    for item, fingerprint in zip(inputs, content if len(inputs) > 1 else [content], strict=True):
        _check_input(path, item, fingerprint)
    return notes


def entries_of_old(record: dict) -> dict:
    """Returns entries that old records lack. Defaults count as unchanged, so that a requeued job keeps its file."""
    made_with = {"add_bos": "false", "special_tokens": "ids"}
    defaults = {"add_bos": "auto", "special_tokens": "text"}
    return {name: value if record[name] == value else made_with[name] for name, value in defaults.items()}


def fingerprint_of_old(tokenizer: str) -> str:
    path = Path(tokenizer).expanduser()
    return encoders.fingerprint_of(path, (CONFIG,)) if path.exists() else tokenizer


def _check_input(path: Path, item: Input, fingerprint: dict | None) -> None:
    dataset = item.arguments.dataset
    if item.plan is not None:
        _check_content(path, dataset, fingerprint, item.plan.files[item.plan.split_of(path, item.arguments)])
    elif fingerprint is not None:
        raise PrepareError(
            f"{shown(path)} was created from a local folder or file that has the same name as the Hugging Face dataset "
            f"'{dataset}': choose a different output, or use {OVERWRITE}."
        )


def _check_arguments(path: Path, made_from: dict, record: dict) -> None:
    for name in {**record, **made_from}:
        if made_from.get(name) != record.get(name):
            raise PrepareError(
                f"{shown(path)} was created with {name} {made_from.get(name)}, not {record.get(name)}: remove it, use "
                f"{OVERWRITE} to recreate it, or choose a different output."
            )


def _check_content(path: Path, dataset: str, fingerprint: dict | None, files: list[File]) -> None:
    size = sum(file.size for file in files)
    if fingerprint is None:
        raise PrepareError(
            f"{shown(path)} was created from the Hugging Face dataset '{dataset}', but a local folder or file now has "
            "this name: use --local_dataset false to read the Hugging Face dataset, or choose a different output."
        )
    if size >= MANY_BYTES and not is_unchanged(files, fingerprint, read=False):
        print(f"{shown(dataset)}: hashing {shown_size(size)} to check whether {shown(path)} is up to date.", flush=True)
    if is_unchanged(files, fingerprint):
        return
    then = f"{shown_count(fingerprint['files'], 'file')}, {fingerprint['bytes']:,} bytes"
    now = f"{shown_count(len(files), 'file')}, {size:,} bytes"
    change = f"{then} before, {now} now" if then != now else f"{now} as before, but with different names or content"
    raise PrepareError(
        f"{shown(path)} was created from files that differ from those in {shown(dataset)} ({change}): remove it, use "
        f"{OVERWRITE} to recreate it, or choose a different output."
    )
