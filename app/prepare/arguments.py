"""The command line of app/prepare_data.py."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from difflib import get_close_matches
from pathlib import Path

from . import shown
from .masks import MASK, REFUSE, SPLIT
from .pairs import PAIRS
from .row_kinds import FORMATS
from .spans import SPANS


def parser_of(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.usage = "%(prog)s DATASET... OUTPUT --tokenizer TOKENIZER [flags]\n       %(prog)s --rewrite FILE"
    parser.add_argument(
        "paths",
        nargs="*",
        default=[],
        metavar="DATASET OUTPUT",
        help="local files, folders or Hugging Face names, in the order in which they are read, then the token file, "
        "e.g. data/train.h5",
    )
    parser.add_argument("--dataset", dest="datasets", action="append", help="alias of DATASET; repeatable")
    parser.add_argument("--output", type=Path, help="alias of OUTPUT")
    group = parser.add_argument_group("dataset")
    group.add_argument("--dataset_config_name", help="configuration of a Hugging Face dataset, e.g. en")
    group.add_argument(
        "--split",
        help="train (default), validation or test; in a folder, files are selected by name or by README.md",
    )
    group.add_argument(
        "--files",
        action="append",
        default=[],
        metavar="PATTERN",
        help="pattern of the files to read in a folder, ignoring splits in their names, e.g. '*.jsonl'; repeatable",
    )
    group.add_argument(
        "--text_column",
        "--text_field",
        action="append",
        default=[],
        metavar="NAME",
        help="text column (CSV, TSV, Parquet) or key (JSON) (default: text); DATASET=NAME applies to one dataset; "
        "repeatable",
    )
    group.add_argument(
        "--document_separator",
        default="auto",
        metavar="auto|file|line|blank_line|wikitext|TEXT",
        help="document separator in text files (auto: wikitext for WikiText-like files, else file); "
        r"TEXT may contain \n \t \r \0 \\ \xHH \uXXXX",
    )
    group.add_argument(
        "--skip_empty",
        action="store_true",
        help="skip and count rows without the text column; rows with empty text are always skipped",
    )
    group.add_argument(
        "--local_dataset",
        choices=("true", "false"),
        help="whether DATASET is a path (default: true if the path exists)",
    )
    group.add_argument("--max_documents", type=positive, help="maximum number of documents")
    group = parser.add_argument_group("fine-tuning")
    group.add_argument(
        "--format",
        choices=("auto", *FORMATS, PAIRS, SPANS),
        default="auto",
        help="row format. chat: messages, ShareGPT conversations, or instruction and output; prompt_completion: prompt "
        "and completion; text: documents, with loss on all tokens; pairs: source and target for an encoder-decoder; "
        "spans: documents with T5 span corruption; auto (default): chat, prompt_completion or text, detected from the "
        "columns of the first row",
    )
    group.add_argument(
        "--seq_length",
        type=positive,
        metavar="S",
        help="tokens per packed row (for pairs, source plus target), equal to the --seq_length of training; longer "
        "examples are truncated",
    )
    group.add_argument("--source_length", type=positive, metavar="S", help="number of source tokens per pair")
    group.add_argument(
        "--source_column", default="source", metavar="NAME", help="for pairs: source column (default: source)"
    )
    group.add_argument(
        "--target_column", default="target", metavar="NAME", help="for pairs: target column (default: target)"
    )
    group.add_argument("--source_prefix", default="", metavar="TEXT", help="prefix of each source, e.g. 'summarize: '")
    group.add_argument("--train_padding", action="store_true", help="for pairs, include target padding in the loss")
    group.add_argument("--span_seed", type=int, default=0, metavar="N", help="random seed for spans (default: 0)")
    group.add_argument(
        "--packing",
        choices=("true", "false"),
        help="pack several examples per row; false: one padded example per row (default: true)",
    )
    group.add_argument("--chat_template", type=Path, metavar="FILE", help="Jinja template (default: the tokenizer's)")
    group.add_argument(
        "--chat_template_kwargs",
        metavar="JSON",
        help="template variables, e.g. '{\"enable_thinking\": false}'; variables in a row take precedence",
    )
    group.add_argument(
        "--rewritten_turns",
        choices=(SPLIT, MASK, REFUSE),
        help="how to handle assistant turns that the template renders differently when other messages follow (e.g. "
        "Qwen3's reasoning): split (separate examples, default), mask (exclude from the loss) or refuse (error)",
    )
    group = parser.add_argument_group("tokenizer")
    group.add_argument(
        "--tokenizer",
        help="bytes, Hugging Face name, tokenizer.json, or folder with tokenizer.json or vocab.json and merges.txt",
    )
    group.add_argument("--eos_token", metavar="TOKEN", help="end-of-text token (default: the tokenizer's)")
    group.add_argument(
        "--add_bos",
        choices=("auto", "true", "false"),
        default="auto",
        help="prepend BOS to documents (auto: follow the tokenizer's post-processor)",
    )
    group.add_argument(
        "--special_tokens",
        choices=("text", "ids"),
        help="encode special token names in text, e.g. </s>, as plain text or as special ids (default: text; ids in "
        "conversations)",
    )
    group.add_argument("--vocab_size", type=positive, help="vocabulary size of the model, at least the tokenizer's")
    group = parser.add_argument_group("validation")
    group.add_argument("--validation_output", type=Path, help="token file for validation documents")
    group.add_argument(
        "--validation_fraction",
        type=fraction,
        help="fraction of the documents to use for validation, evenly spaced (default: the dataset's validation split, "
        "else 0.01, more for small datasets)",
    )
    group = parser.add_argument_group("run")
    group.add_argument(
        "--workers", type=positive, help="number of processes (default: one per core, fewer for small datasets)"
    )
    existing = group.add_mutually_exclusive_group()
    existing.add_argument(
        "--if_missing", action="store_true", help="keep an existing output that was created with the same arguments"
    )
    existing.add_argument("--overwrite", action="store_true", help="replace existing output files")
    existing.add_argument(
        "--rewrite",
        type=Path,
        metavar="FILE",
        help="only add checksums to a token file written by an older version or another program",
    )
    return parser


def parse_known(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parses the command line. Reports unknown flags, with the most similar flag, before missing arguments."""
    names = [name for action in parser._actions for name in action.option_strings]
    for word in itertools.takewhile(lambda word: word != "--", sys.argv[1:]):
        flag = word.partition("=")[0]
        # As in argparse, a word with a space is a value.
        if not re.fullmatch(r"--\S+|-[A-Za-z]", flag) or flag in names:
            continue
        # "-p" and "--pro" abbreviate the first flag that begins with these letters.
        near = [name for name in names if name.startswith(flag if flag.startswith("--") else f"-{flag}")]
        if not near and len(flag) > 2:
            near = get_close_matches(flag.replace("--val_", "--validation_"), names, 1)
        hint = f"did you mean {near[0]}?" if near else "see --help."
        parser.exit(2, f"{parser.prog}: {shown(word)} is not a known flag; {hint}\n")
    arguments, unknown = parser.parse_known_args()
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return arguments


