"""What a token file was made from, and whether an existing one is kept."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import OVERWRITE, PrepareError, encoders, legacy, shown, shown_count, shown_size
from .fingerprints import File, is_unchanged
from .plan import Plan
from .token_file import arguments_of

CONTENT = "content"
# From this size on, reading everything again takes long enough to be announced.
MANY_BYTES = 1_000_000_000
_NONE = object()


def record_of(arguments: argparse.Namespace, local: bool) -> dict:
    """What determines the content of the token files, except the content of the data set. Folders are left out, so that
    a checkout can be moved."""
    return {
        "dataset": Path(arguments.dataset).expanduser().resolve().name if local else arguments.dataset,
        "tokenizer": encoders.fingerprint(arguments.tokenizer),
        "dataset_config_name": arguments.dataset_config_name,
        "split": arguments.split or "train",
        "text_field": arguments.text_column,
        "document_separator": arguments.document_separator,
        "max_documents": arguments.max_documents,
        "eos_token": arguments.eos_token,
        "add_bos": arguments.add_bos,
        "special_tokens": arguments.special_tokens,
        "vocab_size": arguments.vocab_size,
        "validation": arguments.validation_output is not None,
        "validation_fraction": arguments.validation_fraction,
    }


def is_made_already(arguments: argparse.Namespace, record: dict, plan: Plan | None) -> bool:
    """plan: None if only the data set's name is known."""
    outputs = [path for path in (arguments.output, arguments.validation_output) if path is not None]
    existing = [path for path in outputs if path.exists()]
    if not existing or arguments.overwrite:
        return False
    if not arguments.if_missing:
        raise PrepareError(f"{shown(existing[0])} exists: give {OVERWRITE} to replace it, or --if_missing to keep it.")
    lines = []
    for path in existing:
        made_from = arguments_of(path)
        if made_from is None:
            raise PrepareError(
                f"{shown(path)} exists and is not a token file of this program: remove it, or give {OVERWRITE}."
            )
        lines += _check(path, made_from, arguments, record, plan)
    if len(existing) < len(outputs):
        return False
    print(f"{' and '.join(map(shown, outputs))}: already made from the same arguments.")
    for line in lines:
        print(line)
    return True


def _check(path: Path, made_from: dict, arguments: argparse.Namespace, record: dict, plan: Plan | None) -> list[str]:
    """-> what to print if the file is kept"""
    content = made_from.pop(CONTENT, _NONE)
    notes = []
    if "add_bos" not in made_from:
        made_from |= legacy.special_tokens_of(record)
        if content is not _NONE:
            record = {**record, "tokenizer": legacy.fingerprint(arguments.tokenizer)}
        if arguments.tokenizer != "bytes":
            notes.append(legacy.NO_SPECIAL_TOKENS.format(shown(path)))
    if content is _NONE and (plan is not None or Path(arguments.tokenizer).expanduser().exists()):
        record = {**record, **legacy.record_of(arguments.dataset, arguments.tokenizer, local=plan is not None)}
    _check_arguments(path, made_from, record)
    if plan is None:
        if content not in (None, _NONE):
            raise PrepareError(
                f"{shown(path)} was made from a folder or file named like the Hugging Face data set "
                f"'{arguments.dataset}': choose another output, or give {OVERWRITE}."
            )
        return notes
    split = plan.split_of(path, arguments)
    if content is _NONE:
        return [*notes, legacy.check_choice(path, arguments.dataset, split, plan.files[split])]
    _check_content(path, arguments.dataset, content, plan.files[split])
    return notes


def _check_arguments(path: Path, made_from: dict, record: dict) -> None:
    for name in {**record, **made_from}:
        if made_from.get(name) != record.get(name):
            raise PrepareError(
                f"{shown(path)} was made with {name} {made_from.get(name)}, not {record.get(name)}: remove it, use "
                f"{OVERWRITE} to create it again, or choose another output."
            )


def _check_content(path: Path, dataset: str, fingerprint: dict | None, files: list[File]) -> None:
    size = sum(file.size for file in files)
    if fingerprint is None:
        raise PrepareError(
            f"{shown(path)} was made from the Hugging Face data set '{dataset}', which is now a folder or file here: "
            "use --local_dataset false to read the Hugging Face data set, or choose another output."
        )
    if size >= MANY_BYTES and not is_unchanged(files, fingerprint, read=False):
        print(f"{shown(dataset)}: comparing {shown_size(size)} with what {shown(path)} was made from.", flush=True)
    if is_unchanged(files, fingerprint):
        return
    then = f"{shown_count(fingerprint['files'], 'file')}, {fingerprint['bytes']:,} bytes"
    now = f"{shown_count(len(files), 'file')}, {size:,} bytes"
    change = f"{then} then, {now} now" if then != now else f"{now} as then, but other names or another content"
    raise PrepareError(
        f"{shown(path)} was made from other files than {shown(dataset)} holds now ({change}): remove it, use "
        f"{OVERWRITE} to create it again, or choose another output."
    )
