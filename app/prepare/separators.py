"""Splits text into documents at a separator: a keyword such as blank_line, or a string given by the user."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from . import PrepareError
from .streams import open_stream

Document = Iterable[str]  # the text, split into parts

# " = Title = ", but not " = = Section = = "
WIKITEXT_TITLE = re.compile(r" = [^=\n]+ = \r?\n?")
SEPARATORS = ("auto", "file", "line", "blank_line", "wikitext")
_ESCAPE = re.compile(r"\\(?:([ntr0\\])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(x|u|$))")
_SINGLE = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def separator_of(argument: str) -> str:
    r"""Decodes \n \t \r \0 \\ \xHH \uXXXX in --document_separator. All other text is unchanged."""

    def decoded(match: re.Match) -> str:
        single, byte, word, broken = match.groups()
        if broken is not None:
            wanted = {"": r"write \\ for a backslash", "x": r"\x needs two hexadecimal digits"}
            raise PrepareError(
                f"--document_separator '{argument}' has an incomplete {match[0]} at character {match.start() + 1}: "
                + wanted.get(broken, r"\u needs four hexadecimal digits")
                + "."
            )
        return _SINGLE[single] if single is not None else chr(int(byte or word, 16))

    separator = _ESCAPE.sub(decoded, argument)
    if not separator:
        raise PrepareError(f"--document_separator is empty: pass {', '.join(SEPARATORS)}, or a string.")
    if any("\ud800" <= character <= "\udfff" for character in separator):
        raise PrepareError("--document_separator is not valid text: it contains an unpaired surrogate or is not UTF-8.")
    return separator


def looks_like_wikitext(path: Path) -> bool:
    with open_stream(path) as stream:
        head = stream.read(4096).decode("utf-8-sig", errors="replace")
    first = next((line for line in head.splitlines() if line.strip()), "")
    return WIKITEXT_TITLE.fullmatch(first) is not None


def lines_of(blocks: Iterable[str]) -> Iterator[str]:
    rest = ""
    for block in blocks:
        *lines, rest = (rest + block).split("\n")
        yield from (line + "\n" for line in lines)
    if rest:
        yield rest


def grouped(lines: Iterable[str], separator: str) -> Iterator[Document]:
    """separator: line, blank_line or wikitext."""
    document: list[str] = []
    for line in lines:
        if separator == "line":
            yield [line.rstrip("\r\n")]
        elif separator == "blank_line" and not line.strip():
            if document:
                yield document
            document = []
        else:
            if separator == "wikitext" and WIKITEXT_TITLE.fullmatch(line):
                if any(part.strip() for part in document):
                    yield document
                document = []
            document.append(line)
    if any(part.strip() for part in document):
        yield document


def between(blocks: Iterable[str], separator: str) -> Iterator[Document]:
    rest = ""
    for block in blocks:
        *documents, rest = (rest + block).split(separator)
        yield from ([document] for document in documents)
    yield [rest]
