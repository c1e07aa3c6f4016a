"""Sources of documents: files, datasets saved to disk, and Hugging Face datasets by name."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from . import PrepareError, shown
from .fingerprints import File, Fingerprinter, digest_of
from .hub import refusal, use_cache_where_unreachable
from .kinds import kind_of
from .rows import (
    ROWS,
    Row,
    no_such_column,
    rows_of_csv,
    rows_of_json,
    rows_of_parquet,
    text_of,
    text_or_row,
    values_of,
)
from .separators import SEPARATORS, Document, between, grouped, lines_of, looks_like_wikitext
from .streams import BLOCK, open_stream

# English text in UTF-16 is also valid UTF-8, but every second byte is NUL.
MOST_NULS = 0.1


@dataclass(frozen=True)
class Reading:
    """The user's options for reading documents."""

    column: str | None = "text"  # None: read full rows
    separator: str = "auto"  # one of SEPARATORS, or a string between documents
    skip_empty: bool = False  # True: rows without the column are empty; False: they are errors


@dataclass
class Source:
    """The documents of one dataset and split. `total` and `done` are in bytes, or in rows if the
    size in bytes is unknown."""

    dataset: str
    split: str
    reading: Reading
    total: int | None = None
    done: int = 0
    notes: list[str] = field(default_factory=list)  # decisions to report to the user
    num_rows: int = 0
    num_empty_rows: int = 0

    @property
    def num_bytes(self) -> int | None:
        """Approximate size of the text in bytes; None if unknown."""
        return None

    @property
    def parts(self) -> list[Source]:
        """The component sources; [self] if there are none."""
        return [self]

    def documents(self) -> Iterator[Document]:
        """Yields the documents. Without a column, each document is a list of one Row."""
        raise NotImplementedError

    def columns(self) -> list[str]:
        """Returns the column names, or the keys of the first row; empty for plain text."""
        raise NotImplementedError

    def fingerprint(self) -> dict | None:
        """Returns the fingerprint of the data that was read, or None if only the name of the dataset is known."""
        return None

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def of_rows(self, rows: Iterator[str]) -> Iterator[Document]:
        rows = self._counted(rows)
        if self.reading.column is None:
            return ([row] for row in rows)
        separator = self.reading.separator
        if separator == "wikitext" or (separator == "auto" and "wikitext" in self.dataset.lower()):
            self.note("the rows of each article form one document (--document_separator wikitext)")
            return grouped(rows, "wikitext")
        if separator != "auto":
            self.note("each row is a document: --document_separator applies only to text files")
        return ([row] for row in rows)

    def _counted(self, rows: Iterator[str]) -> Iterator[str]:
        for row in rows:
            self.num_rows += 1
            self.num_empty_rows += not row
            yield row


@dataclass
class LocalSource(Source):
    files: list[File] = field(default_factory=list)

    def __post_init__(self):
        self._fingerprinter: Fingerprinter | None = None

    @property
    def num_bytes(self) -> int:
        return sum(file.size for file in self.files)

    def fingerprint(self) -> dict:
        return (self._fingerprinter or Fingerprinter(self.files)).finish()


