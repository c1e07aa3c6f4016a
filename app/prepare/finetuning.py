"""Writes token files of conversations: examples packed into rows of --seq_length tokens, with a loss mask."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import numpy as np
from chat_template import load_chat_template, variables_of

from . import PrepareError, shown, shown_count
from .chat import RENDERED, detected
from .encoders import Encoder
from .examples import CUT, SPECIAL, STRADDLING, Made, Unit
from .masks import LEFT_OUT, REWRITTEN, SPLIT, UNTAGGED, Renderer
from .offsets import decoding
from .packing import GROUP, best_fit_decreasing, laid_out
from .pairs import OF_PAIRS, PAIRS, check_lengths
from .plan import Input, source_of, target_of
from .row_kinds import CHAT, PROMPT_COMPLETION, TEXT
from .rows import no_such_column
from .sources import Source
from .spans import OF_SPANS, SPANS
from .spans import check_lengths as check_window
from .token_file import TokenFile

FORMAT_VERSION = 2
SHOWN = 3  # number of printed examples
BEGIN_SHOWN, END_SHOWN = 300, 100  # characters of each piece
TRAINED, PLAIN = "\x1b[32m", "\x1b[0m"
OF_TEMPLATE = ("chat_template", "chat_template_kwargs", "rewritten_turns")  # flags
OF_TEXT = ("text_column", "document_separator", "skip_empty")
# Flags that have no effect, by format.
UNUSED = {
    TEXT: ("seq_length", "packing", *OF_TEMPLATE, *OF_PAIRS, *OF_SPANS),
    CHAT: (*OF_TEXT, "add_bos", *OF_PAIRS, *OF_SPANS),
    PROMPT_COMPLETION: (*OF_TEXT, *OF_PAIRS, *OF_SPANS),
    PAIRS: (*OF_TEMPLATE, *OF_TEXT, *OF_SPANS, "packing", "add_bos"),
    SPANS: (*OF_TEMPLATE, *(name for name in OF_PAIRS if name != "source_length"), "packing"),
}


def settle_format(inputs: list[Input], arguments: argparse.Namespace) -> str:
    """Returns --format or, if it is auto, the format detected from the columns of the first rows. arguments: the
    flags that apply to all inputs."""
    format = arguments.format
    if format == "auto":
        formats = {}
        for item in inputs:
            source = source_of(item.arguments, item.arguments.split or "train", item.plan)
            try:
                formats[source.dataset], columns = _detected(source, item.arguments.text_column)
            except PrepareError as error:
                raise PrepareError(f"{shown(source.dataset)} has {error}") from error
            if columns:
                print(f"{shown(source.dataset)}: --format {formats[source.dataset]}, detected from {columns}.")
        if len(set(formats.values())) > 1:
            raise PrepareError(
                f"The datasets have different formats ({', '.join(f'{shown(n)}: {f}' for n, f in formats.items())}): "
                "prepare them separately."
            )
        format = next(iter(formats.values()))
    for name in UNUSED[format]:
        if name in arguments.given:
            if format == TEXT:
                check_first_rows(inputs)
            raise PrepareError(f"--{name} has no effect with --format {format}: omit it.")
    if format == PAIRS:
        check_lengths(arguments)
    elif format == SPANS:
        check_window(arguments)
    elif format != TEXT and arguments.seq_length is None:
        raise PrepareError(f"--format {format} needs --seq_length, the length of packed rows, as in training.")
    elif format != TEXT and arguments.special_tokens == "text":
        raise PrepareError(f"--special_tokens text has no effect with --format {format}: omit it.")
    return format


def check_first_rows(inputs: list[Input]) -> None:
    """Reports a missing text column or an invalid first row, which takes precedence over flags without effect."""
    for item in inputs:
        item.arguments.format = TEXT
        source = source_of(item.arguments, item.arguments.split or "train", item.plan)
        columns, wanted = source.columns(), item.arguments.text_column
        if columns and wanted not in columns and not item.arguments.skip_empty:
            raise no_such_column(wanted, columns, shown(source.dataset))
        if not columns:
            with closing(source.documents()) as documents:
                next(documents, None)


def _detected(source: Source, column: str) -> tuple[str, str]:
    return (TEXT, "") if column != "text" else detected(source.columns(), column)


def renderer_of(arguments: argparse.Namespace, encoder: Encoder) -> Renderer | str:
    """Returns the renderer or, if no chat template exists, an error message, which the caller raises only if a row has
    messages."""
    try:
        if encoder.folder is None and arguments.chat_template is None:
            raise PrepareError(f"tokenizer '{shown(encoder.name)}' has no chat template: pass --chat_template FILE.")
        template = load_chat_template(encoder.folder or Path(), arguments.chat_template)
    except PrepareError as error:
        if arguments.format == CHAT:
            raise
        return str(error)
    variables = variables_of(arguments.chat_template_kwargs or "{}", RENDERED)
    return Renderer(template, encoder.template_tokens, arguments.rewritten_turns or SPLIT, variables)


class PackedOutput:
    """A token file of packed examples. Each group of examples is packed separately."""

    def __init__(self, path: Path, encoder: Encoder, renderer: Renderer | str, arguments: argparse.Namespace):
        self.file = TokenFile(path, encoder.dtype, masked=True)
        self.made = Made()
        self.shown: list[tuple[np.ndarray, np.ndarray]] = []
        self.num_examples = self.num_rows = self.num_tokens = self.num_trained = 0
        self._padding, self._seq_length = encoder.eos_token_id, arguments.seq_length
        self._packing = arguments.packing != "false"
        self._template = None if isinstance(renderer, str) else renderer.template

    def add(self, made: Made) -> None:
        self.shown += made.examples[: SHOWN - len(self.shown)]
        self.made.add(made)
        self.num_tokens += sum(len(ids) for ids, _ in made.examples)
        while len(self.made.examples) >= GROUP:
            self._write(self.made.examples[:GROUP])
            del self.made.examples[:GROUP]

    def finish(self) -> None:
        if self.made.examples:
            self._write(self.made.examples)
        # The last row needs one more token as its last target.
        self.file.append(np.array([self._padding]), np.array([1]), np.zeros(1, np.uint8))

    def attributes(self) -> dict[str, int | str]:
        found = {
            "format_version": FORMAT_VERSION,
            "packed_sequence_length": self._seq_length,
            "num_examples": self.num_examples,
            "trained_tokens": self.num_trained,
            "end_of_turn_token_id": self.made.ends.most_common(1)[0][0],
            "special_tokens_in_text": self.made.counts[SPECIAL],
            "chat_template": self._template,
        }
        return {name: value for name, value in found.items() if value is not None}

    def _write(self, examples: list[tuple[np.ndarray, np.ndarray]]) -> None:
        lengths = [len(ids) for ids, _ in examples]
        rows = [[i] for i in range(len(examples))]
        if self._packing:
            packed = best_fit_decreasing(lengths, self._seq_length)
            # Shuffle the rows, because validation and --shuffle false begin with the first rows (the longest examples).
            rows = [packed[i] for i in np.random.default_rng(0).permutation(len(packed))]
        tokens, mask, ends = laid_out(examples, rows, self._seq_length, self._padding)
        self.file.append(tokens, ends, mask)
        self.num_examples += len(examples)
        self.num_rows += len(rows)
        self.num_trained += int(mask.sum())


def units_of(source: Source, share: float, limit: int | None) -> Iterator[Unit]:
    """Assigns rows to output files. share: fraction of the rows for validation."""
    with closing(source.documents()) as documents:
        for number, [row] in enumerate(islice(documents, limit)):
            yield Unit(row, target_of(number, share))


def check_trained(outputs: list[PackedOutput], source: Source) -> None:
    for output in outputs:
        if output.num_trained > 0 and output.made.ends:
            continue
        why = "; ".join(_dropped(output.made)) or "no rows were assigned to this file"
        missing = "end-of-turn token" if output.num_trained else "token"
        raise PrepareError(
            f"{shown(source.dataset)}: {shown(output.file.path)} would contain no {missing} that contributes to the "
            f"loss ({why}): use different rows or a larger --seq_length."
        )


def print_examples(output: PackedOutput, encoder: Encoder) -> None:
    decode, colored = decoding(encoder), sys.stdout.isatty()
    begin, end = (TRAINED, PLAIN) if colored else ("[[", "]]")
    for number, (ids, mask) in enumerate(output.shown, 1):
        changes = np.flatnonzero(np.diff(mask)) + 1
        runs = zip(np.split(ids, changes), np.split(mask, changes), strict=True)
        pieces = ((_shortened(decode(run)), flags[0]) for run, flags in runs)
        text = "".join(f"{begin}{piece}{end}" if trained else piece for piece, trained in pieces)
        print(f"Example {number}, loss tokens {'in green' if colored else 'in [[ ]]'}: {text}")


def _shortened(text: str) -> str:
    if len(text) <= BEGIN_SHOWN + END_SHOWN:
        return shown(text)
    return f"{shown(text[:BEGIN_SHOWN])} … {shown(text[-END_SHOWN:])}"


def print_counts(output: PackedOutput, encoder: Encoder, arguments: argparse.Namespace) -> None:
    made, path, decode = output.made, shown(output.file.path), decoding(encoder)
    fill = output.num_tokens / (output.num_rows * arguments.seq_length)
    print(
        f"{path}: examples: {output.num_examples:,}, tokens: {output.num_tokens:,}, loss tokens: "
        f"{output.num_trained:,} ({output.num_trained / output.num_tokens:.1%}), rows of {arguments.seq_length:,}: "
        f"{output.num_rows:,}, {fill:.1%} full{'' if arguments.packing != 'false' else ' (--packing false)'}."
    )
    ends = ", ".join(f"{shown(decode([i]))} ({i}): {count:,}" for i, count in made.ends.most_common())
    print(f"{path}: turns that contribute to the loss, by end-of-turn token: {ends}.")
    if made.counts[CUT]:
        examples = shown_count(made.counts[CUT], "example")
        print(f"{path}: truncated to --seq_length {arguments.seq_length}: {examples}.")
    for reason in _dropped(made):
        print(f"{path}: dropped {reason}.")
    if rewritten := made.counts[REWRITTEN]:
        split = (arguments.rewritten_turns or SPLIT) == SPLIT
        became = "split into separate examples" if split else "excluded from the loss"
        print(
            f"{path}: {became} (--rewritten_turns): {shown_count(rewritten, 'answer')} that the "
            "template renders differently when other messages follow."
        )
    if made.counts[UNTAGGED]:
        print(f"{path}: assistant messages without generation tags, excluded from the loss: {made.counts[UNTAGGED]:,}.")
    for name, count in sorted(made.counts.items()):
        if name.startswith(LEFT_OUT) and count:
            print(f"{path}: {name.removeprefix(LEFT_OUT)}, omitted by the template: {count:,}.")
    if made.counts[STRADDLING]:
        print(
            f"{path}: tokens that straddle the start or end of an answer, excluded from the loss: "
            f"{made.counts[STRADDLING]:,}; check the answers for leading spaces."
        )
    if made.counts[SPECIAL]:
        print(f"{path}: special token names in messages, encoded as their ids: {made.counts[SPECIAL]:,}.")


def _dropped(made: Made) -> list[str]:
    return [f"{shown_count(count, 'example')}: {reason}" for reason, count in made.dropped.most_common()]
