"""Reads rows of JSON Lines, JSON lists, CSV, TSV and Parquet. Yields the text of the requested column or, without a
column, full rows."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from . import PrepareError, shown, shown_count
from .streams import BLOCK, compression_of, unreadable

ROWS = 1000
_FIX_LINE = "fix or remove the line, because each line must be a JSON object"
_FIX_ELEMENT = "fix or remove the element, because each element must be a JSON object"
_NAME_SHOWN = 40  # characters; in a file without a header, a "column name" may be an entire document


class Row(NamedTuple):
    where: str  # file and line, for messages
    values: dict
    double: str | None = None  # a duplicate key in the row or in a nested object


class DoubleKey:
    """object_pairs_hook that builds JSON objects and records a duplicate key."""

    def __init__(self):
        self.name: str | None = None

    def __call__(self, pairs: list[tuple[str, object]]) -> dict:
        values = dict(pairs)
        if len(values) < len(pairs):
            names = [name for name, _ in pairs]
            self.name = next(name for name in names if names.count(name) > 1)
        return values


def two_keys(where: str, name: str) -> PrepareError:
    return PrepareError(f"{where} has a duplicate key '{shown(name)}': remove one of the two.")


def without_nulls(value: object) -> object:
    """Removes the null values that Arrow adds to each object for keys that occur only in other objects."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def text_of(value: object, column: str, where: str) -> str:
    """Returns the text of a value in `column`; "" for None (a missing value)."""
    if value is None:
        return ""
    if isinstance(value, bytes):  # some programs do not mark text columns as text
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise PrepareError(
                f"Column '{column}' of {where} has bytes that are not UTF-8 text ({error.reason}): convert it, or "
                "choose a different column with --text_column."
            ) from error
    if not isinstance(value, str):
        raise PrepareError(
            f"Column '{column}' of {where} is {type(value).__name__}, not a string: fix the row, or pass a different "
            "--text_column."
        )
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            half = f"\\u{ord(value[error.start]):04x}"
            raise PrepareError(
                f"Column '{column}' of {where} contains {half}, an unpaired surrogate: fix the text."
            ) from error
    return value


def no_such_column(column: str, known, where: str, skippable: bool = False) -> PrepareError:
    """skippable: True if other rows may have the column."""
    names = ", ".join(shown(name if len(name) <= _NAME_SHOWN else name[:_NAME_SHOWN] + "…") for name in sorted(known))
    pairs = ", or DATASET=NAME, where DATASET is the dataset as given on the command line" if "=" in column else ""
    skip = ", or skip rows without the column with --skip_empty" if skippable else ""
    return PrepareError(
        f"{where} has no column '{column}', only {names or 'none'}: choose one with --text_column NAME{pairs}{skip}."
    )


def rows_of_json(stream: io.BufferedReader, path: Path, column: str | None, skip: bool) -> Iterator[str | Row]:
    """Reads JSON Lines or, in a .json file, a list of objects. skip: True if rows may lack the column."""
    name = path.name.lower()
    name = name if compression_of(name) is None else Path(name).stem
    if name.endswith(".json") and _begins_list(stream):
        return _rows_of_list(stream, path, column, skip)
    return _rows_of_lines(stream, path, column, skip)


def _begins_list(stream: io.BufferedReader) -> bool:
    return stream.peek(64).removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"["


def _rows_of_lines(stream: io.BufferedReader, path: Path, column: str | None, skip: bool) -> Iterator[str | Row]:
    key = json.dumps(column, ensure_ascii=False).encode()
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        where = f"{shown(path)} line {number}"
        double = DoubleKey() if column is None else None
        try:
            row = json.loads(line, object_pairs_hook=double)
        except (ValueError, RecursionError) as error:
            raise PrepareError(f"{where} is not JSON ({_reason(error)}): {_FIX_LINE}.") from error
        if not isinstance(row, dict):
            raise PrepareError(f"{where} is not a JSON object: {_FIX_LINE}.")
        if double is not None:
            yield Row(where, row, double.name)
            continue
        yield _text_of_row(row, column, where, skip, line.count(key) > 1 and _is_double(line, column))


def _rows_of_list(stream: io.BufferedReader, path: Path, column: str | None, skip: bool) -> Iterator[str | Row]:
    """Keeps one object in memory at a time."""
    double = DoubleKey() if column is None else None
    text, key = _Ahead(stream, path, double), json.dumps(column, ensure_ascii=False)
    text.skip("[")
    if text.next_character() == "]":
        text.skip("]")
    else:
        number = 0
        while True:
            number += 1
            where = f"{shown(path)} element {number:,}"
            row, source = text.next_value(where)
            if not isinstance(row, dict):
                raise PrepareError(f"{where} is not a JSON object: {_FIX_ELEMENT}.")
            if double is not None:
                yield Row(where, row, double.name)
            else:
                yield _text_of_row(row, column, where, skip, source.count(key) > 1 and _is_double(source, column))
            if text.next_character() != ",":
                break
            text.skip(",")
        text.skip("]")
    if text.next_character():
        raise PrepareError(f"{shown(path)} has text after its list of objects: remove it.")