@dataclass
class FileSource(LocalSource):
    def __post_init__(self):
        super().__post_init__()
        self.total = self.num_bytes
        self._before = 0
        self.blank: list[Path] = []  # text files that contain only whitespace

    @property
    def num_read(self) -> int:
        """Number of leading entries of `files` read so far; the last one may have been read only partially."""
        return 0 if self._fingerprinter is None else self._fingerprinter.num_read

    def copies(self) -> list[tuple[File, File]]:
        """Returns (duplicate, original) pairs of files with identical content."""
        return [] if self._fingerprinter is None else self._fingerprinter.copies()

    def documents(self) -> Iterator[Document]:
        self._fingerprinter = Fingerprinter(self.files)
        for file in self.files:
            yield from self._of_file(file)
            self._before += file.size
            self.done = self._before

    def columns(self) -> list[str]:
        for file in self.files[:1]:
            kind = kind_of(file.path.name)
            if kind == "parquet":
                return _first_columns(rows_of_parquet(file.path, None, lambda _: None))
            if kind != "txt":
                with open_stream(file.path) as stream:
                    return _first_columns(_rows_of(kind, stream, file.path, Reading(None)))
        return []

    def _of_file(self, file: File) -> Iterator[Document]:
        kind = kind_of(file.path.name)
        column = self.reading.column
        if kind == "parquet":
            # Parquet is not read sequentially, so the digest requires a second pass.
            self._fingerprinter.add(None, digest_of(file.path))
            yield from self.of_rows(rows_of_parquet(file.path, column, lambda share: self._at(share * file.size)))
            return
        stream = open_stream(file.path)
        try:
            if kind != "txt":
                yield from self.of_rows(self._followed(_rows_of(kind, stream, file.path, self.reading), stream))
            elif column is None:
                raise PrepareError(
                    f"{shown(file.path)} is a text file without columns for conversations: choose different files "
                    "with --files, or pass --format text."
                )
            else:
                yield from self._of_text(file.path, stream)
        finally:
            self._fingerprinter.add(stream.raw.length, stream.raw.digest())
            stream.close()

    def _at(self, position: float) -> None:
        self.done = self._before + int(position)

    def _followed(self, rows: Iterator[str], stream: io.BufferedReader) -> Iterator[str]:
        for row in rows:
            self._at(stream.raw.length)
            yield row

    def _of_text(self, path: Path, stream: io.BufferedReader) -> Iterator[Document]:
        separator = self.reading.separator
        if separator == "auto":
            separator = "wikitext" if looks_like_wikitext(path) else "file"
            meaning = "each article is a document" if separator == "wikitext" else "each text file is a document"
            self.note(f"{meaning} (--document_separator {separator})")
        blocks = self._blocks(path, stream)
        if separator == "file":
            yield blocks
        elif separator in SEPARATORS:
            yield from grouped(lines_of(blocks), separator)
        else:
            yield from between(blocks, separator)

    def _blocks(self, path: Path, stream: io.BufferedReader) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        nuls, nuls_expected = 0, "\0" in self.reading.separator
        is_blank = True
        while block := stream.read(BLOCK):
            try:
                text = decoder.decode(block)
            except UnicodeDecodeError as error:
                raise PrepareError(f"{shown(path)} is not UTF-8 text ({error.reason}): convert it first.") from error
            if not nuls_expected and (count := text.count("\0")):
                nuls += count
                if count > MOST_NULS * len(text):
                    raise PrepareError(
                        f"{shown(path)} is not UTF-8 text ({count:,} of {len(text):,} characters are NUL, as in UTF-16 "
                        "or a binary format): convert it first."
                    )
            self._at(stream.raw.length)
            is_blank = is_blank and not text.strip()
            yield text
        if is_blank and stream.raw.length > 0:
            self.blank.append(path)
        try:
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise PrepareError(f"{shown(path)} is not UTF-8 text: it ends with an incomplete character.") from error
        if nuls:
            self.note(f"{shown(path)} contains {nuls:,} NUL characters, which are kept in the text")


@dataclass
class SavedSource(LocalSource):
    """A folder written by `save_to_disk` of Hugging Face datasets."""

    root: Path = Path()

    def documents(self) -> Iterator[Document]:
        self._fingerprinter = Fingerprinter(self.files)
        for file in self.files:
            self._fingerprinter.add(None, digest_of(file.path))
        return self.of_rows(self._rows())

    def columns(self) -> list[str]:
        return self._data().column_names

    def _data(self):
        data = load_saved(self.root)
        return data[self.split] if isinstance(data, dict) else data

    def _rows(self) -> Iterator[str]:
        import pyarrow

        data = self._data()
        column, where = self.reading.column, shown(self.root)
        if column is not None:
            if column not in data.column_names:
                raise no_such_column(column, data.column_names, where)
            data = data.select_columns([column])
        self.total = data.num_rows
        try:
            for batch in data.with_format("arrow").iter(ROWS):
                # Damaged offsets could point to arbitrary memory.
                batch.validate(full=True)
                for value in values_of(batch, column):
                    self.done += 1
                    yield text_or_row(value, column, f"{where} row {self.done:,}")
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise PrepareError(
                f"{where} cannot be read as a dataset saved to disk ({shown(error).rstrip('.')}): copy or save it "
                "again."
            ) from error


