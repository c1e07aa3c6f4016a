"""Several data sets, lists of JSON, rows without text, and columns of bytes become one token file."""

import gzip
import json
import random
import subprocess
import sys

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from .conftest import REPOSITORY, command, prepare_module, read_tokens

rows = prepare_module("rows")
streams = prepare_module("streams")
PrepareError = prepare_module("").PrepareError

LIST = [
    {"text": "one"},
    {"text": 'two, "quoted" ]}', "more": [1, {"text": "no"}]},
    {"text": "drei ü 漢字"},
    {"text": ""},
]
TEXTS = ["one", 'two, "quoted" ]}', "drei ü 漢字"]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ["a.json", "A.JSON", "a.json.gz"])
def test_a_list_of_objects_is_read(prepare, tmp_path, name, indent):
    data = b"\xef\xbb\xbf \n" + json.dumps(LIST, indent=indent, ensure_ascii=indent is None).encode() + b"\n"
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    process = prepare(name, "a.h5")
    assert read_tokens(tmp_path / "a.h5").texts() == TEXTS
    assert "1 of 4 rows have no text" in process.stdout


def read_list(path, block: int, monkeypatch) -> list[str]:
    monkeypatch.setattr(rows, "BLOCK", block)
    with streams.open_stream(path) as stream:
        return list(rows.rows_of_json(stream, path, "text", False))


@pytest.mark.parametrize("seed", range(5))
def test_a_list_is_the_same_however_it_is_read(tmp_path, monkeypatch, seed):
    """Blocks that end within escapes, characters, literals and numbers. The oracle is json.loads of the full file."""
    chosen = random.Random(seed)
    pieces = ["\\u00e4", "\\ud83d\\ude00", '\\"', "\\\\", "ü漢", "]", "}", ",", " text ", "\\n", "👩"]
    objects = []
    for _ in range(40):
        text = "".join(chosen.choice(pieces) for _ in range(chosen.randrange(60)))
        other = chosen.choice(["true", "null", "-1.25e-10", "[[], {}]", '"text"', '{"text": 1}'])
        objects.append(f'{{"other": {other},{chosen.choice(["", " ", chr(10)])}"text": "{text}"}}')
    (tmp_path / "a.json").write_text("[ " + " ,\n".join(objects) + "]", encoding="utf-8")
    expected = [row["text"] for row in json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))]
    for block in (1, 3, 17, 1000):
        assert read_list(tmp_path / "a.json", block, monkeypatch) == expected


@pytest.mark.parametrize("text", ["[]", " [ ] \n"])
def test_an_empty_list_has_no_rows(tmp_path, monkeypatch, text):
    (tmp_path / "a.json").write_text(text)
    assert read_list(tmp_path / "a.json", 1, monkeypatch) == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[{"text": "a"}, {"text": "b', "element 2"),
        ('[{"text": "a"}, {"text": b}, {"text": "c"}' + " " * 100 + "]", "element 2"),
        ('[{"text": "a"}, 5]', "element 2"),
        ('[{"text": "a"} {"text": "b"}]', "expected ']', found '{'"),
        ('[{"text": "a"}', "expected ']', found the end of the file"),
        ('[{"text": "a"}] x', "text after its list"),
        ('[{"text": "a", "text": "b"}]', "element 1 has a duplicate key"),
        ('[{"text": "a"}, {"text": "b", "n": ' + "1" * 5000 + "}]", "element 2 is not JSON"),
        ('[{"body": "a"}]', "element 1 has no column 'text', only body"),
        ("[" * 100_000, "element 1 is not JSON (nested too deeply)"),
    ],
)
@pytest.mark.parametrize("block", [1, 1000])
def test_a_damaged_list_names_the_element(tmp_path, monkeypatch, text, place, block):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(PrepareError) as caught:
        read_list(tmp_path / "a.json", block if len(text) < 1000 else 1 << 20, monkeypatch)
    assert place in str(caught.value) and str(tmp_path / "a.json") in str(caught.value)


