"""Where documents come from: text, JSON Lines, Parquet, data sets saved to disk, Hugging Face data sets by name."""

from __future__ import annotations

import codecs
import gzip
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import PrepareError
from .hub import refusal

BLOCK = 1 << 20  # bytes read at once
ROWS = 1000
KINDS = {".txt": "txt", ".text": "txt", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
SPLITS = {"train": "train", "training": "train", "validation": "validation", "valid": "validation"}
SPLITS |= {"val": "validation", "dev": "validation", "test": "test"}
# " = Title = ", but not " = = Section = = "
_WIKITEXT_TITLE = re.compile(r" = [^=\n]+ = \n?")
SEPARATORS = ("auto", "file", "line", "blank_line", "wikitext")

Document = Iterable[str]  # its text in parts


@dataclass
class Source:
    """Documents of one data set and split. `total` and `done` count bytes, or rows where bytes are unknown."""

    dataset: str
    config_name: str | None
    split: str
    text_field: str
    separator: str  # one of SEPARATORS, or the text that stands between documents
    local: bool
    total: int | None = None
    done: int = 0
    notes: list[str] = field(default_factory=list)  # what was decided, for the user

    def documents(self) -> Iterator[Document]:
        if not self.local:
            return self._of_rows(self._rows_of_hub())
        if self.config_name is not None:
            self._note(f"--dataset_config_name {self.config_name} says nothing about local files and is ignored")
        path = Path(self.dataset).expanduser()
        if is_saved_dataset(path):
            return self._of_rows(self._rows_of_saved(path))
        files = files_of_split(path, self.split)
        self.total = sum(file.stat().st_size for file in files)
        return self._of_files(files)

    def _of_files(self, files: list[Path]) -> Iterator[Document]:
        before = 0
        for file in files:
            kind = kind_of(file)
            if kind == "txt":
                yield from self._of_text(file, before)
            else:
                rows = self._rows_of_parquet(file, before) if kind == "parquet" else self._rows_of_jsonl(file, before)
                yield from self._of_rows(rows)
            before += file.stat().st_size
            self.done = before

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    # Text files

    def _of_text(self, file: Path, before: int) -> Iterator[Document]:
        separator = self.separator
        if separator == "auto":
            separator = "wikitext" if _looks_like_wikitext(file) else "file"
            meaning = "each article is a document" if separator == "wikitext" else "each file is one document"
            self._note(f"{meaning} (--document_separator {separator})")
        if separator == "file":
            yield self._blocks(file, before)
        elif separator in ("line", "blank_line", "wikitext"):
            yield from _group(_lines(self._blocks(file, before)), separator)
        else:
            yield from _between(self._blocks(file, before), separator)

    def _blocks(self, file: Path, before: int) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        with _open(file) as stream:
            while block := stream.read(BLOCK):
                try:
                    text = decoder.decode(block)
                except UnicodeDecodeError as error:
                    raise PrepareError(f"{file} is not UTF-8 text ({error.reason}): convert it first.") from error
                self.done = before + _position(stream)
                yield text
        try:
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise PrepareError(f"{file} is not UTF-8 text: it ends within a character.") from error

    # Rows: one text each

    def _of_rows(self, rows: Iterator[str]) -> Iterator[Document]:
        wikitext = self.separator == "wikitext" or (self.separator == "auto" and "wikitext" in self.dataset.lower())
        if wikitext:
            self._note("the rows of an article make one document (--document_separator wikitext)")
            return _group(rows, "wikitext")
        return ([row] for row in rows)

    def _text(self, row: dict, where: str) -> str:
        text = row.get(self.text_field, KeyError)
        if text is KeyError:
            raise PrepareError(
                f"{where} has no field '{self.text_field}', only {', '.join(sorted(row))}: name one with --text_field."
            )
        if text is not None and not isinstance(text, str):
            raise PrepareError(f"Field '{self.text_field}' of {where} is not a text but {type(text).__name__}.")
        return text or ""

    def _rows_of_jsonl(self, file: Path, before: int) -> Iterator[str]:
        with _open(file) as stream:
            for number, line in enumerate(stream, 1):
                self.done = before + _position(stream)
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise PrepareError(
                        f"{file} line {number} is not JSON ({error}): one object a line is expected."
                    ) from error
                if not isinstance(row, dict):
                    raise PrepareError(f"{file} line {number} is not a JSON object: one object a line is expected.")
                yield self._text(row, f"{file} line {number}")

    def _rows_of_parquet(self, file: Path, before: int) -> Iterator[str]:
        import pyarrow
        import pyarrow.parquet

        try:
            table = pyarrow.parquet.ParquetFile(file)
            columns = dict.fromkeys(table.schema_arrow.names)
            if self.text_field not in columns:
                self._text(columns, str(file))
            size, seen = file.stat().st_size, 0
            for batch in table.iter_batches(ROWS, columns=[self.text_field]):
                for text in batch.column(0).to_pylist():
                    yield self._text({self.text_field: text}, str(file))
                seen += batch.num_rows
                self.done = before + size * seen // max(table.metadata.num_rows, 1)
        except pyarrow.ArrowException as error:
            raise PrepareError(f"{file} cannot be read as Parquet: {error}.") from error

    def _rows_of_saved(self, path: Path) -> Iterator[str]:
        data = _load_saved(path)
        if isinstance(data, dict):
            if self.split not in data:
                raise PrepareError(
                    f"{path} has no split '{self.split}', only {', '.join(sorted(data))}: name one with --split."
                )
            data = data[self.split]
        if self.text_field not in data.column_names:
            self._text(dict.fromkeys(data.column_names), str(path))
        self.total = data.num_rows
        for batch in data.select_columns([self.text_field]).iter(ROWS):
            for text in batch[self.text_field]:
                self.done += 1
                yield self._text({self.text_field: text}, str(path))

    def _rows_of_hub(self) -> Iterator[str]:
        import datasets

        def rows() -> Iterator[str]:
            with _hub_errors(self.dataset):
                data = datasets.load_dataset(self.dataset, self.config_name, split=self.split, streaming=True)
                for row in data:
                    self.done += 1
                    yield self._text(row, f"data set '{self.dataset}'")

        return rows()


def is_saved_dataset(path: Path) -> bool:
    """Made by `save_to_disk` of Hugging Face datasets."""
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


def kind_of(file: Path) -> str:
    suffixes = [suffix.lower() for suffix in file.suffixes if suffix.lower() != ".gz"]
    kind = KINDS.get(suffixes[-1] if suffixes else "")
    if kind is None:
        raise PrepareError(f"{file} has an unknown ending: {', '.join(KINDS)} can be read (text and JSON also as .gz).")
    return kind


def has_split(dataset: str, config_name: str | None, split: str, local: bool) -> bool:
    path = Path(dataset).expanduser()
    if not local:
        import datasets

        with _hub_errors(dataset):
            return split in datasets.get_dataset_split_names(dataset, config_name)
    if is_saved_dataset(path):
        data = _load_saved(path)
        return isinstance(data, dict) and split in data
    return path.is_dir() and any(split_of(file, path) == split for file in _readable_files(path))


def files_of_split(path: Path, split: str) -> list[Path]:
    """The files of a folder that belong to the split, by name; all of them where no name speaks of a split."""
    if path.is_file():
        kind_of(path)
        return [path]
    files = _readable_files(path)
    if not files:
        raise PrepareError(f"{path} holds no file that can be read: {', '.join(KINDS)} can.")
    splits = {file: split_of(file, path) for file in files}
    if not any(splits.values()):
        return files
    chosen = [file for file in files if splits[file] == split]
    if not chosen:
        known = sorted(set(filter(None, splits.values())))
        raise PrepareError(f"{path} has no files of split '{split}', only {', '.join(known)}: name one with --split.")
    return chosen


def split_of(file: Path, folder: Path) -> str | None:
    words = re.split(r"[^a-z]+", str(file.relative_to(folder)).lower())
    return next((SPLITS[word] for word in words if word in SPLITS), None)


def fingerprint(dataset: str, local: bool) -> str:
    """What tells two data sets apart: the name, and the number and size of the files that it names on this machine."""
    if not local:
        return dataset
    path = Path(dataset).expanduser()
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return f"{path.resolve().name}:{len(files)} files:{sum(file.stat().st_size for file in files)} bytes"


def _readable_files(folder: Path) -> list[Path]:
    files = (file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))
    return sorted(file for file in files if any(file.name.lower().removesuffix(".gz").endswith(end) for end in KINDS))