class _Ahead:
    """Buffers the text of a JSON file up to the end of the next value."""

    _INCOMPLETE = 16  # characters: a literal, number or escape at the end of the buffer may be incomplete

    def __init__(self, stream: io.BufferedReader, path: Path, double: DoubleKey | None):
        self._stream, self._path = stream, path
        self._characters = codecs.getincrementaldecoder("utf-8-sig")()
        self._json = json.JSONDecoder(object_pairs_hook=double)
        self._text, self._begin = "", 0
        self._ended = False

    def next_character(self) -> str:
        """Returns the next character that is not whitespace, or "" at the end of the file."""
        while True:
            self._begin = _WHITE_SPACE.match(self._text, self._begin).end()
            if self._begin < len(self._text) or self._ended:
                return self._text[self._begin : self._begin + 1]
            self._read()

    def skip(self, expected: str) -> None:
        if (found := self.next_character()) != expected:
            what = f"'{shown(found)}'" if found else "the end of the file"
            raise PrepareError(
                f"{shown(self._path)} is not a JSON list of objects (expected '{expected}', found {what}): fix it, or "
                "convert it to JSON Lines."
            )
        self._begin += 1

    def next_value(self, where: str) -> tuple[object, str]:
        """Returns (value, text of the value)."""
        self.next_character()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._begin)
            except json.JSONDecodeError as error:
                unfinished = error.msg.startswith("Unterminated") or error.pos >= len(self._text) - self._INCOMPLETE
                if self._ended or not unfinished:
                    raise PrepareError(f"{where} is not JSON ({error.msg}): {_FIX_ELEMENT}.") from error
                self._read()
                continue
            except (ValueError, RecursionError) as error:  # ValueError: an integer with too many digits
                raise PrepareError(f"{where} is not JSON ({_reason(error)}): {_FIX_ELEMENT}.") from error
            text, self._begin = self._text[self._begin : end], end
            return value, text

    def _read(self) -> None:
        """Doubles the buffer, so that reading a value takes time linear in the value's length."""
        block = self._stream.read(max(BLOCK, len(self._text) - self._begin))
        self._ended = not block
        try:
            more = self._characters.decode(block, final=self._ended)
        except UnicodeDecodeError as error:
            raise PrepareError(f"{shown(self._path)} is not UTF-8 text ({error.reason}): convert it first.") from error
        self._text, self._begin = self._text[self._begin :] + more, 0


_WHITE_SPACE = re.compile(r"[ \t\n\r]*")


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' at')}, column {error.pos + 1}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _text_of_row(row: dict, column: str, where: str, skip: bool, is_double: bool) -> str:
    if column not in row:
        if skip:
            return ""
        raise no_such_column(column, row, where, skippable=True)
    if is_double:
        raise two_keys(where, column)
    return text_of(row[column], column, where)


def _is_double(line: bytes | str, column: str) -> bool:
    pairs = json.loads(line, object_pairs_hook=list)
    return sum(key == column for key, _ in pairs) > 1


def rows_of_csv(stream: io.BufferedReader, path: Path, column: str | None, delimiter: str) -> Iterator[str | Row]:
    """Reads CSV with column names in the first line and quotes as in RFC 4180."""
    csv.field_size_limit(sys.maxsize)
    lines = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        names = next(reader, [])
        if column is None and len(set(names)) < len(names):
            raise PrepareError(f"{shown(path)} has two columns with the same name: rename one.")
        if column is not None and names.count(column) != 1:
            if column in names:
                raise PrepareError(f"{shown(path)} has two columns '{column}': rename one.")
            raise no_such_column(column, names, shown(path))
        index = None if column is None else names.index(column)
        for row in reader:
            if not row:
                continue
            where = f"{shown(path)} line {reader.line_num}"
            if len(row) != len(names):
                raise PrepareError(
                    f"{where} has {shown_count(len(row), 'field')}, but the header has "
                    f"{shown_count(len(names), 'column')}: quote fields that contain a "
                    "separator or a newline, or convert the file to JSON Lines."
                )
            if column is None:
                yield Row(where, dict(zip(names, row, strict=True)))
            else:
                yield text_of(row[index], column, where)
    except csv.Error as error:
        raise PrepareError(
            f"{shown(path)} line {reader.line_num} cannot be read as {'TSV' if delimiter != ',' else 'CSV'} ({error}): "
            "quote fields as in RFC 4180, or convert the file to JSON Lines."
        ) from error
    except UnicodeDecodeError as error:
        raise PrepareError(
            f"{shown(path)} is not UTF-8 text ({error.reason}), near line {reader.line_num}: convert it first."
        ) from error
    finally:
        if not stream.closed:
            lines.detach()


def values_of(batch, column: str | None) -> list:
    """Returns the values of `column` or, if it is None, all rows of a pyarrow.RecordBatch."""
    return batch.to_pylist() if column is None else batch.column(0).to_pylist()


def text_or_row(value: object, column: str | None, where: str) -> str | Row:
    """Returns the text of a value in `column` or, if it is None, the Row of an Arrow row."""
    return Row(where, without_nulls(value)) if column is None else text_of(value, column, where)


def rows_of_parquet(path: Path, column: str | None, progress: Callable[[float], None]) -> Iterator[str | Row]:
    """Yields the text of `column` or, if it is None, full rows. Calls `progress` with the fraction of rows read so
    far."""
    import pyarrow
    import pyarrow.parquet

    try:
        # The library does not accept paths as bytes, and names need not be UTF-8.
        with open(path, "rb") as file:
            table = pyarrow.parquet.ParquetFile(file, page_checksum_verification=True)
            names = table.schema_arrow.names
            if column is not None and column not in names:
                raise no_such_column(column, names, shown(path))
            seen = 0
            for batch in table.iter_batches(ROWS, columns=None if column is None else [column]):
                for row, value in enumerate(values_of(batch, column), seen + 1):
                    yield text_or_row(value, column, f"{shown(path)} row {row:,}")
                seen += batch.num_rows
                progress(seen / max(table.metadata.num_rows, 1))
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise unreadable(path, error) from error
        raise PrepareError(
            f"{shown(path)} cannot be read as Parquet ({shown(error).rstrip('.')}): copy or download it again."
        ) from error
