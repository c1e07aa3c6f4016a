"""Which files of a folder are read: none is left out silently, and never most of them."""

import gzip
import json
import os

import pyarrow
import pyarrow.parquet
import pytest

from .conftest import prepare_module, read_tokens

split_of = prepare_module("selection").split_of


def fill(folder, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.txt", "train"),
        ("wiki.train.tokens", "train"),
        ("train-00000-of-00002.parquet", "train"),
        ("c4-train.00000-of-01024.json.gz", "train"),
        ("train01.jsonl", "train"),
        ("train 01.txt", "train"),
        ("Train (2).txt", "train"),
        ("my_valid.txt", "validation"),
        ("dev.jsonl", "validation"),
        ("eval.csv", "test"),
        ("en/test/0.txt", "test"),
        ("train/test.txt", "train"),  # the folder decides
        ("train-test/test.txt", "test"),
        ("a train journey.txt", None),
        ("trains.txt", None),
        ("restrained.txt", None),
        ("train-test.txt", None),
        ("the test of time/book.txt", None),
    ],
)
def test_a_split_is_a_full_part_of_a_name(name, split):
    assert split_of(name) == split


def test_a_book_about_trains_is_one_book_among_others(prepare, tmp_path):
    books = {f"book {i:02d}.txt": f"The text of book {i}." for i in range(20)} | {"a train journey.txt": "By rail"}
    fill(tmp_path / "books", books)
    process = prepare("books", "a.h5")
    assert sorted(read_tokens(tmp_path / "a.h5").texts()) == sorted(books.values())
    assert "read 21 files of books" in process.stdout


def test_most_bytes_are_never_left_out_for_a_name(prepare, tmp_path):
    books = {f"book {i:02d}.txt": f"The text of book {i}." for i in range(20)}
    fill(tmp_path / "books", books | {"train.txt": "By rail"})
    error = prepare("books", "a.h5", fails=True).stderr
    assert "Most of books" in error
    assert "book 00.txt" in error and "train.txt" in error
    assert "--files '*'" in error and "--split train" in error
    # Both remedies work as printed.
    prepare("books", "all.h5", "--files", "*")
    assert len(read_tokens(tmp_path / "all.h5").texts()) == 21
    process = prepare("books", "one.h5", "--split", "train")
    assert read_tokens(tmp_path / "one.h5").texts() == ["By rail"]
    assert "skipped 20 files" in process.stdout
    assert "and 16 more" in process.stdout and "its name contains no split" in process.stdout


def test_files_without_a_split_are_for_training_if_no_name_has_train(prepare, tmp_path):
    fill(tmp_path / "books", {"one.txt": "Number one", "two.txt": "Number two", "validation.txt": "valid"})
    process = prepare("books", "train.h5", "--validation_output", "validation.h5")
    assert read_tokens(tmp_path / "train.h5").texts() == ["Number one", "Number two"]
    assert read_tokens(tmp_path / "validation.h5").texts() == ["valid"]
    assert "validation.h5: read 1 file of books, 5 bytes (1 txt): validation.txt." in process.stdout


def test_a_large_test_split_is_left_out_only_on_request(prepare, tmp_path):
    fill(tmp_path / "corpus", {"train.txt": "few", "test.txt": "many more words than that"})
    assert "test.txt: belongs to split test" in prepare("corpus", "a.h5", fails=True).stderr
    process = prepare("corpus", "a.h5", "--split", "train")
    assert read_tokens(tmp_path / "a.h5").texts() == ["few"]
    assert "test.txt (25 bytes): belongs to split test" in process.stdout


def test_no_name_has_the_requested_split(prepare, tmp_path):
    fill(tmp_path / "books", {"one.txt": "one", "two.txt": "two"})
    error = prepare("books", "a.h5", "--split", "test", fails=True).stderr
    assert "file names contain no splits" in error and "--files" in error


def test_a_folder_of_several_kinds_is_read_completely(prepare, tmp_path):
    folder = tmp_path / "mixed"
    fill(
        folder,
        {"a.jsonl": '{"text": "from jsonl"}\n', "b.csv": 'id,text\n1,"from, csv"\n', "e.tsv": "text\nfrom tsv\n"},
    )
    with gzip.open(folder / "d.TXT.GZ", "wt") as file:
        file.write("from gz")
    with pyarrow.CompressedOutputStream(str(folder / "c.jsonl.zst"), "zstd") as file:
        file.write(json.dumps({"text": "from zst"}).encode() + b"\n")
    pyarrow.parquet.write_table(pyarrow.table({"text": ["from parquet"]}), folder / "f.parquet")
    process = prepare("mixed", "a.h5", "--workers", 1)
    kinds = ("jsonl", "csv", "zst", "gz", "tsv", "parquet")
    made = read_tokens(tmp_path / "a.h5").texts()
    assert made == ["from jsonl", "from, csv", "from zst", "from gz", "from tsv", "from parquet"], kinds
    assert "read 6 files of mixed" in process.stdout
    assert "(1 csv, 2 jsonl, 1 parquet, 1 tsv, 1 txt)" in process.stdout
    assert "skipped" not in process.stdout


