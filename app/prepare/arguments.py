"""The command line of app/prepare_data.py."""

from __future__ import annotations

import argparse
from pathlib import Path

from .chat import FORMATS
from .masks import MASK, REFUSE, SPLIT
from .pairs import PAIRS
from .spans import SPANS


def parser_of(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
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
    group = parser.add_argument_group("fine-tuning")
    group.add_argument(
        "--format",
        choices=("auto", *FORMATS, PAIRS, SPANS),
        default="auto",
        help="chat: messages, ShareGPT's conversations, or instruction and output; prompt_completion: prompt and "
        "completion; text: documents to train on in full; pairs: source and target of an encoder-decoder; "
        "spans: documents with T5's span corruption; auto (the default): by the columns of the first row, neither "
        "pairs nor spans",
    )
    group.add_argument(
        "--seq_length",
        type=positive,
        metavar="S",
        help="tokens of the rows to which examples are packed, --seq_length of the run; longer examples are cut; of "
        "pairs those of source and target together",
    )
    group.add_argument("--source_length", type=positive, metavar="S", help="of these, the tokens of the source")
    group.add_argument("--source_column", default="source", metavar="NAME", help="of pairs (default: source)")
    group.add_argument("--target_column", default="target", metavar="NAME", help="of pairs (default: target)")
    group.add_argument(
        "--source_prefix", default="", metavar="TEXT", help="text before each source, such as 'summarize: '"
    )
    group.add_argument("--train_padding", action="store_true", help="of pairs: also train on the padding of targets")
    group.add_argument("--span_seed", type=int, default=0, metavar="N", help="of the spans (default: 0)")
    group.add_argument(
        "--packing", choices=("true", "false"), help="false: pad each example to a row of its own (default: true)"
    )
    group.add_argument(
        "--chat_template", type=Path, metavar="FILE", help="Jinja template to use instead of the tokenizer's own"
    )
    group.add_argument(
        "--chat_template_kwargs",
        metavar="JSON",
        help="variables of the template, such as '{\"enable_thinking\": false}'; those of a row come first",
    )
    group.add_argument(
        "--rewritten_turns",
        choices=(SPLIT, MASK, REFUSE),
        help="answers that the template writes differently once others follow them, as Qwen3's does with reasoning: "
        "split makes each an example of its own, mask does not train them, refuse ends (default: split)",
    )
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
        help="how names of special tokens within texts, such as </s>, are encoded: as text like all other, or as the "
        "special ids (default: text; in conversations ids)",
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
    return parser


def parse_arguments(description: str) -> argparse.Namespace:
    """With `given`: the names of those whose value is not the default."""
    parser = parser_of(description)
    arguments = parser.parse_args()
    given = frozenset(name for name, value in vars(arguments).items() if value != parser.get_default(name))
    if arguments.rewrite is not None:
        if given != {"rewrite"}:
            parser.error("--rewrite FILE takes no other argument")
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