def test_rows_without_the_column_are_skipped_on_request_and_counted(prepare, tmp_path):
    lines = [{"text": "one"}, {"body": "x"}, {"text": None}, {"text": ""}, {}, {"text": "two"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "b.json").write_text(json.dumps(lines))
    assert "a.jsonl line 2" in prepare("a.jsonl", "a.h5", fails=True).stderr
    for name in ("a.jsonl", "b.json"):
        process = prepare(name, "a.h5", "--skip_empty", "--overwrite")
        assert read_tokens(tmp_path / "a.h5").texts() == ["one", "two"]
        assert "4 of 6 rows have no text" in process.stdout
    assert "skip_empty" in prepare("b.json", "a.h5", "--if_missing", fails=True).stderr
    (tmp_path / "c.jsonl").write_text('{"text": 5}\n')  # no text, but a mistake
    assert "not a string" in prepare("c.jsonl", "c.h5", "--skip_empty", fails=True).stderr


BYTES = [b"one page", "zwölf Seiten".encode(), None]


@pytest.mark.parametrize(
    "kind", [pyarrow.binary(), pyarrow.large_binary(), pyarrow.dictionary(pyarrow.int32(), pyarrow.binary())]
)
def test_a_column_of_bytes_is_text_if_it_is_utf8(prepare, tmp_path, kind):
    array = pyarrow.array(BYTES, pyarrow.binary()).cast(kind)
    pyarrow.parquet.write_table(pyarrow.table({"text": array}), tmp_path / "a.parquet")
    prepare("a.parquet", "a.h5")
    assert read_tokens(tmp_path / "a.h5").texts() == ["one page", "zwölf Seiten"]


def test_bytes_that_are_no_text_name_row_and_column(prepare, tmp_path):
    table = pyarrow.table({"body": pyarrow.array([b"text"] * 1500 + [b"\xff\xfe"])})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    datasets.Dataset(table).save_to_disk(tmp_path / "saved")
    for name in ("a.parquet", "saved"):
        error = prepare(name, "a.h5", "--text_column", "body", fails=True).stderr
        assert "'body'" in error and f"{name} row 1,501" in error and "UTF-8" in error


def test_a_damaged_parquet_file_is_named_and_not_the_output(prepare, tmp_path):
    texts = [random.Random(i).randbytes(200).hex() for i in range(3000)]
    table, flags = pyarrow.table({"text": texts}), {"compression": "zstd", "write_page_checksum": True}
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", **flags)
    stored = (tmp_path / "a.parquet").read_bytes()
    footer = len(stored) - 8 - int.from_bytes(stored[-8:-4], "little")
    damages = [
        stored[:-100],
        stored[:1000] + bytes(2000) + stored[3000:],
        stored[:footer] + bytes(20) + stored[footer + 20 :],
        b"PAR1",
    ]
    for damaged in damages:
        (tmp_path / "a.parquet").write_bytes(damaged)
        error = prepare("a.parquet", "out.h5", fails=True).stderr
        assert "a.parquet" in error and "out.h5" not in error
        assert not (tmp_path / "out.h5").exists()


def write_sources(folder) -> None:
    (folder / "a.jsonl").write_text('{"text": "a1"}\n{"text": "a2"}\n')
    pyarrow.parquet.write_table(pyarrow.table({"body": ["b1"], "text": ["no"]}), folder / "b.parquet")
    (folder / "c").mkdir()
    (folder / "c/train.txt").write_text("c1")
    (folder / "c/test.txt").write_text("c2")


SEVERAL = ("a.jsonl", "b.parquet", "c")
COLUMN = ("--text_column", "b.parquet=body")


def test_several_data_sets_are_read_in_order_each_with_its_column(prepare, tmp_path):
    write_sources(tmp_path)
    process = prepare(*SEVERAL, "a.h5", *COLUMN)
    made = read_tokens(tmp_path / "a.h5")
    assert made.texts() == ["a1", "a2", "b1", "c1"]
    assert made.attributes["source"] == "a.jsonl b.parquet c train"
    for name in SEVERAL:
        assert f"a.h5: read 1 file of {name}" in process.stdout
    assert "c: skipped 1 file" in process.stdout
    named = [word for name in SEVERAL for word in ("--dataset", name)]
    prepare(*named, "--output", "b.h5", "--text_column", "body", "--text_column", "a.jsonl=text")
    assert read_tokens(tmp_path / "b.h5").texts() == ["a1", "a2", "b1", "c1"]
    for path in ("./b.parquet", tmp_path / "b.parquet"):  # however the path is written
        prepare(*SEVERAL, "d.h5", "--text_column", f"{path}=body", "--overwrite")
        assert read_tokens(tmp_path / "d.h5").texts() == ["a1", "a2", "b1", "c1"]
    assert "did you mean --text_column?" in prepare(*SEVERAL, "d.h5", "--text_colunm", "body", fails=True).stderr
    prepare(*SEVERAL, "c.h5", *COLUMN, "--max_documents", 2)
    assert read_tokens(tmp_path / "c.h5").texts() == ["a1", "a2"]
    prepare(*SEVERAL, "c.h5", *COLUMN, "--max_documents", 2, "--if_missing")


def test_several_data_sets_are_compared_with_what_a_file_was_made_from(prepare, tmp_path):
    write_sources(tmp_path)
    prepare(*SEVERAL, "a.h5", *COLUMN)
    assert "up to date" in prepare(*SEVERAL, "a.h5", *COLUMN, "--if_missing").stdout
    assert "text_field" in prepare(*SEVERAL, "a.h5", "--if_missing", fails=True).stderr
    assert "dataset" in prepare("a.jsonl", "b.parquet", "a.h5", *COLUMN, "--if_missing", fails=True).stderr
    (tmp_path / "c/train.txt").write_text("changed")
    assert "in c (1 file, 2 bytes before" in prepare(*SEVERAL, "a.h5", *COLUMN, "--if_missing", fails=True).stderr


def test_validation_of_several_data_sets(prepare, tmp_path):
    write_sources(tmp_path)
    prepare(*SEVERAL, "a.h5", *COLUMN, "--validation_output", "v.h5", "--validation_fraction", 0.4)
    train, validation = (read_tokens(tmp_path / name).texts() for name in ("a.h5", "v.h5"))
    assert sorted(train + validation) == ["a1", "a2", "b1", "c1"] and train and validation
    (tmp_path / "c/test.txt").rename(tmp_path / "c/validation.txt")
    error = prepare(*SEVERAL, "b.h5", *COLUMN, "--validation_output", "w.h5", fails=True).stderr
    assert "validation" in error and "a.jsonl" in error
    (tmp_path / "d").mkdir()
    (tmp_path / "d/train.txt").write_text("d1")
    (tmp_path / "d/validation.txt").write_text("d2")
    prepare("c", "d", "b.h5", "--validation_output", "w.h5")
    assert read_tokens(tmp_path / "b.h5").texts() == ["c1", "d1"]
    assert read_tokens(tmp_path / "w.h5").texts() == ["c2", "d2"]


@pytest.mark.parametrize(
    "arguments",
    [[], ["a.jsonl"], ["a", "b", "--dataset", "c"], ["a", "a", "o.h5"], ["a", "b", "o.h5", "--files", "*"]],
)
def test_arguments_that_do_not_fit_together(tmp_path, arguments):
    words = command(*arguments, "--tokenizer", "bytes")
    process = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert process.returncode == 2 and "Traceback" not in process.stderr


PEAK = """
import json, resource, runpy, sys
sys.argv = json.loads(sys.argv[1])
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_of(folder, *arguments) -> int:
    """Bytes of memory that one process needs."""
    words = [str(REPOSITORY / "app/prepare_data.py"), *map(str, arguments), "--workers", "1", "--overwrite"]
    process = subprocess.run(
        [sys.executable, "-c", PEAK, json.dumps(words)], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert process.returncode == 0, process.stderr
    return int(process.stdout.split()[-1]) * 1024


@pytest.mark.parametrize("kind", ["Llama 2", "WordPiece", "byte-level without spaces"])
def test_memory_does_not_grow_with_a_long_document(tmp_path, novel, kind):
    from .test_cutting import byte_level, llama2, word_piece

    tokenizer = {"Llama 2": llama2, "WordPiece": word_piece}.get(kind, byte_level)()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    eos = "[SEP]" if kind == "WordPiece" else "</s>"
    line = "北京是中国的首都。\n" if kind == "byte-level without spaces" else novel[:100_000]
    peaks = []
    for megabytes in (1, 7):
        (tmp_path / "a.txt").write_text(line * (megabytes * 1_000_000 // len(line.encode())), encoding="utf-8")
        peaks.append(peak_of(tmp_path, "a.txt", "a.h5", "--tokenizer", "tokenizer.json", "--eos_token", eos))
    # At once it takes about 70 bytes a byte.
    assert peaks[1] - peaks[0] < 5 * 6_000_000


def test_a_data_set_after_the_last_document_is_listed_as_not_read(prepare, tmp_path):
    (tmp_path / "a.txt").write_text("first")
    (tmp_path / "b.txt").write_text("second")
    flags = ("--max_documents", 1, "--text_column", "a.txt=text", "--text_column", "b.txt=body")
    lines = prepare("a.txt", "b.txt", "a.h5", *flags).stdout.splitlines()
    assert read_tokens(tmp_path / "a.h5").texts() == ["first"]
    assert [line for line in lines if "0 files" in line or "()" in line] == []
    assert [line.split(":")[0] for line in lines if "b.txt" in line] == ["b.txt", "  b.txt (6 bytes)"]


def test_a_column_of_a_dataset_that_is_not_an_input_gets_the_form_as_a_hint(prepare, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "x"}\n')
    assert "DATASET=NAME" in prepare("a.jsonl", "a.h5", "--text_column", "b.jsonl=body", fails=True).stderr
    assert "DATASET=NAME" not in prepare("a.jsonl", "a.h5", "--text_column", "title", fails=True).stderr
