"""A token file is kept only if the same text would be read again; the text's bytes decide."""

import json
import os

import h5py
import pytest

from .conftest import prepare_module, read_tokens

fingerprints = prepare_module("fingerprints")


def replace_keeping_size_and_time(path, text: str) -> None:
    before = path.stat()
    path.write_text(text)
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def content_of(path) -> dict:
    return json.loads(read_tokens(path).attributes["arguments"])["content"]


@pytest.mark.parametrize("name", ["a.txt", "folder"])
def test_other_content_of_the_same_size_is_noticed(prepare, tmp_path, name):
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "a.txt", tmp_path / "folder/a.txt"):
        path.write_text("first")
    prepare(name, "a.h5", "--if_missing")
    assert "up to date" in prepare(name, "a.h5", "--if_missing").stdout
    replace_keeping_size_and_time(tmp_path / "folder/a.txt" if name == "folder" else tmp_path / name, "other")
    error = prepare(name, "a.h5", "--if_missing", fails=True).stderr
    assert "a.h5" in error and name in error and "1 file, 5 bytes" in error
    assert "--overwrite" in error
    assert read_tokens(tmp_path / "a.h5").texts() == ["first"]


def test_each_output_has_the_fingerprint_of_its_own_files(prepare, tmp_path):
    for name in ("train", "valid", "test"):
        (tmp_path / f"corpus-{name}.txt").write_text(f"text of {name}")
    (tmp_path / "corpus").mkdir()
    for path in tmp_path.glob("corpus-*.txt"):
        path.rename(tmp_path / "corpus" / path.name)
    arguments = ("corpus", "train.h5", "--validation_output", "validation.h5", "--split", "train", "--if_missing")
    prepare(*arguments)
    (tmp_path / "corpus/corpus-test.txt").write_text("this is not read")
    assert "up to date" in prepare(*arguments).stdout
    replace_keeping_size_and_time(tmp_path / "corpus/corpus-valid.txt", "TEXT of valid")
    assert "validation.h5" in prepare(*arguments, fails=True).stderr


def test_a_new_name_is_noticed(prepare, tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/a.txt").write_text("a")
    (tmp_path / "corpus/b.txt").write_text("b")
    prepare("corpus", "a.h5")
    (tmp_path / "corpus/a.txt").rename(tmp_path / "corpus/c.txt")
    assert "different names" in prepare("corpus", "a.h5", "--if_missing", fails=True).stderr
    (tmp_path / "corpus/d.txt").write_text("d")
    assert (
        "2 files, 2 bytes before, 3 files, 3 bytes now" in prepare("corpus", "a.h5", "--if_missing", fails=True).stderr
    )


def test_a_tokenizer_of_the_same_size_is_noticed(prepare, tmp_path, small_bpe):
    (tmp_path / "a.txt").write_text("some text")
    (tmp_path / "bpe").mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "bpe" / name).write_bytes((small_bpe / name).read_bytes())
    prepare("a.txt", "a.h5", "--tokenizer", "bpe")
    assert "up to date" in prepare("a.txt", "a.h5", "--tokenizer", "bpe", "--if_missing").stdout
    (tmp_path / "bpe/tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    assert "tokenizer" in prepare("a.txt", "a.h5", "--tokenizer", "bpe", "--if_missing", fails=True).stderr


def test_only_what_was_read_counts_with_max_documents(prepare, tmp_path):
    """A corpus of many terabytes is not read to its end for its first documents."""
    path = tmp_path / "a.jsonl"
    lines = [json.dumps({"text": f"{i:06d}" * 100}) for i in range(10_000)]
    path.write_text("\n".join(lines))
    arguments = ("a.jsonl", "a.h5", "--max_documents", 3, "--if_missing")
    prepare(*arguments)
    assert content_of(tmp_path / "a.h5")["read_bytes_of_last"] < path.stat().st_size / 2
    replace_keeping_size_and_time(path, "\n".join([*lines[:-1], lines[-1].upper()]))
    assert "up to date" in prepare(*arguments).stdout
    replace_keeping_size_and_time(path, "\n".join([lines[0].replace("0000", "ABCD"), *lines[1:]]))
    assert "or content" in prepare(*arguments, fails=True).stderr


def test_parquet_and_saved_data_sets(prepare, tmp_path):
    import datasets

    for text in ("first", "other"):
        data = datasets.Dataset.from_dict({"text": [text]})
        data.to_parquet(tmp_path / f"{text}.parquet")
        datasets.DatasetDict({"train": data}).save_to_disk(tmp_path / text)
    (tmp_path / "first.parquet").rename(tmp_path / "a.parquet")
    (tmp_path / "first").rename(tmp_path / "a")
    for name in ("a.parquet", "a"):
        prepare(name, f"{name}.h5")
    assert "up to date" in prepare("a", "a.h5", "--if_missing").stdout
    os.replace(tmp_path / "other.parquet", tmp_path / "a.parquet")
    (tmp_path / "a").rename(tmp_path / "gone")
    (tmp_path / "other").rename(tmp_path / "a")
    for name in ("a.parquet", "a"):
        assert f"{name}.h5" in prepare(name, f"{name}.h5", "--if_missing", fails=True).stderr


@pytest.fixture
def files(tmp_path):
    made = []
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"text of {name}")
        made.append(fingerprints.File(tmp_path / name, name, (tmp_path / name).stat().st_size))
    return made


