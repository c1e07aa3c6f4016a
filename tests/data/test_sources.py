"""Every kind of input becomes the documents that it contains."""

import gzip
import io
import json
import random
import shutil
import sys

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from .conftest import app_module, prepare_module, read_tokens

prepare_data = app_module("prepare_data")
TEXTS = ["First text.\nIn two lines.", "Zweiter Text: über Bücher.", "3"]


def test_text_file_is_one_document(prepare, tmp_path):
    (tmp_path / "a.txt").write_bytes("Line one.\r\n\r\n\nnaïve\n".encode())
    prepare("a.txt", "out/a.h5")
    made = read_tokens(tmp_path / "out/a.h5")
    assert made.texts() == ["Line one.\r\n\r\n\nnaïve\n"]
    assert made.tokens.dtype == np.uint16
    expected = {
        "format_version": 1,
        "vocab_size": 257,
        "eos_token_id": 256,
        "tokenizer": "bytes",
        "source": "a.txt train",
    }
    assert {name: made.attributes[name] for name in expected} == expected


def test_large_vocabulary_makes_uint32(prepare, tmp_path):
    (tmp_path / "a.txt").write_text("abc")
    prepare("a.txt", "small.h5", "--vocab_size", 65536)
    prepare("a.txt", "large.h5", "--vocab_size", 65537)
    assert read_tokens(tmp_path / "small.h5").tokens.dtype == np.uint16
    large = read_tokens(tmp_path / "large.h5")
    assert large.tokens.dtype == np.uint32
    assert large.attributes["vocab_size"] == 65537
    assert large.texts() == ["abc"]


@pytest.mark.parametrize(
    ("separator", "expected"),
    [
        ("file", ["a\nb\n\n \n<x>c\n"]),
        ("line", ["a", "b", " ", "<x>c"]),
        ("blank_line", ["a\nb\n", "<x>c\n"]),
        ("<x>", ["a\nb\n\n \n", "c\n"]),
        (r"\n\n", ["a\nb", " \n<x>c\n"]),
    ],
)
def test_document_separator(prepare, tmp_path, separator, expected):
    (tmp_path / "a.txt").write_text("a\nb\n\n \n<x>c\n")
    prepare("a.txt", "a.h5", "--document_separator", separator)
    assert read_tokens(tmp_path / "a.h5").texts() == expected


def test_separators_across_read_blocks(prepare, tmp_path, monkeypatch):
    """Lines and separators cross the ends of blocks at every offset."""
    monkeypatch.setattr(prepare_module("sources"), "BLOCK", 101)
    documents = [f"{i:07d}" * (1 + i % 5) for i in range(3000)]
    (tmp_path / "a.txt").write_text("<|end|>".join(documents))
    (tmp_path / "b.txt").write_text("\n".join(documents))
    prepare("a.txt", "a.h5", "--document_separator", "<|end|>")
    prepare("b.txt", "b.h5", "--document_separator", "line")
    assert read_tokens(tmp_path / "a.h5").texts() == documents
    assert read_tokens(tmp_path / "b.h5").texts() == documents


def test_wikitext_is_cut_into_articles(prepare, tmp_path):
    articles = [" = First = \n \n Words . \n \n = = Section = = \n \n More . \n \n", " = Second = \n \n Words . \n"]
    (tmp_path / "wiki.train.txt").write_text(" \n" + "".join(articles))
    process = prepare("wiki.train.txt", "a.h5")
    assert "article" in process.stdout
    assert [text.strip() for text in read_tokens(tmp_path / "a.h5").texts()] == [text.strip() for text in articles]


def test_jsonl_plain_and_compressed(prepare, tmp_path):
    lines = "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate([*TEXTS, "", None]))
    (tmp_path / "a.jsonl").write_text(lines + "\n")
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write(lines)
    prepare("a.jsonl", "a.h5")
    prepare("b.jsonl.gz", "b.h5")
    assert read_tokens(tmp_path / "a.h5").texts() == TEXTS  # empty texts make no document
    assert read_tokens(tmp_path / "b.h5").texts() == TEXTS


