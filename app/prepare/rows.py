"""The texts of files of rows: JSON Lines, CSV, TSV, Parquet. Each row has one text, in the requested column."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from . import PrepareError, shown
from .streams import unreadable

ROWS = 1000
_NAME_SHOWN = 40  # characters: a file without a header has a text as its name


def text_of(value: object, column: str, where: str) -> str:
    """value: of the column; None if the row has none."""
    if value is None:
        return ""
    if isinstance(value, bytes):  # text in columns that some programs do not mark as such
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise PrepareError(
                f"Column '{column}' of {where} holds bytes that are not UTF-8 text ({error.reason}): convert it, or "
                "name another column with --text_column."
            ) from error
    if not isinstance(value, str):
        raise PrepareError(
            f"Column '{column}' of {where} is not a text but {type(value).__name__}: name another with --text_column."
        )
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            half = f"\\u{ord(value[error.start]):04x}"
            raise PrepareError(
                f"Column '{column}' of {where} contains {half}, half of a surrogate pair and not a character: fix that "
                "text."
            ) from error
    return value


def no_such_column(column: str, known, where: str) -> PrepareError:
    names = ", ".join(shown(name if len(name) <= _NAME_SHOWN else name[:_NAME_SHOWN] + "…") for name in sorted(known))
    return PrepareError(f"{where} has no column '{column}', only {names or 'none'}: name one with --text_column.")


def rows_of_jsonl(stream: io.BufferedReader, path: Path, column: str) -> Iterator[str]:
    key = json.dumps(column, ensure_ascii=False).encode()
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        where = f"{shown(path)} line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = "nested too deep" if isinstance(error, RecursionError) else error
            raise PrepareError(f"{where} is not JSON ({reason}): one object per line is expected.") from error
        if not isinstance(row, dict):
            raise PrepareError(f"{where} is not a JSON object: one object per line is expected.")
        if column not in row:
            raise no_such_column(column, row, where)
        if line.count(key) > 1 and _is_double(line, column):
            raise PrepareError(f"{where} has two keys '{column}': remove one.")
        yield text_of(row[column], column, where)


def _is_double(line: bytes, column: str) -> bool:
    pairs = json.loads(line, object_pairs_hook=list)
    return sum(key == column for key, _ in pairs) > 1


def rows_of_csv(stream: io.BufferedReader, path: Path, column: str, delimiter: str) -> Iterator[str]:
    """The first line names the columns; quotes as in RFC 4180."""
    csv.field_size_limit(sys.maxsize)
    lines = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        names = next(reader, [])
        if names.count(column) != 1:
            if column in names:
                raise PrepareError(f"{shown(path)} has two columns '{column}': rename one.")
            raise no_such_column(column, names, shown(path))
        index = names.index(column)
        for row in reader:
            if not row:
                continue
            where = f"{shown(path)} line {reader.line_num}"
            if len(row) != len(names):
                raise PrepareError(
                    f"{where} has {len(row)} fields, but the first line names {len(names)} columns: quote texts that "
                    "contain a separator or a line end, or convert the file to JSON Lines."
                )
            yield text_of(row[index], column, where)
    except csv.Error as error:
        raise PrepareError(
            f"{shown(path)} line {reader.line_num} cannot be read as {'TSV' if delimiter != ',' else 'CSV'} ({error}): "
            "quote texts as in RFC 4180, or convert the file to JSON Lines."
        ) from error
    except UnicodeDecodeError as error:
        raise PrepareError(
            f"{shown(path)} is not UTF-8 text ({error.reason}), near line {reader.line_num}: convert it first."
        ) from error
    finally:
        if not stream.closed:
            lines.detach()


def rows_of_parquet(path: Path, column: str, progress: Callable[[float], None]) -> Iterator[str]:
    """progress: called with the fraction of the rows that were read."""
    import pyarrow
    import pyarrow.parquet

    try:
        # The library does not take paths as bytes, and names need not be UTF-8.
        with open(path, "rb") as file:
            table = pyarrow.parquet.ParquetFile(file)
            names = table.schema_arrow.names
            if column not in names:
                raise no_such_column(column, names, shown(path))
            seen = 0
            for batch in table.iter_batches(ROWS, columns=[column]):
                for row, text in enumerate(batch.column(0).to_pylist(), seen + 1):
                    yield text_of(text, column, f"{shown(path)} row {row:,}")
                seen += batch.num_rows
                progress(seen / max(table.metadata.num_rows, 1))
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise unreadable(path, error) from error
        raise PrepareError(
            f"{shown(path)} cannot be read as Parquet ({shown(error).rstrip('.')}): copy or download it again."
        ) from error
