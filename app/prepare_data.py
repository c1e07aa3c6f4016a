#!/usr/bin/env python3
"""Turns a data set into the token file that mpzero trains on.

    prepare_data.py assets/tiny_corpus/train.txt data/train.h5 --tokenizer bytes
    prepare_data.py allenai/c4 data/c4.h5 --dataset_config_name en --tokenizer Qwen/Qwen3-0.6B --max_documents 1000000

DATASET is a local file or folder (.txt, .jsonl, .parquet, or saved with save_to_disk), or the name of a Hugging Face
data set, which is streamed. The ids of each document are followed by the end-of-text id; nothing is put before them.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from pathlib import Path

from prepare import PrepareError, encoders, sources
from prepare.cutting import cut
from prepare.encoders import Encoder
from prepare.encoding import default_workers, encode
from prepare.progress import Progress
from prepare.separators import separator_of
from prepare.sources import Source
from prepare.token_file import TokenFile, arguments_of

TRAIN, VALIDATION = 0, 1
# Without --validation_fraction: one percent, but some 200 KB of text, but at most a tenth.
DEFAULT_FRACTION, DEFAULT_BYTES, MOST_BY_DEFAULT = 0.01, 200_000, 0.1


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        arguments.document_separator = separator_of(arguments.document_separator)
        prepare(arguments)
    except PrepareError as error:
        print(f"prepare_data.py: {error}", file=sys.stderr)
        return 2
    except BrokenProcessPool:
        print("prepare_data.py: A worker died, most likely for want of memory: use fewer --workers.", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"prepare_data.py: {error.filename or arguments.output}: {error.strerror or error}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("prepare_data.py: Interrupted; nothing was written.", file=sys.stderr)
        return 130
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", nargs="?", help="local file or folder, or Hugging Face name")
    parser.add_argument("output", nargs="?", type=Path, help="the token file, e.g. data/train.h5")
    parser.add_argument("--dataset", dest="named_dataset", help="the same as DATASET")
    parser.add_argument("--output", dest="named_output", type=Path, help="the same as OUTPUT")
    group = parser.add_argument_group("data set")
    group.add_argument("--dataset_config_name", help="configuration of a Hugging Face data set, e.g. en")
    group.add_argument("--split", default="train", help="default: train")
    group.add_argument("--text_field", default="text", help="column that holds the text (default: text)")
    group.add_argument(
        "--document_separator",
        default="auto",
        metavar="auto|file|line|blank_line|wikitext|TEXT",
        help="what ends a document in .txt files; auto: an article where the file looks like WikiText, else the file; "
        r"TEXT may hold \n \t \r \0 \\ \xHH \uXXXX",
    )
    group.add_argument("--local_dataset", choices=("true", "false"), help="true: never ask Hugging Face; false: always")
    group.add_argument("--max_documents", type=positive, help="stop after so many documents")
    group = parser.add_argument_group("tokenizer")
    group.add_argument(
        "--tokenizer",
        required=True,
        help="'bytes', Hugging Face name, tokenizer.json, or folder with tokenizer.json or vocab.json and merges.txt",
    )
    group.add_argument("--eos_token", help="the token that ends a text, where the tokenizer does not say")
    group.add_argument("--vocab_size", type=positive, help="of the model; must hold all of the tokenizer's ids")
    group = parser.add_argument_group("validation")
    group.add_argument("--validation_output", type=Path, help="token file of the validation documents")
    group.add_argument(
        "--validation_fraction",
        type=fraction,
        help="share of the documents that goes there, evenly spread; default: the data set's own validation split, "
        "or a hundredth where it has none (more of a small text)",
    )
    group = parser.add_argument_group("run")
    group.add_argument("--workers", type=positive, help="processes (default: all cores, fewer for little text)")
    existing = group.add_mutually_exclusive_group()
    existing.add_argument("--if_missing", action="store_true", help="keep an output that the same arguments made")
    existing.add_argument("--overwrite", action="store_true", help="replace the output")
    arguments = parser.parse_args()
    for name in ("dataset", "output"):
        positional, named = getattr(arguments, name), getattr(arguments, f"named_{name}")
        if (positional is None) == (named is None):
            parser.error(
                f"give {name.upper()} once, as the {'first' if name == 'dataset' else 'second'} argument or --{name}"
            )
        setattr(arguments, name, named if positional is None else positional)
    if arguments.validation_fraction is not None and arguments.validation_output is None:
        parser.error("--validation_fraction needs --validation_output")
    if arguments.validation_output is not None and arguments.validation_output.resolve() == arguments.output.resolve():
        parser.error("--validation_output must be another file than the output")
    return arguments


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def fraction(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not between 0 and 1")
    return value


def prepare(arguments: argparse.Namespace) -> None:
    local = is_local(arguments)
    record = arguments_of_record(arguments, local)
    if is_made_already(arguments, record):
        return
    encoder = encoders.load_encoder(arguments.tokenizer, arguments.eos_token, arguments.vocab_size)
    own_validation = (
        arguments.validation_output is not None
        and arguments.validation_fraction is None
        and arguments.split != "validation"
        and sources.has_split(arguments.dataset, arguments.dataset_config_name, "validation", local)
    )
    train = source_of(arguments, arguments.split, local)
    if own_validation:
        validation = source_of(arguments, "validation", local)
        write([arguments.validation_output], validation, encoder, arguments, record, 0.0)
        write([arguments.output], train, encoder, arguments, record, 0.0)
    elif arguments.validation_output is not None:
        outputs = [arguments.output, arguments.validation_output]
        share = arguments.validation_fraction or default_fraction(arguments, local)
        write(outputs, train, encoder, arguments, record, share)
    else:
        write([arguments.output], train, encoder, arguments, record, 0.0)


def is_local(arguments: argparse.Namespace) -> bool:
    name = arguments.dataset
    exists = Path(name).expanduser().exists()
    if arguments.local_dataset == "false":
        return False
    path_like = name.startswith(("/", ".", "~")) or name.count("/") > 1 or Path(name).suffix in sources.KINDS
    if not exists and (path_like or arguments.local_dataset == "true"):
        raise PrepareError(
            f"Data set {name} does not exist: give a file, a folder, or the name of a Hugging Face data set."
        )
    return exists


def arguments_of_record(arguments: argparse.Namespace, local: bool) -> dict:
    """What decides the content of the token files. Folders are left out, so that a checkout can be moved."""
    names = (
        "dataset_config_name",
        "split",
        "text_field",
        "document_separator",
        "max_documents",
        "eos_token",
        "vocab_size",
    )
    return {
        "dataset": sources.fingerprint(arguments.dataset, local),
        "tokenizer": encoders.fingerprint(arguments.tokenizer),
        **{name: getattr(arguments, name) for name in names},
        "validation": arguments.validation_output is not None,
        "validation_fraction": arguments.validation_fraction,
    }


def is_made_already(arguments: argparse.Namespace, record: dict) -> bool:
    outputs = [path for path in (arguments.output, arguments.validation_output) if path is not None]
    existing = [path for path in outputs if path.exists()]
    if not existing or arguments.overwrite:
        return False
    if not arguments.if_missing:
        raise PrepareError(f"{existing[0]} exists: give --overwrite to replace it, or --if_missing to keep it.")
    for path in existing:
        made_from = arguments_of(path)
        if made_from is None:
            raise PrepareError(f"{path} exists and is no token file of this program: remove it, or give --overwrite.")
        if made_from != record:
            name = next(key for key in {**record, **made_from} if made_from.get(key) != record.get(key))
            raise PrepareError(
                f"{path} was made with {name} {made_from.get(name)}, not {record.get(name)}: give --overwrite to "
                "make it anew, or another output."
            )
    if len(existing) < len(outputs):
        return False
    print(f"{' and '.join(map(str, outputs))}: already made from the same arguments.")
    return True


def source_of(arguments: argparse.Namespace, split: str, local: bool) -> Source:
    return Source(
        dataset=arguments.dataset,
        config_name=arguments.dataset_config_name,
        split=split,
        text_field=arguments.text_field,
        separator=arguments.document_separator,
        local=local,
    )


def default_fraction(arguments: argparse.Namespace, local: bool) -> float:
    if not local:
        return DEFAULT_FRACTION
    path = Path(arguments.dataset).expanduser()
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    return min(max(DEFAULT_FRACTION, DEFAULT_BYTES / max(size, 1)), MOST_BY_DEFAULT)


def write(
    outputs: list[Path], source: Source, encoder: Encoder, arguments: argparse.Namespace, record: dict, share: float
) -> None:
    """Writes all outputs or none. outputs: the training file, or that and the validation file, which gets `share`."""
    pieces = assign(source, encoder.cuttable, share, arguments.max_documents)
    files: list[TokenFile] = []
    progress = None
    try:
        for path in outputs:
            files.append(TokenFile(path, encoder.dtype))
        first = list(islice(pieces, 1))  # the source knows its size from here on
        workers = arguments.workers or default_workers(source.total if source.local else None, encoder)
        progress = Progress("Tokenizing", source.total)
        for done, parts in encode(chain(first, pieces), source, encoder, workers):
            for target, tokens, ends in parts:
                files[target].append(tokens, ends)
            progress.update(done, sum(file.num_tokens for file in files))
        seconds = progress.close()
        check_not_empty(files, source, share)
        attributes = {
            "vocab_size": encoder.vocab_size,
            "eos_token_id": encoder.eos_token_id,
            "tokenizer": encoder.name,
            "source": describe(arguments, source.split),
        }
        # The training file comes last: where it is, the other is.
        for file in reversed(files):
            file.commit(attributes, record)
    finally:
        if progress is not None:
            progress.close()
        for file in files:
            file.discard()
    for note in source.notes:
        print(f"{source.dataset}: {note}.")
    for file in files:
        print(
            f"{file.path}: {file.num_tokens:,} tokens, documents: {file.num_documents:,}, type {encoder.dtype}, "
            f"tokenizer {encoder.name}, vocab_size {encoder.vocab_size}, eos {encoder.eos_token_id}."
        )
    total = sum(file.num_tokens for file in files)
    print(f"{seconds:.1f} s, processes: {workers}, {total / max(seconds, 1e-9) / 1e6:.2f} M tokens/s.")


def describe(arguments: argparse.Namespace, split: str) -> str:
    parts = (arguments.dataset, arguments.dataset_config_name, split)
    return " ".join(part for part in parts if part)


def check_not_empty(files: list[TokenFile], source: Source, share: float) -> None:
    if all(file.num_tokens == 0 for file in files):
        raise PrepareError(f"Data set {source.dataset} (split {source.split}) holds no text: nothing was written.")
    for target, file in enumerate(files):
        if file.num_tokens == 0:
            kind = "validation" if target == VALIDATION else "training"
            raise PrepareError(
                f"Data set {source.dataset} has too few documents for a --validation_fraction of {share:g}: no {kind} "
                "text would be left; change the fraction, or cut the text with --document_separator."
            )


def assign(source: Source, cuttable: bool, share: float, limit: int | None) -> Iterator[tuple[str, bool, int]]:
    """-> (text, whether the document ends here, TRAIN or VALIDATION).

    The units that are dealt out are documents, and the pieces of long ones, since a book is one document. Unit i goes
    to validation where i * share + 1/2 passes a whole number on the way to i + 1: the same whatever else is read.
    """
    unit = 0

    def target_of(index: int) -> int:
        return VALIDATION if math.floor((index + 1) * share + 0.5) > math.floor(index * share + 0.5) else TRAIN

    for number, document in enumerate(source.documents()):
        if number == limit:
            return
        for text, last in cut(document, cuttable):
            target = target_of(unit)
            unit += 1
            # A document that goes on in the other file ends in this one.
            yield text, last or target_of(unit) != target, target


if __name__ == "__main__":
    sys.exit(main())