def taken(files) -> dict:
    fingerprinter = fingerprints.Fingerprinter(files)
    for file in files:
        fingerprinter.add(None, fingerprints.digest_of(file.path))
    return fingerprinter.finish()


def count_readings(monkeypatch) -> list:
    read, digest_of = [], fingerprints.digest_of
    monkeypatch.setattr(
        fingerprints, "digest_of", lambda path, length=None: read.append(path) or digest_of(path, length)
    )
    return read


def test_files_at_rest_are_not_read_again(files, monkeypatch):
    monkeypatch.setattr(fingerprints, "SETTLED", 0)
    fingerprint = taken(files)
    read = count_readings(monkeypatch)
    assert fingerprints.is_unchanged(files, fingerprint)
    assert read == []
    os.utime(files[0].path)  # touched, not changed
    assert fingerprints.is_unchanged(files, fingerprint)
    assert len(read) == 2


def test_setting_the_time_back_does_not_hide_a_change(files, monkeypatch):
    monkeypatch.setattr(fingerprints, "SETTLED", 0)
    fingerprint = taken(files)
    replace_keeping_size_and_time(files[1].path, "TEXT of b")
    assert not fingerprints.is_unchanged(files, fingerprint)


def test_files_that_were_not_at_rest_are_read_again(files, monkeypatch):
    monkeypatch.setattr(fingerprints, "SETTLED", 1 << 62)
    fingerprint = taken(files)
    assert fingerprint["status"] is None
    read = count_readings(monkeypatch)
    assert fingerprints.is_unchanged(files, fingerprint)
    assert len(read) == 2


def test_a_file_that_changes_while_it_is_read_is_refused(files):
    fingerprinter = fingerprints.Fingerprinter(files)
    for file in files:
        fingerprinter.add(None, fingerprints.digest_of(file.path))
    files[0].path.write_text("TEXT of a")
    with pytest.raises(prepare_module("").PrepareError, match="a changed"):
        fingerprinter.finish()


def test_a_folder_is_not_taken_for_the_hub_nor_the_other_way_round(prepare, tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/a.txt").write_text("text")
    prepare("corpus", "a.h5")
    (tmp_path / "corpus").rename(tmp_path / "elsewhere")
    error = prepare("corpus", "a.h5", "--if_missing", fails=True).stderr
    assert "a.h5" in error and "Hugging Face dataset 'corpus'" in error
    (tmp_path / "elsewhere").rename(tmp_path / "corpus")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file.attrs["arguments"] = json.dumps({**json.loads(file.attrs["arguments"]), "content": None})
    error = prepare("corpus", "a.h5", "--if_missing", fails=True).stderr
    assert "a.h5" in error and "a local folder or file now has this name" in error
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file.attrs["arguments"] = "{}"
    assert "a.h5" in prepare("corpus", "a.h5", "--if_missing", fails=True).stderr
