"""Compressed files and files with columns: all of their text is read, or one sentence names the file."""

import gzip
import json
import subprocess

import pyarrow
import pyarrow.parquet
import pytest

from .conftest import read_tokens

TEXT = "A text of some length.\n" * 1000


def zstd(data: bytes) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


PACK = {".gz": gzip.compress, ".zst": zstd}


@pytest.mark.parametrize("ending", PACK)
def test_compressed_text(prepare, tmp_path, ending):
    # Two concatenated parts, as parallel compressors write them.
    (tmp_path / f"A.TXT{ending.upper()}").write_bytes(PACK[ending](TEXT.encode()) + PACK[ending](b"and more"))
    prepare(f"A.TXT{ending.upper()}", "a.h5")
    assert read_tokens(tmp_path / "a.h5").texts() == [TEXT + "and more"]


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("kind", ["txt", "jsonl"])
def test_compressed_file_that_was_cut_off(prepare, tmp_path, ending, kind):
    data = json.dumps({"text": TEXT}).encode() if kind == "jsonl" else TEXT.encode()
    (tmp_path / f"a.{kind}{ending}").write_bytes(PACK[ending](data)[:-7])
    error = prepare(f"a.{kind}{ending}", "out.h5", fails=True).stderr
    assert f"a.{kind}{ending}" in error
    assert not (tmp_path / "out.h5").exists()


@pytest.mark.parametrize("ending", PACK)
def test_file_that_is_not_compressed_or_damaged(prepare, tmp_path, ending):
    (tmp_path / f"a.txt{ending}").write_text("plain text")
    error = prepare(f"a.txt{ending}", "out.h5", fails=True).stderr
    assert f"a.txt{ending} is not a" in error and "out.h5" not in error
    packed = PACK[ending](TEXT.encode())
    (tmp_path / f"a.txt{ending}").write_bytes(packed + b"something else")
    error = prepare(f"a.txt{ending}", "out.h5", fails=True).stderr
    assert f"a.txt{ending} cannot be decompressed" in error and "out.h5" not in error


def test_zst_of_the_command_line_tool(prepare, tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    subprocess.run(["zstd", "-q", "-19", "--long=27", "a.txt"], cwd=tmp_path, check=True)
    prepare("a.txt.zst", "a.h5")
    assert read_tokens(tmp_path / "a.h5").texts() == [TEXT]


ROWS = [("1", "plain"), ("2", 'with, "quotes"'), ("3", "two\nlines"), ("4", ""), ("5", "zwölf 漢字")]


@pytest.mark.parametrize(("kind", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_csv_and_tsv_with_the_requested_column(prepare, tmp_path, kind, delimiter):
    quoted = [(number, '"' + text.replace('"', '""') + '"') for number, text in ROWS]
    lines = "\r\n".join(delimiter.join(row) for row in [("id", "body"), *quoted])
    (tmp_path / f"a.{kind}").write_bytes(b"\xef\xbb\xbf" + lines.encode())
    process = prepare(f"a.{kind}", "a.h5", "--text_column", "body")
    assert read_tokens(tmp_path / "a.h5").texts() == [text for _, text in ROWS if text]
    assert "1 of 5 rows have no text" in process.stdout
    error = prepare(f"a.{kind}", "b.h5", fails=True).stderr
    assert all(fact in error for fact in (f"a.{kind}", "'text'", "body, id", "--text_column"))


def test_a_field_longer_than_the_library_expects(prepare, tmp_path):
    long = "x" * 3_000_000
    (tmp_path / "a.csv").write_text(f"text\n{long}\nshort\n")
    prepare("a.csv", "a.h5")
    assert read_tokens(tmp_path / "a.h5").texts() == [long, "short"]


def test_key_of_jsonl_and_column_of_parquet(prepare, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "one", "text": "other"}\n')
    pyarrow.parquet.write_table(pyarrow.table({"body": ["two"], "text": ["other"]}), tmp_path / "b.parquet")
    for name, text in (("a.jsonl", "one"), ("b.parquet", "two")):
        prepare(name, "a.h5", "--text_column", "body", "--overwrite")
        assert read_tokens(tmp_path / "a.h5").texts() == [text]
    # The flag's former name.
    prepare("a.jsonl", "a.h5", "--text_field", "body", "--overwrite")
    assert read_tokens(tmp_path / "a.h5").texts() == ["one"]


def test_flags_without_effect_on_the_files_are_reported(prepare, tmp_path):
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.jsonl").write_text('{"text": "b"}\n')
    assert "--text_column body" in prepare("a.txt", "a.h5", "--text_column", "body").stdout
    output = prepare("b.jsonl", "b.h5", "--document_separator", "line").stdout
    assert "--document_separator" in output


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "ok"}\n{"text": "a \\ud83d b"}\n', r"a.jsonl line 2 contains \ud83d"),
        ("a.jsonl", b"[" * 100_000 + b"\n", "a.jsonl line 1 is not JSON (nested too deeply)"),
        ("a.jsonl", b'{"text": "a", "text": "b"}\n', "a.jsonl line 1 has a duplicate key 'text'"),
        ("a.txt", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "run 'git lfs pull'"),
        ("a.csv", b"id,text\n1,a\n2,b,c\n", "a.csv line 3 has 3 fields, but the header has 2 columns"),
        ("a.csv", b'text\n"never ends\n', "a.csv line 2 cannot be read as CSV"),
        ("a.csv", b"text\ncaf\xe9\n", "a.csv is not UTF-8"),
        ("a.csv", b"text,text\na,b\n", "a.csv has two columns 'text'"),
        ("a.txt", "UTF-16".encode("utf-16-le"), "a.txt is not UTF-8 text (6 of 12 characters are NUL"),
        ("a.parquet.gz", gzip.compress(b"x", mtime=0), "compressed Parquet files are not supported"),
        ("a.tar.gz", gzip.compress(b"x", mtime=0), "archives are not supported: unpack them"),
    ],
)
def test_bad_rows_get_one_sentence(prepare, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    assert message in prepare(name, "out.h5", fails=True).stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_key_within_the_text_or_another_object_is_not_a_second_one(prepare, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a \\"text\\" b", "meta": {"text": "c"}}\n')
    prepare("a.jsonl", "a.h5")
    assert read_tokens(tmp_path / "a.h5").texts() == ['a "text" b']


def test_a_lone_surrogate_with_a_tokenizer(prepare, tmp_path, small_bpe):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a \\udc00 b"}\n')
    assert "unpaired surrogate" in prepare("a.jsonl", "a.h5", "--tokenizer", small_bpe, fails=True).stderr


def test_nuls_are_mentioned(prepare, tmp_path):
    (tmp_path / "a.txt").write_text("some words\0" + "and more words" * 9)
    assert "a.txt contains 1 NUL" in prepare("a.txt", "a.h5").stdout