def test_parquet_with_another_text_field(prepare, tmp_path):
    pyarrow.parquet.write_table(
        pyarrow.table({"id": [1, 2, 3], "content": TEXTS}), tmp_path / "a.parquet", row_group_size=2
    )
    prepare("a.parquet", "a.h5", "--text_field", "content")
    assert read_tokens(tmp_path / "a.h5").texts() == TEXTS


@pytest.fixture(scope="module")
def arrow_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "data"
    datasets.Dataset.from_dict({"text": [f"text {i} " * 5 for i in range(50)]}).save_to_disk(folder)
    return folder


def damaged(content: bytes, random: random.Random) -> bytes:
    content = bytearray(content)
    for _ in range(3):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    return bytes(content)


def test_a_damaged_file_of_rows_is_named(tmp_path, arrow_folder):
    rows = prepare_module("rows")
    sources = prepare_module("sources")
    choice = random.Random(1)
    (arrow,) = arrow_folder.glob("*.arrow")
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS * 20}), good := tmp_path / "good.parquet")
    refusals = []
    for number in range(40):
        shutil.copytree(arrow_folder, folder := tmp_path / f"saved{number}")
        (folder / arrow.name).write_bytes(damaged(arrow.read_bytes(), choice))
        (table := tmp_path / "bad.parquet").write_bytes(damaged(good.read_bytes(), choice))
        saved = sources.SavedSource(str(folder), "train", sources.Reading(), root=folder, files=[])
        for path, texts in ((folder, saved._rows()), (table, rows.rows_of_parquet(table, "text", lambda _: None))):
            try:
                list(texts)
            except rows.PrepareError as error:
                refusals.append((str(path), str(error)))
    assert len(refusals) > 10
    assert [said for path, said in refusals if path not in said or "\n" in said] == []


@pytest.mark.parametrize("kind", [OSError, PermissionError])
def test_an_error_without_a_name_does_not_blame_the_output_alone(monkeypatch, capsys, kind):
    def fail(_) -> None:
        raise kind(5, "Input/output error")

    monkeypatch.setattr(prepare_data, "prepare", fail)
    monkeypatch.setattr(prepare_data.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["prepare_data.py", "in.parquet", "out.h5", "--tokenizer", "bytes"])
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    assert prepare_data.main() in (1, 2)
    said = capsys.readouterr().err
    assert "in.parquet" in said and "out.h5" in said and said.count("\n") == 1


def test_saved_to_disk_with_and_without_splits(prepare, tmp_path):
    train = datasets.Dataset.from_dict({"text": TEXTS})
    test = datasets.Dataset.from_dict({"text": ["a test"]})
    train.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": train, "test": test}).save_to_disk(tmp_path / "several")
    prepare("one", "one.h5")
    prepare("several", "train.h5")
    prepare("several", "test.h5", "--split", "test")
    assert read_tokens(tmp_path / "one.h5").texts() == TEXTS
    assert read_tokens(tmp_path / "train.h5").texts() == TEXTS
    assert read_tokens(tmp_path / "test.h5").texts() == ["a test"]
    assert "only test, train" in prepare("several", "x.h5", "--split", "valid", fails=True).stderr
    said = prepare("one", "named.h5", "--dataset_config_name", "en").stdout
    assert "--dataset_config_name en (DATASET_CONFIG_NAME)" in said
    assert read_tokens(tmp_path / "named.h5").texts() == TEXTS
    error = prepare("several", "x.h5", "--dataset_config_name", "train", fails=True).stderr
    assert "does not support --dataset_config_name" in error


