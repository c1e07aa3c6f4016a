"""Cuts long texts into pieces that encode to the same ids as the full text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from . import PrepareError

PIECE = 1 << 16  # characters: the unit that is distributed to workers, and between training and validation
MOST = 1 << 23  # characters that are encoded at once: the library needs about 70 bytes of memory for each


class Cuts(NamedTuple):
    """Where a text may be cut."""

    patterns: tuple[str, ...] = ()  # a text may be cut where a match ends; the first pattern is preferred
    # Each piece is encoded with the character before it, whose ids are dropped: some tokenizers prepend a space to a
    # text, which must not happen to a piece.
    in_context: bool = False


class Piece(NamedTuple):
    before: str  # the character before the text, if it is needed
    text: str
    is_last: bool


def cut(document: Iterable[str], cuts: Cuts, piece: int = PIECE, most: float = MOST, name: str = "") -> Iterator[Piece]:
    """Cuts a document, given in parts of any size, into pieces of at least `piece` characters, except the last; none if
    it is empty. Raises PrepareError, with the document's name, if there is no cut within `most` characters."""
    patterns = [re.compile(pattern) for pattern in cuts.patterns]
    rest, before = "", ""
    window = piece  # start of the next search, relative to the piece
    for part, ended in chain(((part, False) for part in document), [("", True)]):
        rest += part
        begin = 0
        while (start := begin + window) < len(rest):
            complete = ended or len(rest) > start + piece
            # Search an incomplete window only for the preferred pattern, so that cuts do not depend on the parts.
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
                        f"{name} has more than {most:,} characters that this tokenizer cannot process in pieces: "
                        "divide it with --document_separator, or use another --tokenizer."
                    )
            else:
                break
        rest = rest[begin:]
    if rest:
        yield Piece(before, rest, True)