def _load_saved(path: Path):
    import datasets

    try:
        return datasets.load_from_disk(str(path))
    except Exception as error:
        raise PrepareError(f"{path} cannot be read as a data set saved to disk: {error}.") from error


def _open(file: Path):
    return gzip.open(file, "rb") if file.suffix == ".gz" else open(file, "rb")


def _position(stream) -> int:
    """In the file itself, where it is compressed."""
    return stream.fileobj.tell() if isinstance(stream, gzip.GzipFile) else stream.tell()


def _looks_like_wikitext(file: Path) -> bool:
    with _open(file) as stream:
        head = stream.read(4096).decode("utf-8", errors="replace")
    first = next((line for line in head.splitlines() if line.strip()), "")
    return _WIKITEXT_TITLE.fullmatch(first) is not None


def _lines(blocks: Iterator[str]) -> Iterator[str]:
    rest = ""
    for block in blocks:
        *lines, rest = (rest + block).split("\n")
        yield from (line + "\n" for line in lines)
    if rest:
        yield rest


def _group(lines: Iterable[str], separator: str) -> Iterator[Document]:
    document: list[str] = []
    for line in lines:
        if separator == "line":
            yield [line.rstrip("\r\n")]
        elif separator == "blank_line" and not line.strip():
            if document:
                yield document
            document = []
        else:
            if separator == "wikitext" and _WIKITEXT_TITLE.fullmatch(line):
                if any(part.strip() for part in document):
                    yield document
                document = []
            document.append(line)
    if any(part.strip() for part in document):
        yield document


def _between(blocks: Iterator[str], separator: str) -> Iterator[Document]:
    rest = ""
    for block in blocks:
        *documents, rest = (rest + block).split(separator)
        yield from ([document] for document in documents)
    yield [rest]


class _hub_errors:
    """Says in one sentence why Hugging Face could not be read, and what needs no network."""

    def __init__(self, dataset: str):
        self._dataset = dataset

    def __enter__(self):
        from huggingface_hub import logging

        logging.set_verbosity_error()  # the sentence below says it once
        return self

    def __exit__(self, kind, error, traceback):
        if error is None or isinstance(error, (PrepareError, GeneratorExit, KeyboardInterrupt, SystemExit)):
            return False
        if refused := refusal("data set", self._dataset, error):
            raise PrepareError(refused) from error
        first_line = next(iter(str(error).strip().splitlines()), "")
        raise PrepareError(
            f"Data set '{self._dataset}' could not be read from Hugging Face ({kind.__name__}: {first_line[:200]}): "
            "check name, --dataset_config_name, --split and the network, or name a local folder or file of .txt, "
            ".jsonl, .parquet or a data set saved with save_to_disk."
        ) from error
