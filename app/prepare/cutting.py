"""Cuts long texts into pieces that encode to the same ids as the full text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

PIECE = 1 << 16  # characters: the unit that is distributed to workers, and between training and validation
# Between a printable character and a letter, digit or quote no byte-level pattern joins the newline to what follows.
_CUT = re.compile(r'(?<=[!-~])\n(?=[A-Za-z0-9"])')


def cut(document: Iterable[str], cuttable: bool, piece: int = PIECE) -> Iterator[tuple[str, bool]]:
    """Cuts a document, given in parts of any size, into (text, whether it is the last) of at least `piece` characters
    each except the last. One piece if it is not cuttable; none if it is empty."""
    if not cuttable:
        text = "".join(document)
        if text:
            yield text, True
        return
    rest = ""
    for part in document:
        rest += part
        begin = 0
        while match := _CUT.search(rest, begin + piece):
            yield rest[begin : match.end()], False
            begin = match.end()
        rest = rest[begin:]
    if rest:
        yield rest, True
