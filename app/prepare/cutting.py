"""Cuts long texts into pieces that encode to the same ids as the whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

PIECE = 1 << 16  # characters: what is dealt out to workers, and between training and validation
# Between a printable character and a letter, digit or quote no byte-level pattern joins the newline to what follows.
_CUT = re.compile(r'(?<=[!-~])\n(?=[A-Za-z0-9"])')


def cut(document: Iterable[str], cuttable: bool, piece: int = PIECE) -> Iterator[tuple[str, bool]]:
    """A document, given in parts of any size, as (text, whether it is the last) of at least `piece` characters each but
    for the last. Whole where it is not cuttable; nothing where it is empty."""
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