def parse_arguments(description: str) -> argparse.Namespace:
    """Parses the command line. Adds `given`: names of the arguments that differ from their defaults."""
    parser = parser_of(description)
    arguments = parse_known(parser)
    given = frozenset(name for name, value in vars(arguments).items() if value != parser.get_default(name))
    if arguments.rewrite is not None:
        if given != {"rewrite"}:
            parser.error("--rewrite FILE cannot be combined with other arguments")
        return arguments
    arguments.given = given
    if arguments.tokenizer is None:
        parser.error("the following arguments are required: --tokenizer")
    paths = arguments.paths
    if arguments.datasets is None:
        last = len(paths) - (arguments.output is None)
        arguments.datasets, paths = paths[: max(last, 1)], paths[max(last, 1) :]
    if arguments.output is None and paths:
        arguments.output = Path(paths.pop())
    if not arguments.datasets or paths:
        parser.error("pass the datasets as the first arguments or with --dataset, not both")
    if arguments.output is None:
        parser.error("pass OUTPUT once, as the last argument or with --output")
    if len(arguments.datasets) > 1 and (arguments.files or arguments.dataset_config_name):
        parser.error("--files and --dataset_config_name need a single DATASET")
    if len(set(arguments.datasets)) < len(arguments.datasets):
        parser.error("pass each DATASET once")
    if arguments.validation_fraction is not None and arguments.validation_output is None:
        parser.error("--validation_fraction needs --validation_output")
    if arguments.validation_output is not None and arguments.validation_output.resolve() == arguments.output.resolve():
        parser.error("--validation_output must differ from the output")
    if arguments.files and arguments.split is not None:
        parser.error("pass either --files or --split")
    return arguments


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


def fraction(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, not {value}")
    return value
