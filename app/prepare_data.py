#!/usr/bin/env python3
"""Converts a data set into the token file that mpzero trains on.

    prepare_data.py assets/tiny_corpus/train.txt data/train.h5 --tokenizer bytes
    prepare_data.py allenai/c4 data/c4.h5 --dataset_config_name en --tokenizer Qwen/Qwen3-0.6B --max_documents 1000000
    prepare_data.py notes.jsonl pages.parquet data/mine.h5 --text_column pages.parquet=body --tokenizer bytes
    prepare_data.py --rewrite data/old.h5

DATASET is a local file or folder (.txt, .jsonl, .csv, .tsv, .parquet, the first four also as .gz or .zst, or saved with
save_to_disk), or the name of a Hugging Face data set, which is streamed. The ids of each document are followed by the
end-of-text id, and preceded by BOS where the tokenizer adds it (--add_bos). The final report lists what was read, and
what was not and why (docs/data.md).
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from getpass import getuser
from itertools import chain, islice
from pathlib import Path

from prepare import PrepareError, encoders, shown, shown_count
from prepare.cutting import Cuts, cut
from prepare.encoders import Encoder
from prepare.encoding import Piece, default_workers, encode
from prepare.plan import Input, Job, drop_config_name, is_local, jobs_of, plan_of
from prepare.progress import Progress
from prepare.records import CONTENT, is_made_already, record_of_all
from prepare.report import print_files_left_out, print_files_read
from prepare.rewriting import rewrite
from prepare.selection import some
from prepare.separators import separator_of
from prepare.sources import FileSource, Source
from prepare.survey import LeftOut
from prepare.token_file import TokenFile
from run_files.utf8 import restart_in_utf8

TRAIN, VALIDATION = 0, 1


def main() -> int:
    sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be UTF-8
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if arguments.rewrite is not None:
            rewrite(arguments.rewrite)
            return 0
        arguments.document_separator = separator_of(arguments.document_separator)
        prepare(arguments)
    except PrepareError as error:
        print(f"prepare_data.py: {error}", file=sys.stderr)
        return 2
    except BrokenProcessPool:
        print(
            "prepare_data.py: A worker died, most likely because it ran out of memory: use fewer --workers.",
            file=sys.stderr,
        )
        return 1
    except PermissionError as error:
        path = place_of(error, arguments)
        print(
            f"prepare_data.py: {path} cannot be read or written ({error.strerror}): give {getuser()} permission, or "
            "choose other files.",
            file=sys.stderr,
        )
        return 2
    except OSError as error:
        print(f"prepare_data.py: {place_of(error, arguments)}: {error.strerror or error}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("prepare_data.py: Interrupted; nothing was written.", file=sys.stderr)
        return 130
    return 0


def place_of(error: OSError, arguments: argparse.Namespace) -> str:
    """An error that names no file may be of what is read, or of what is written."""
    files = [arguments.rewrite] if arguments.rewrite is not None else [*arguments.datasets, arguments.output]
    return shown(error.filename or " or ".join(map(str, files)))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.usage = "%(prog)s DATASET... OUTPUT --tokenizer TOKENIZER [flags]\n       %(prog)s --rewrite FILE"
    parser.add_argument(
        "paths",
        nargs="*",
        default=[],
        metavar="DATASET OUTPUT",
        help="local files or folders, or Hugging Face names, which are read in this order; then the token file, e.g. "
        "data/train.h5",
    )
    parser.add_argument("--dataset", dest="datasets", action="append", help="the same as DATASET; can be repeated")
    parser.add_argument("--output", type=Path, help="the same as OUTPUT")
    group = parser.add_argument_group("data set")
    group.add_argument("--dataset_config_name", help="configuration of a Hugging Face data set, e.g. en")
    group.add_argument(
        "--split",
        help="train (the default), validation or test; of a folder, the files whose names or README.md have this split",
    )
    group.add_argument(
        "--files",
        action="append",
        default=[],
        metavar="PATTERN",
        help="files of a folder to read, regardless of the splits in their names, such as '*.jsonl'; can be repeated",
    )
    group.add_argument(
        "--text_column",
        "--text_field",
        action="append",
        default=[],
        metavar="NAME",
        help="column of CSV, TSV and Parquet, or key of JSON, that contains the text (default: text); DATASET=NAME: of "
        "that data set alone; can be repeated",
    )
    group.add_argument(
        "--document_separator",
        default="auto",
        metavar="auto|file|line|blank_line|wikitext|TEXT",
        help="what ends a document in files of text; auto: an article if the file looks like WikiText, else the "
        r"file; TEXT may contain \n \t \r \0 \\ \xHH \uXXXX",
    )
    group.add_argument(
        "--skip_empty",
        action="store_true",
        help="leave out rows that lack the column, and count them; rows whose text is empty always are",
    )
    group.add_argument("--local_dataset", choices=("true", "false"), help="true: never ask Hugging Face; false: always")
    group.add_argument("--max_documents", type=positive, help="stop after this many documents")
    group = parser.add_argument_group("tokenizer")
    group.add_argument(
        "--tokenizer",
        help="'bytes', Hugging Face name, tokenizer.json, or folder with tokenizer.json or vocab.json and merges.txt",
    )
    group.add_argument(
        "--eos_token", metavar="TOKEN", help="the end-of-text token, if the tokenizer's files declare none"
    )
    group.add_argument(
        "--add_bos",
        choices=("auto", "true", "false"),
        default="auto",
        help="whether documents begin with BOS; auto: as the tokenizer's post-processor does",
    )
    group.add_argument(
        "--special_tokens",
        choices=("text", "ids"),
        default="text",
        help="how names of special tokens within texts, such as </s>, are encoded: as text like all other, or as the "
        "special ids (default: text)",
    )
    group.add_argument("--vocab_size", type=positive, help="of the model; must hold all of the tokenizer's ids")
    group = parser.add_argument_group("validation")
    group.add_argument("--validation_output", type=Path, help="token file of the validation documents")
    group.add_argument(
        "--validation_fraction",
        type=fraction,
        help="fraction of the documents for validation, evenly spread; default: the data set's own validation split, "
        "or a hundredth if it has none (more for a small text)",
    )
    group = parser.add_argument_group("run")
    group.add_argument("--workers", type=positive, help="processes (default: all cores, fewer for little text)")
    existing = group.add_mutually_exclusive_group()
    existing.add_argument(
        "--if_missing", action="store_true", help="keep an output that was made with the same arguments"
    )
    existing.add_argument("--overwrite", action="store_true", help="replace the output")
    existing.add_argument(
        "--rewrite",
        type=Path,
        metavar="FILE",
        help="add checksums to a token file of an older version or another program; nothing is tokenized, and no other "
        "argument is needed",
    )
    arguments = parser.parse_args()
    if arguments.rewrite is not None:
        if any(value != parser.get_default(name) for name, value in vars(arguments).items() if name != "rewrite"):
            parser.error("--rewrite FILE takes no other argument")
        return arguments
    if arguments.tokenizer is None:
        parser.error("the following arguments are required: --tokenizer")
    paths = arguments.paths
    if arguments.datasets is None:
        last = len(paths) - (arguments.output is None)
        arguments.datasets, paths = paths[: max(last, 1)], paths[max(last, 1) :]
    if arguments.output is None and paths:
        arguments.output = Path(paths.pop())
    if not arguments.datasets or paths:
        parser.error("give each DATASET once, as the first arguments or --dataset")
    if arguments.output is None:
        parser.error("give OUTPUT once, as the last argument or --output")
    if len(arguments.datasets) > 1 and (arguments.files or arguments.dataset_config_name):
        parser.error("--files and --dataset_config_name need a single DATASET")
    if len(set(arguments.datasets)) < len(arguments.datasets):
        parser.error("give each DATASET once")
    if arguments.validation_fraction is not None and arguments.validation_output is None:
        parser.error("--validation_fraction needs --validation_output")
    if arguments.validation_output is not None and arguments.validation_output.resolve() == arguments.output.resolve():
        parser.error("--validation_output must be another file than the output")
    if arguments.files and arguments.split is not None:
        parser.error("give --files or --split")
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


def input_of(arguments: argparse.Namespace, dataset: str) -> Input:
    own = argparse.Namespace(**{**vars(arguments), "dataset": dataset, "text_column": "text"})
    named = tuple(f"{name}=" for name in arguments.datasets)
    # What is given for this data set wins.
    for given in sorted(arguments.text_column, key=lambda given: given.startswith(f"{dataset}=")):
        if given.startswith(f"{dataset}=") or not given.startswith(named):
            own.text_column = given.removeprefix(f"{dataset}=")
    local = is_local(own)
    if local and (said := drop_config_name(own)):
        print(said)
    return Input(own, plan_of(own) if local else None)


def prepare(arguments: argparse.Namespace) -> None:
    inputs = [input_of(arguments, dataset) for dataset in arguments.datasets]
    record = record_of_all(inputs)
    if is_made_already(inputs, record):
        return
    encoder = encoders.load_encoder(
        arguments.tokenizer, arguments.eos_token, arguments.vocab_size, arguments.add_bos, arguments.special_tokens
    )
    left_out = {item.arguments.dataset: list(item.plan.left_out) if item.plan else [] for item in inputs}
    for job in jobs_of(inputs):
        write(job, encoder, inputs[0].arguments, record)
        for source in job.source.parts:
            left_out[source.dataset] += report(source, job.outputs, arguments.max_documents)
    for dataset, files in left_out.items():
        print_files_left_out(shown(dataset), files)


def write(job: Job, encoder: Encoder, arguments: argparse.Namespace, record: dict) -> None:
    """Writes all outputs of the job or none."""
    source = job.source
    pieces = assign(source, encoder.cuts, job.validation_share, arguments.max_documents)
    files: list[TokenFile] = []
    special_tokens = [0] * len(job.outputs)
    progress = None
    try:
        for path in job.outputs:
            files.append(TokenFile(path, encoder.dtype))
        first = list(islice(pieces, 1))  # from here on the source knows its size
        workers = arguments.workers or default_workers(source.num_bytes, encoder)
        progress = Progress("Tokenizing", source.total)
        for done, parts in encode(chain(first, pieces), source, encoder, workers):
            for part in parts:
                files[part.target].append(part.tokens, part.ends)
                special_tokens[part.target] += part.special_tokens
            progress.update(done, sum(file.num_tokens for file in files))
        seconds = progress.close()
        check_not_empty(files, source, job.validation_share)
        attributes = {**encoder.attributes(), "source": describe(arguments, source.split)}
        content = source.fingerprint()
        # The training file comes last: if it exists, the other one does.
        for file, count in reversed(list(zip(files, special_tokens, strict=True))):
            file.commit({**attributes, "special_tokens_in_text": count}, {**record, CONTENT: content})
    finally:
        if progress is not None:
            progress.close()
        for file in files:
            file.discard()
    for part in source.parts:
        for note in notes_of(part):
            print(f"{shown(part.dataset)}: {note}.")
    for file in files:
        print(
            f"{shown(file.path)}: {file.num_tokens:,} tokens, documents: {file.num_documents:,}, type {encoder.dtype}, "
            f"tokenizer {shown(encoder.name)}, vocab_size {encoder.vocab_size}, eos {encoder.eos_token_id}, "
            + (f"BOS {encoder.bos_token_id} before each document." if encoder.add_bos else "no BOS.")
        )
    for note in encoder.notes:
        print(f"{shown(encoder.name)}: {note}.")
    if encoder.special_names:
        print(
            f"Names of special tokens within texts: {sum(special_tokens):,}, encoded as {encoder.special_tokens} "
            "(--special_tokens)."
        )
    total = sum(file.num_tokens for file in files)
    print(f"{seconds:.1f} s, processes: {workers}, {total / max(seconds, 1e-9) / 1e6:.2f} M tokens/s.")


def report(source: Source, outputs: list[Path], max_documents: int | None) -> list[LeftOut]:
    """-> files that were not read"""
    if not isinstance(source, FileSource):
        return []
    outputs = " and ".join(shown(path) for path in outputs)
    if source.num_read > 0:
        print_files_read(outputs, shown(source.dataset), source.files[: source.num_read])
    reason = f"after the last of --max_documents {max_documents}"
    return [LeftOut(file.name, file.size, reason, False) for file in source.files[source.num_read :]]


def notes_of(source: Source) -> list[str]:
    """Notes for the user about the documents."""
    notes = list(source.notes)
    if source.num_empty_rows:
        notes.append(f"{source.num_empty_rows:,} of {source.num_rows:,} rows hold no text, and are left out")
    if isinstance(source, FileSource) and (copies := source.copies()):
        names = some([f"{copy.name} (as {original.name})" for copy, original in copies])
        notes.append(f"{shown_count(len(copies), 'file')} read again, under another name with the same bytes: {names}")
    if isinstance(source, FileSource) and source.blank:
        blank = some([path.name for path in source.blank])
        notes.append(f"{shown_count(len(source.blank), 'file')} of white space alone, kept as empty documents: {blank}")
    read = isinstance(source, FileSource) and source.num_read > 0
    if read and source.num_rows == 0 and source.reading.column != "text":
        notes.append(f"no file has columns, so --text_column {source.reading.column} has no effect")
    return notes


def describe(arguments: argparse.Namespace, split: str) -> str:
    parts = (*arguments.datasets, arguments.dataset_config_name, split)
    return " ".join(shown(part) for part in parts if part)


def check_not_empty(files: list[TokenFile], source: Source, share: float) -> None:
    if isinstance(source, FileSource) and 0 < len(source.blank) == source.num_read:
        raise PrepareError(
            f"{shown(source.dataset)} holds white space alone ({some([path.name for path in source.blank])}): nothing "
            "was written; give a file with text."
        )
    if all(file.num_tokens == 0 for file in files):
        raise PrepareError(f"Data set {source.dataset} (split {source.split}) holds no text: nothing was written.")
    for target, file in enumerate(files):
        if file.num_tokens == 0:
            kind = "validation" if target == VALIDATION else "training"
            raise PrepareError(
                f"Data set {source.dataset} has too few documents for a --validation_fraction of {share:g}: no {kind} "
                "text would be left; change the fraction, or cut the text with --document_separator."
            )


def assign(source: Source, cuts: Cuts, share: float, limit: int | None) -> Iterator[Piece]:
    """The units that are distributed to TRAIN and VALIDATION are documents, and the pieces of long ones, since a book
    is one document. Unit i goes to validation if an integer is between i * share + 1/2 and (i + 1) * share + 1/2,
    independent of what else is read."""
    unit = 0

    def target_of(index: int) -> int:
        return VALIDATION if math.floor((index + 1) * share + 0.5) > math.floor(index * share + 0.5) else TRAIN

    name = f"A document of {shown(source.dataset)}"
    # Once closed, it has the fingerprint of what was read.
    with closing(source.documents()) as documents:
        for document in islice(documents, limit):
            begins = True
            for before, text, is_last in cut(document, cuts, name=name):
                target = target_of(unit)
                unit += 1
                # A document that continues in the other file ends in this one.
                ends = is_last or target_of(unit) != target
                yield Piece(before, text, begins, ends, target)
                begins = ends


if __name__ == "__main__":
    restart_in_utf8()
    sys.exit(main())
