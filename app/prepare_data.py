#!/usr/bin/env python3
"""Tokenizes datasets into a token file for mpzero train.

    prepare_data.py assets/tiny_corpus/train.txt data/train.h5 --tokenizer bytes
    prepare_data.py allenai/c4 data/c4.h5 --dataset_config_name en --tokenizer Qwen/Qwen3-0.6B --max_documents 1000000
    prepare_data.py notes.jsonl pages.parquet data/mine.h5 --text_column pages.parquet=body --tokenizer bytes
    prepare_data.py conversations.jsonl data/sft.h5 --tokenizer Qwen/Qwen3-0.6B --seq_length 4096
    prepare_data.py --rewrite data/old.h5

DATASET is a local file or folder (.txt, .jsonl, .csv, .tsv, also compressed as .gz or .zst; .parquet; save_to_disk)
or a Hugging Face dataset, which is streamed. Each document ends with the end-of-text id. The final report lists the
files that were read or skipped (docs/data.md).

Conversations are rendered with the chat template and packed into rows of --seq_length tokens. Only assistant turns
contribute to the loss (docs/finetuning.md).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from functools import partial
from getpass import getuser
from itertools import chain, islice
from pathlib import Path

from prepare import PrepareError, encoders, pairs, shown, shown_count
from prepare.arguments import parse_arguments
from prepare.cutting import Cuts, cut
from prepare.encoders import Encoder
from prepare.encoding import Part, Piece, Texts, default_workers, encode
from prepare.examples import Examples
from prepare.finetuning import (
    OF_TEMPLATE,
    PackedOutput,
    check_trained,
    print_counts,
    print_examples,
    renderer_of,
    settle_format,
    units_of,
)
from prepare.kinds import kind_of
from prepare.pairs import PAIRS
from prepare.plan import TRAIN, VALIDATION, Input, Job, drop_config_name, is_local, jobs_of, plan_of, target_of
from prepare.progress import Progress
from prepare.records import CONTENT, TOO_FEW, is_made_already, record_of_all, record_of_format
from prepare.report import print_files_left_out, print_files_read
from prepare.rewriting import rewrite
from prepare.row_kinds import TEXT
from prepare.selection import some
from prepare.separators import separator_of
from prepare.sources import FileSource, Source
from prepare.spans import SPANS, SpansOutput
from prepare.survey import LeftOut
from prepare.token_file import TokenFile
from run_files.utf8 import restart_in_utf8


def main() -> int:
    sys.stdout.reconfigure(errors="backslashreplace")  # file names need not be UTF-8
    arguments = parse_arguments(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if arguments.rewrite is not None:
            rewrite(arguments.rewrite)
            return 0
        arguments.document_separator = separator_of(arguments.document_separator)
        prepare(arguments)
    except PrepareError as error:
        # The launch scripts set this text.
        how = os.environ.get("MPZERO_HOW_TO_PASS_FLAGS") if "--" in str(error) else None
        print(f"prepare_data.py: {error}" + (f" Pass flags as in {how}." if how else ""), file=sys.stderr)
        return 2
    except BrokenProcessPool:
        print(
            "prepare_data.py: a worker process died, probably out of memory: reduce --workers.",
            file=sys.stderr,
        )
        return 1
    except PermissionError as error:
        path = place_of(error, arguments)
        print(
            f"prepare_data.py: {path} cannot be read or written ({error.strerror}): fix the permissions for "
            f"{getuser()}, or use other files.",
            file=sys.stderr,
        )
        return 2
    except OSError as error:
        print(f"prepare_data.py: {place_of(error, arguments)}: {error.strerror or error}.", file=sys.stderr)
        return 1
    except RecursionError:  # raised by pickle, which sends rows to workers
        print(
            "prepare_data.py: a row is nested too deeply to send to worker processes: use --workers 1.", file=sys.stderr
        )
        return 2
    except KeyboardInterrupt:
        print("prepare_data.py: interrupted; unfinished output was discarded.", file=sys.stderr)
        return 130
    return 0


def place_of(error: OSError, arguments: argparse.Namespace) -> str:
    """Returns the path in the error, or all input and output paths if the error has none."""
    files = [arguments.rewrite] if arguments.rewrite is not None else [*arguments.datasets, arguments.output]
    return shown(error.filename or " or ".join(map(str, files)))


def column_of(given: str, datasets: list[str]) -> tuple[str | None, str]:
    """Splits a --text_column into (dataset, column); the dataset is None if the column applies to all datasets.
    "FILE=NAME" matches any path to the file. Both parts may contain "="."""
    for end in (i for i, character in enumerate(given) if character == "="):
        name, column = given[:end], given[end + 1 :]
        for dataset in datasets:
            if name == dataset or (os.path.exists(name) and os.path.realpath(name) == os.path.realpath(dataset)):
                return dataset, column
    return None, given


def input_of(arguments: argparse.Namespace, dataset: str) -> Input:
    own = argparse.Namespace(**{**vars(arguments), "dataset": dataset, "text_column": "text"})
    columns = [column_of(given, arguments.datasets) for given in arguments.text_column]
    # A column for this dataset takes precedence.
    for of, column in sorted(columns, key=lambda one: one[0] == dataset):
        if of in (None, dataset):
            own.text_column = column
    local = is_local(own)
    if local and (said := drop_config_name(own)):
        print(said)
    return Input(own, plan_of(own) if local else None)


def prepare(arguments: argparse.Namespace) -> None:
    if arguments.output.is_dir() or kind_of(arguments.output.name):
        name = shown(arguments.output)
        raise PrepareError(f"OUTPUT is missing: {name} is a dataset; append a token file, e.g. data/train.h5.")
    inputs = [input_of(arguments, dataset) for dataset in arguments.datasets]
    record = record_of_all(inputs)
    if is_made_already(inputs, record):
        return
    format = settle_format(inputs, arguments)
    for item in inputs:
        item.arguments.format = format
    encoder = encoders.load_encoder(
        arguments.tokenizer,
        arguments.eos_token,
        arguments.vocab_size,
        arguments.add_bos,
        arguments.special_tokens or ("text" if format in (TEXT, PAIRS, SPANS) else "ids"),
    )
    left_out = {item.arguments.dataset: list(item.plan.left_out) if item.plan else [] for item in inputs}
    for job in jobs_of(inputs):
        write(job, encoder, inputs[0].arguments, {**record, **record_of_format(arguments, format)})
        for source in job.source.parts:
            left_out[source.dataset] += report(source, job.outputs, arguments.max_documents)
    for dataset, files in left_out.items():
        print_files_left_out(shown(dataset), files)


def is_without_validation(outputs: list) -> bool:
    return outputs[VALIDATION].num_tokens == 0 < outputs[TRAIN].num_tokens


class TextOutput:
    """A token file of documents."""

    def __init__(self, path: Path, encoder: Encoder):
        self.file = TokenFile(path, encoder.dtype)
        self.special_tokens = 0

    @property
    def num_tokens(self) -> int:
        return self.file.num_tokens

    def add(self, part: Part) -> None:
        self.file.append(part.tokens, part.ends)
        self.special_tokens += part.special_tokens

    def finish(self) -> None:
        pass

    def attributes(self) -> dict[str, int | str]:
        return {"special_tokens_in_text": self.special_tokens}


def write(job: Job, encoder: Encoder, arguments: argparse.Namespace, record: dict) -> None:
    """Writes all outputs of the job, or none if an error occurs."""
    source, is_text = job.source, arguments.format == TEXT
    if arguments.format in (TEXT, SPANS):
        work, output_of = Texts(encoder), partial(TextOutput, encoder=encoder)
        if not is_text:
            output_of = partial(SpansOutput, encoder=encoder, arguments=arguments)
        pieces = assign(source, encoder.cuts, job.validation_share, arguments.max_documents)
    elif arguments.format == PAIRS:
        work = pairs.work_of(encoder, arguments)
        output_of = partial(pairs.PairsOutput, encoder=encoder, work=work, arguments=arguments)
        pieces = units_of(source, job.validation_share, arguments.max_documents)
    else:
        unused = next((name for name in OF_TEMPLATE if name in arguments.given), None)
        renderer = renderer_of(arguments, encoder)
        chosen = "format" in arguments.given
        work = Examples(encoder, arguments.format, arguments.seq_length, renderer, unused, chosen)
        output_of = partial(PackedOutput, encoder=encoder, renderer=renderer, arguments=arguments)
        pieces = units_of(source, job.validation_share, arguments.max_documents)
    outputs: list = []
    progress = None
    try:
        for path in job.outputs:
            outputs.append(output_of(path))
        first = list(islice(pieces, 1))  # the first read sets source.total
        workers = arguments.workers or default_workers(source.num_bytes, encoder)
        progress = Progress("Tokenizing", source.total)
        for done, parts in encode(chain(first, pieces), source, work, workers):
            for target, part in parts:
                outputs[target].add(part)
            progress.update(done, sum(output.num_tokens for output in outputs))
        seconds = progress.close()
        if arguments.validation_fraction is None and job.validation_share > 0 and is_without_validation(outputs):
            outputs.pop(VALIDATION).file.discard()
            record = {**record, "validation": TOO_FEW}
            print(
                f"{shown(source.dataset)} has too few documents for a validation split: "
                f"{shown(job.outputs.pop(VALIDATION))} is not written. Split the text with --document_separator, "
                "or set --validation_fraction."
            )
        for output in outputs:
            output.finish()
        if is_text:
            check_not_empty([output.file for output in outputs], source, job.validation_share)
        elif arguments.format == PAIRS:
            pairs.check_pairs(outputs, source)
        elif arguments.format != SPANS:
            check_trained(outputs, source)
        attributes = {**encoder.attributes(), "source": describe(arguments, source.split)}
        content = source.fingerprint()
        # Commit the training file last: its existence implies that the validation file exists.
        for output in reversed(outputs):
            output.file.commit({**attributes, **output.attributes()}, {**record, CONTENT: content})
    finally:
        if progress is not None:
            progress.close()
        for output in outputs:
            output.file.discard()
    for part in source.parts:
        for note in notes_of(part):
            print(f"{shown(part.dataset)}: {note}.")
    if is_text:
        print_texts(outputs, encoder)
    elif arguments.format in (PAIRS, SPANS):
        for output in outputs:
            pairs.print_pairs(output)
    else:
        if job.outputs[TRAIN] == arguments.output:
            print_examples(outputs[TRAIN], encoder)
        for output in outputs:
            print_counts(output, encoder, arguments)
    total = sum(output.num_tokens for output in outputs)
    print(f"{seconds:.1f} s, processes: {workers}, {total / max(seconds, 1e-9) / 1e6:.2f} M tokens/s.")


def print_texts(outputs: list[TextOutput], encoder: Encoder) -> None:
    for file in (output.file for output in outputs):
        print(
            f"{shown(file.path)}: {file.num_tokens:,} tokens, documents: {file.num_documents:,}, dtype "
            f"{encoder.dtype}, tokenizer {shown(encoder.name)}, vocab_size {encoder.vocab_size}, eos "
            f"{encoder.eos_token_id}, "
            + (f"BOS {encoder.bos_token_id} before each document." if encoder.add_bos else "no BOS.")
        )
    for note in encoder.notes:
        print(f"{shown(encoder.name)}: {note}.")
    if encoder.special_names:
        print(
            f"Special token names in the text: {sum(output.special_tokens for output in outputs):,}, encoded as "
            f"{encoder.special_tokens} (--special_tokens)."
        )


def report(source: Source, outputs: list[Path], max_documents: int | None) -> list[LeftOut]:
    """Prints the files that were read, and returns the files beyond --max_documents."""
    if not isinstance(source, FileSource):
        return []
    outputs = " and ".join(shown(path) for path in outputs)
    if source.num_read > 0:
        print_files_read(outputs, shown(source.dataset), source.files[: source.num_read])
    reason = f"beyond --max_documents {max_documents}"
    return [LeftOut(file.name, file.size, reason, False) for file in source.files[source.num_read :]]


def notes_of(source: Source) -> list[str]:
    """Returns notes for the user about the documents."""
    notes = list(source.notes)
    if source.num_empty_rows:
        notes.append(f"{source.num_empty_rows:,} of {source.num_rows:,} rows have no text and are skipped")
    if isinstance(source, FileSource) and (copies := source.copies()):
        names = some([f"{copy.name} (as {original.name})" for copy, original in copies])
        notes.append(f"{shown_count(len(copies), 'file')} with the same content as another file: {names}")
    if isinstance(source, FileSource) and source.blank:
        blank = some([path.name for path in source.blank])
        notes.append(f"{shown_count(len(source.blank), 'file')} with only whitespace, kept as empty documents: {blank}")
    read = isinstance(source, FileSource) and source.num_read > 0
    if read and source.num_rows == 0 and source.reading.column != "text":
        notes.append(f"--text_column {source.reading.column} has no effect, because the files have no columns")
    return notes


def describe(arguments: argparse.Namespace, split: str) -> str:
    parts = (*arguments.datasets, arguments.dataset_config_name, split)
    return " ".join(shown(part) for part in parts if part)


def check_not_empty(files: list[TokenFile], source: Source, share: float) -> None:
    if isinstance(source, FileSource) and 0 < len(source.blank) == source.num_read:
        raise PrepareError(
            f"{shown(source.dataset)} contains only whitespace ({some([path.name for path in source.blank])}): "
            "use a file with text."
        )
    if all(file.num_tokens == 0 for file in files):
        raise PrepareError(f"dataset {source.dataset} (split {source.split}) contains no text.")
    for target, file in enumerate(files):
        if file.num_tokens == 0:
            kind = "validation" if target == VALIDATION else "training"
            raise PrepareError(
                f"dataset {source.dataset} has too few documents for a --validation_fraction of {share:g}: the {kind} "
                "split would be empty; change the fraction, or split the text with --document_separator."
            )


def assign(source: Source, cuts: Cuts, share: float, limit: int | None) -> Iterator[Piece]:
    """Assigns documents to TRAIN and VALIDATION. Long documents, such as books, are split into pieces."""
    unit = 0
    name = f"A document of {shown(source.dataset)}"
    # Closing the iterator computes the fingerprint of the data read.
    with closing(source.documents()) as documents:
        for document in islice(documents, limit):
            begins = True
            for before, text, is_last in cut(document, cuts, name=name):
                target = target_of(unit, share)
                unit += 1
                # The document ends with this piece if the next piece goes to the other split.
                ends = is_last or target_of(unit, share) != target
                yield Piece(before, text, begins, ends, target)
                begins = ends


if __name__ == "__main__":
    restart_in_utf8()
    sys.exit(main())