@pytest.mark.parametrize("name", ["README.txt", "LICENSE.TXT", "readme.txt", "Citation.txt", "SHA256SUMS.txt"])
def test_descriptions_in_files_of_text_are_not_read(prepare, tmp_path, name):
    fill(tmp_path / "corpus", {"a.txt": "a", f"sub/{name}": "no data", "how to read me.txt": "b"})
    process = prepare("corpus", "a.h5")
    assert read_tokens(tmp_path / "a.h5").texts() == ["a", "b"]
    assert f"sub/{name} (7 bytes): describes the dataset" in process.stdout
    # If it is named, it is read.
    prepare(f"corpus/sub/{name}", "b.h5")
    prepare("corpus", "c.h5", "--files", f"sub/{name}")
    # It is also read if there are no other files.
    prepare("corpus/sub", "d.h5")
    for output in ("b.h5", "c.h5", "d.h5"):
        assert read_tokens(tmp_path / output).texts() == ["no data"]


def test_what_was_not_read_is_listed_with_the_reason(prepare, tmp_path):
    folder = tmp_path / "corpus"
    fill(folder, {"a.txt": "a text, longer than the rest", ".gitattributes": "*.txt\n", "LICENSE": "many" * 20})
    fill(folder, {"README.md": "many words" * 9, "cover.png": "png", "old.zip": "PK", "empty.txt": "", "plain": "x"})
    fill(folder, {".git/objects/pack.txt": "hidden"})
    os.mkfifo(folder / "pipe.txt")
    output = prepare("corpus", "a.h5").stdout
    assert read_tokens(tmp_path / "a.h5").texts() == ["a text, longer than the rest"]
    listed = output[output.index("corpus: skipped 9 files") :]
    for line in (
        "README.md (170 bytes): describes the dataset",
        ".git, .gitattributes (6 bytes): hidden",
        "cover.png (3 bytes): .png files are not supported",
        "old.zip (2 bytes): archives are not supported: unpack them",
        "plain (1 bytes): the format is unknown",
        "empty.txt (0 bytes): empty",
        "pipe.txt (0 bytes): neither a file nor a folder",
    ):
        assert line in listed, listed


def test_most_bytes_are_never_left_out_for_their_kind(prepare, tmp_path):
    fill(tmp_path / "corpus", {"a.txt": "a few", "b.docx": "much more than that", "c.docx": "and more"})
    error = prepare("corpus", "a.h5", fails=True).stderr
    assert "27 bytes in 2 files" in error
    assert "b.docx, c.docx" in error
    assert "--files '*.txt'" in error
    prepare("corpus", "a.h5", "--files", "*.txt")
    assert read_tokens(tmp_path / "a.h5").texts() == ["a few"]


def test_outputs_next_to_the_texts_do_not_count_as_missed(prepare, tmp_path):
    fill(tmp_path, {"a.txt": "a text"})
    prepare(".", "a.h5")
    assert "up to date" in prepare(".", "a.h5", "--if_missing").stdout
    process = prepare(".", "b.h5")
    assert read_tokens(tmp_path / "b.h5").texts() == ["a text"]
    assert "a.h5 (" in process.stdout and "HDF5" in process.stdout


def test_files_chooses_by_patterns(prepare, tmp_path):
    fill(tmp_path / "corpus", {"en/train.txt": "en train", "en/test.txt": "en test", "fr/train.txt": "fr train"})
    process = prepare("corpus", "a.h5", "--files", "en/*")
    assert read_tokens(tmp_path / "a.h5").texts() == ["en test", "en train"]
    assert "fr/train.txt (8 bytes): not selected by --files" in process.stdout
    prepare("corpus", "b.h5", "--files", "en/te*", "--files", "fr/*")
    assert read_tokens(tmp_path / "b.h5").texts() == ["en test", "fr train"]
    assert "matches --files 'de/*'" in prepare("corpus", "c.h5", "--files", "de/*", fails=True).stderr
    assert "--files selects" in prepare("corpus/en/test.txt", "c.h5", "--files", "*", fails=True).stderr


def test_classic_wikitext_is_accepted(prepare, tmp_path):
    article = " \n = {0} = \n \n Words of {0} . \n"
    names = {split: f"wikitext-2/wiki.{split}.tokens" for split in ("train", "valid", "test")}
    fill(tmp_path, {names["train"]: article.format("One") + article.format("Two") * 3})
    fill(tmp_path, {names["valid"]: article.format("Three"), names["test"]: article.format("Four")})
    prepare("wikitext-2", "train.h5", "--validation_output", "validation.h5")
    assert len(read_tokens(tmp_path / "train.h5").texts()) == 4
    assert [text.strip() for text in read_tokens(tmp_path / "validation.h5").texts()] == [
        "= Three = \n \n Words of Three ."
    ]
    prepare(names["test"], "test.h5")
    assert len(read_tokens(tmp_path / "test.h5").texts()) == 1


CARD = """---
license: mit
configs:
- config_name: en
  data_files:
  - split: train
    path: en/*.jsonl
  - split: validation
    path: en/held_out/*.jsonl
- config_name: fr
  data_files: "fr/**/*.jsonl"
- config_name: folder
  data_dir: test-de
---
Words.
"""


