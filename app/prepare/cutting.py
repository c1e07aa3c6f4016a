"""Cuts long documents into pieces that encode to the same ids as the full text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from . import PrepareError

PIECE = 1 << 16  # characters; pieces are distributed to workers, and to training and validation
MOST = 1 << 23  # characters to encode at once; the library needs about 70 bytes of memory per character


class Cuts(NamedTuple):
    """Positions at which a text can be cut."""

    patterns: tuple[str, ...] = ()  # a text can be cut at the end of a match; the first pattern is preferred
    # Encode each piece with the preceding character and drop the ids of that character, because some tokenizers prepend
    # a space to each text.
    in_context: bool = False


class Piece(NamedTuple):
    before: str  # preceding character, if the tokenizer needs it
    text: str
    is_last: bool


def cut(document: Iterable[str], cuts: Cuts, piece: int = PIECE, most: float = MOST, name: str = "") -> Iterator[Piece]:
    """Cuts a document, given in parts of any size, into pieces of at least `piece` characters, except the last piece.
    An empty document has no pieces. Raises PrepareError if no cut is possible within `most` characters."""
    patterns = [re.compile(pattern) for pattern in cuts.patterns]
    rest, before = "", ""
    window = piece  # start of the next search, relative to the piece
    for part, ended in chain(((part, False) for part in document), [("", True)]):
        rest += part
        begin = 0
        while (start := begin + window) < len(rest):
            complete = ended or len(rest) > start + piece
            # In an incomplete window, search only for the preferred pattern: cuts must not depend on part sizes.
            searched = patterns if complete else patterns[:1]
            matches = (pattern.search(rest, start, start + piece + 1) for pattern in searched)
            if match := next(filter(None, matches), None):
                yield Piece(before, rest[begin : match.end()], False)
                begin, window = match.end(), piece
                before = rest[begin - 1] if cuts.in_context else ""
            elif complete:
                window += piece
                if window > most:
                    raise PrepareError(
                        f"{name} has more than {most:,} characters without a position where this tokenizer can "
                        "split the text: use --document_separator, or use a different --tokenizer."
                    )
            else:
                break
        rest = rest[begin:]
    if rest:
        yield Piece(before, rest, True)