def test_folder_takes_the_files_of_its_split(prepare, tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, text in {"train-1.txt": "one", "train-0.txt": "zero", "valid.txt": "valid", "test.txt": "test"}.items():
        (folder / name).write_text(text)
    (folder / "README.md").write_text("not data")
    prepare("corpus", "train.h5", "--validation_output", "validation.h5")
    assert read_tokens(tmp_path / "train.h5").texts() == ["zero", "one"]
    assert read_tokens(tmp_path / "validation.h5").texts() == ["valid"]
    (folder / "train-0.txt").unlink()
    (folder / "train-1.txt").unlink()
    assert "test, validation" in prepare("corpus", "x.h5", fails=True).stderr


def test_folder_without_splits_takes_everything(prepare, tmp_path):
    (tmp_path / "corpus/deep").mkdir(parents=True)
    (tmp_path / "corpus/b.txt").write_text("b")
    (tmp_path / "corpus/deep/c.jsonl").write_text('{"text": "c"}\n')
    (tmp_path / "corpus/a.txt").write_text("a")
    prepare("corpus", "all.h5", "--workers", 1)
    assert read_tokens(tmp_path / "all.h5").texts() == ["a", "b", "c"]


def test_max_documents(prepare, tmp_path):
    (tmp_path / "a.txt").write_text("1\n2\n3\n4\n")
    prepare("a.txt", "a.h5", "--document_separator", "line", "--max_documents", 3)
    assert read_tokens(tmp_path / "a.h5").texts() == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.txt", None, "missing.txt does not exist"),
        ("a.docx", b"text", ".docx files are not supported"),
        ("a.txt", b"", "contains no text"),
        ("a.txt", b"caf\xe9 au lait", "a.txt is not UTF-8"),
        ("a.txt", "caf\u00e9".encode()[:-1], "a.txt is not UTF-8"),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', "a.jsonl line 2 is not JSON (Expecting value, column 11): fix"),
        ("a.jsonl", b'{"text": "a"}\n["b"]\n', "a.jsonl line 2 is not a JSON object: fix"),
        ("a.jsonl", b'{"body": "a"}\n', "a.jsonl line 1 has no column 'text', only body"),
        ("a.jsonl", b'{"text": "a"}\n{"body": "a"}\n', "--skip_empty"),
        ("a.jsonl", b'{"text": 3}\n', "is int, not a string"),
        ("a.parquet", b"no parquet", "a.parquet cannot be read as Parquet"),
    ],
)
def test_bad_input_gets_one_sentence_and_leaves_nothing(prepare, tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    before = sorted(tmp_path.rglob("*"))
    assert message in prepare(name, "out.h5", fails=True).stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("row", "hinted"), [("{", False), ('{"body": "a"}', True)])
def test_how_to_pass_flags_is_shown_if_a_flag_helps(prepare, tmp_path, monkeypatch, row, hinted):
    monkeypatch.setenv("MPZERO_HOW_TO_PASS_FLAGS", "VARIABLE=value")
    (tmp_path / "a.jsonl").write_text(f"{row}\n")
    assert ("VARIABLE=value" in prepare("a.jsonl", "out.h5", fails=True).stderr) == hinted


@pytest.mark.parametrize("flags", [("--seq_length", 8), ("--seq_length", 8, "--format", "text")])
def test_a_missing_column_is_reported_before_flags_that_do_not_apply(prepare, tmp_path, flags):
    (tmp_path / "a.jsonl").write_text('{"foo": "a", "bar": "b"}\n')
    error = prepare("a.jsonl", "out.h5", *flags, fails=True).stderr
    assert "a.jsonl has no column 'text', only bar, foo" in error and "--seq_length" not in error
    (tmp_path / "a.jsonl").write_text("no JSON\n")
    error = prepare("a.jsonl", "out.h5", *flags, fails=True).stderr
    assert "a.jsonl line 1 is not JSON" in error and "--seq_length" not in error
    (tmp_path / "a.txt").write_text("a text")
    assert "--seq_length" in prepare("a.txt", "out.h5", *flags, fails=True).stderr


def test_empty_folder(prepare, tmp_path):
    (tmp_path / "corpus").mkdir()
    assert "contains no readable files" in prepare("corpus", "out.h5", fails=True).stderr


def test_no_network_names_the_local_alternatives(prepare, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    error = prepare("some/dataset", "out.h5", fails=True, apart=True).stderr
    assert "'some/dataset'" in error and "Hugging Face" in error