@dataclass
class HubSource(Source):
    """A streamed Hugging Face dataset."""

    config_name: str | None = None

    def columns(self) -> list[str]:
        source = HubSource(self.dataset, self.split, Reading(None), config_name=self.config_name)
        return _first_columns(source._rows())

    def documents(self) -> Iterator[Document]:
        return self.of_rows(self._rows())

    def _rows(self) -> Iterator[str]:
        use_cache_where_unreachable()
        import datasets

        column, where = self.reading.column, f"dataset '{self.dataset}'"
        with hub_errors(self.dataset):
            data = datasets.load_dataset(self.dataset, self.config_name, split=self.split, streaming=True)
            for row in data:
                self.done += 1
                if column is None:
                    yield text_or_row(row, column, f"{where} row {self.done:,}")
                    continue
                if column not in row:
                    if self.reading.skip_empty:
                        yield ""
                        continue
                    raise no_such_column(column, row, where, skippable=True)
                yield text_of(row[column], column, f"{where} row {self.done:,}")


@dataclass
class ChainedSource(Source):
    """Several datasets in sequence."""

    sources: list[Source] = field(default_factory=list)

    def __post_init__(self):
        if all(isinstance(source, FileSource) for source in self.sources):
            self.total = self.num_bytes

    @property
    def parts(self) -> list[Source]:
        return self.sources

    @property
    def num_bytes(self) -> int | None:
        sizes = [source.num_bytes for source in self.sources]
        return None if None in sizes else sum(sizes)

    def fingerprint(self) -> list[dict | None]:
        return [source.fingerprint() for source in self.sources]

    def documents(self) -> Iterator[Document]:
        for source in self.sources:
            with closing(source.documents()) as documents:
                for document in documents:
                    yield document
                    self.done = sum(source.done for source in self.sources)


def _rows_of(kind: str, stream: io.BufferedReader, path: Path, reading: Reading) -> Iterator[str | Row]:
    if kind == "jsonl":
        return rows_of_json(stream, path, reading.column, reading.skip_empty)
    return rows_of_csv(stream, path, reading.column, "," if kind == "csv" else "\t")


def _first_columns(rows: Iterator[Row]) -> list[str]:
    """Returns the columns of the first row. Ignores errors, which are reported when the documents are read."""
    try:
        with closing(rows):
            return [name for row in islice(rows, 1) for name in row.values]
    except PrepareError:
        return []


def is_saved_dataset(path: Path) -> bool:
    """Returns True if `save_to_disk` of Hugging Face datasets wrote this folder."""
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


def load_saved(path: Path):
    import datasets

    try:
        return datasets.load_from_disk(str(path))
    except Exception as error:
        raise PrepareError(
            f"{shown(path)} cannot be read as a dataset saved to disk: {shown(error).rstrip('.')}."
        ) from error


def has_hub_split(dataset: str, config_name: str | None, split: str) -> bool:
    use_cache_where_unreachable()
    import datasets

    with hub_errors(dataset):
        return split in datasets.get_dataset_split_names(dataset, config_name)


@contextmanager
def hub_errors(dataset: str) -> Iterator[None]:
    """Converts an error of the Hugging Face libraries to a one-sentence message with alternatives that work offline."""
    from huggingface_hub import logging

    logging.set_verbosity_error()  # the message below reports the error once
    try:
        yield
    except PrepareError:
        raise
    except Exception as error:
        if refused := refusal("dataset", dataset, error):
            raise PrepareError(refused) from error
        first_line = next(iter(str(error).strip().splitlines()), "")
        raise PrepareError(
            f"Dataset '{dataset}' could not be read from Hugging Face ({type(error).__name__}: "
            f"{first_line[:200]}): check the name, --dataset_config_name, --split and the network, or use a local "
            ".txt, .jsonl, .csv or .parquet file, a folder of such files, or a folder written by save_to_disk."
        ) from error