@pytest.fixture
def repository(tmp_path):
    """A data set like those on Hugging Face, with configurations."""
    names = ("en/1", "en/2", "en/held_out/3", "fr/4", "fr/deep/5", "test-de/train/6", "test-de/test/7")
    fill(tmp_path / "corpus", {f"{name}.jsonl": json.dumps({"text": name}) + "\n" for name in names})
    (tmp_path / "corpus/README.md").write_text(CARD)
    return tmp_path / "corpus"


def test_a_configuration_of_a_folder_is_used(prepare, tmp_path, repository):
    arguments = ("--dataset_config_name", "en", "--validation_output", "validation.h5")
    process = prepare("corpus", "en.h5", *arguments)
    assert read_tokens(tmp_path / "en.h5").texts() == ["en/1", "en/2"]
    assert read_tokens(tmp_path / "validation.h5").texts() == ["en/held_out/3"]
    assert "not in configuration en" in process.stdout
    prepare("corpus", "fr.h5", "--dataset_config_name", "fr")
    assert read_tokens(tmp_path / "fr.h5").texts() == ["fr/4", "fr/deep/5"]
    prepare("corpus", "de.h5", "--dataset_config_name", "folder")
    assert read_tokens(tmp_path / "de.h5").texts() == ["test-de/train/6"]


def test_which_configuration_is_never_guessed(prepare, tmp_path, repository):
    error = prepare("corpus", "a.h5", fails=True).stderr
    assert "en, fr, folder" in error and "--dataset_config_name" in error
    error = prepare("corpus", "a.h5", "--dataset_config_name", "de", fails=True).stderr
    assert "no configuration 'de', only en, fr, folder" in error
    (repository / "README.md").write_text(CARD.replace("config_name: fr", "config_name: fr\n  default: true"))
    prepare("corpus", "a.h5")
    assert read_tokens(tmp_path / "a.h5").texts() == ["fr/4", "fr/deep/5"]
    prepare("corpus", "all.h5", "--files", "*")
    assert len(read_tokens(tmp_path / "all.h5").texts()) == 7


def test_a_configuration_has_no_effect_if_none_is_declared(prepare, tmp_path):
    fill(tmp_path / "corpus", {"a.txt": "a", "README.md": "no head"})
    says = "has no configurations: --dataset_config_name en (DATASET_CONFIG_NAME) has no effect."
    for dataset in ("corpus", "corpus/a.txt"):
        output = f"{dataset.replace('/', '-')}.h5"
        process = prepare(dataset, output, "--dataset_config_name", "en", "--local_dataset", "true")
        assert process.stdout.count(f"{dataset} {says}") == 1, process.stdout
        assert read_tokens(tmp_path / output).texts() == ["a"]
    # It does not prevent --files from selecting files either.
    prepare("corpus", "b.h5", "--dataset_config_name", "en", "--files", "*.txt")
    assert read_tokens(tmp_path / "b.h5").texts() == ["a"]


def test_a_configuration_that_may_be_a_folder_is_refused(prepare, tmp_path):
    fill(tmp_path / "corpus", {"en/a.txt": "a", "fr/a.txt": "b", "README.md": "no head"})
    error = prepare("corpus", "a.h5", "--dataset_config_name", "en", fails=True).stderr
    assert "corpus has no configuration 'en'" in error
    assert "omit --dataset_config_name (DATASET_CONFIG_NAME)" in error
    assert "pass corpus/en as the dataset" in error


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("path: en/*.jsonl", "path: en/*.csv", "'en/*.csv' for split 'train', but no readable file matches"),
        ("path: en/*.jsonl", "path: ../*.jsonl", "outside the folder"),
        ("path: en/*.jsonl", "path: https://a.b/c.jsonl", "outside the folder"),
        ("- config_name: en", "- config_nam: en", "README.md cannot be read"),
        ("license: mit", "license: [", "README.md cannot be read"),
    ],
)
def test_a_configuration_that_cannot_be_followed(prepare, repository, old, new, message):
    (repository / "README.md").write_text(CARD.replace(old, new))
    assert message in prepare("corpus", "a.h5", "--dataset_config_name", "en", fails=True).stderr


def test_the_hub_is_not_asked_for_what_is_a_folder_here(prepare, tmp_path):
    fill(tmp_path / "corpus", {"a.txt": "a"})
    error = prepare("corpus", "a.h5", "--local_dataset", "false", fails=True).stderr
    assert "corpus" in error and "LOCAL_DATASET" in error


def test_unread_files_after_the_last_document_are_listed(prepare, tmp_path):
    fill(tmp_path / "corpus", {f"{i}.txt": f"text {i}" for i in range(5)})
    process = prepare("corpus", "a.h5", "--max_documents", 2)
    assert read_tokens(tmp_path / "a.h5").texts() == ["text 0", "text 1"]
    assert "read 2 files of corpus" in process.stdout
    assert "2.txt, 3.txt, 4.txt (18 bytes): beyond --max_documents 2" in process.stdout
