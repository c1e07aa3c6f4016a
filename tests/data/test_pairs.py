"""app/prepare_data.py makes token files of source and target pairs."""

import json

import h5py
import numpy as np
import pytest

from .chat_rows import write_rows

PAD, EOS, SOURCE, TARGET = 0, 256, 12, 6
FORMAT = ("--format", "pairs", "--source_length", SOURCE, "--seq_length", SOURCE + TARGET)
ROWS = [{"source": "one two", "target": "1 2"}, {"source": "three, four, five", "target": "3, 4, 5"}]


def row_of(text: bytes, length: int) -> list[int]:
    ids = [*text[: length - 1], EOS]
    return ids + [PAD] * (length - len(ids))


def test_a_file_of_pairs(prepare, tmp_path):
    """Both are cut to their length and end with eos; padding is not trained."""
    write_rows(tmp_path / "a.jsonl", ROWS)
    out = prepare("a.jsonl", "a.h5", *FORMAT, "--source_prefix", "to: ").stdout
    with h5py.File(tmp_path / "a.h5") as file:
        tokens, mask, attributes = file["tokens"][:], file["loss_mask"][:], dict(file.attrs)
    expected = [
        row_of(b"to: one two", SOURCE) + row_of(b"1 2", TARGET),
        row_of(b"to: three, four, five", SOURCE) + row_of(b"3, 4, 5", TARGET),
    ]
    assert tokens[:-1].reshape(2, -1).tolist() == expected
    assert mask[:-1].reshape(2, -1).tolist() == [[0] * SOURCE + [1] * 4 + [0] * 2, [0] * SOURCE + [1] * TARGET]
    names = ("format_version", "packed_sequence_length", "source_length", "pad_token_id", "trained_tokens")
    assert [attributes[name] for name in names] == [3, SOURCE + TARGET, SOURCE, PAD, 10]
    assert "truncated sources: 1" in out and "truncated targets: 1" in out


def test_padding_is_trained_on_request(prepare, tmp_path):
    write_rows(tmp_path / "a.jsonl", ROWS)
    prepare("a.jsonl", "a.h5", *FORMAT, "--train_padding")
    with h5py.File(tmp_path / "a.h5") as file:
        mask = file["loss_mask"][:-1].reshape(2, -1)
    assert np.array_equal(mask, [[0] * SOURCE + [1] * TARGET] * 2)


def test_columns_are_named_and_empty_texts_counted(prepare, tmp_path):
    rows = [{"text": "a", "summary": "b"}, {"text": "a", "summary": ""}]
    write_rows(tmp_path / "a.jsonl", rows)
    out = prepare("a.jsonl", "a.h5", *FORMAT, "--source_column", "text", "--target_column", "summary").stdout
    assert "1 pair" in out and "rows without a source or a target: 1" in out
    assert "line 1" in prepare("a.jsonl", "b.h5", *FORMAT, fails=True).stderr


@pytest.mark.parametrize(
    ("rows", "flags", "named"),
    [
        (ROWS, ("--format", "pairs"), "--source_length"),
        (ROWS, (*FORMAT, "--source_prefix", "p" * SOURCE), "--source_prefix"),
        (ROWS, ("--format", "pairs", "--source_length", 9, "--seq_length", 9), "--source_length"),
        (ROWS, (*FORMAT, "--packing", "false"), "--packing"),
        ([{"text": "a"}], ("--source_column", "a"), "--source_column"),
        ([{"source": "a\0", "target": "b"}], FORMAT, "a.jsonl line 1"),
    ],
)
def test_refusals(prepare, tmp_path, rows, flags, named):
    write_rows(tmp_path / "a.jsonl", rows)
    assert named in prepare("a.jsonl", "a.h5", *flags, fails=True).stderr
    assert not (tmp_path / "a.h5").exists()


def test_a_tokenizer_without_padding_is_refused(prepare, tmp_path, small_bpe):
    write_rows(tmp_path / "a.jsonl", ROWS)
    assert "pad_token" in prepare("a.jsonl", "a.h5", *FORMAT, "--tokenizer", small_bpe, fails=True).stderr


def test_ids_are_those_of_a_t5_tokenizer(prepare, tmp_path):
    """The oracle is the library with the tokenizer's post-processor, which appends eos and truncates before it."""
    tokenizers = pytest.importorskip("tokenizers")
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *((letter, -3.0) for letter in "abcde")]
    library = tokenizers.Tokenizer(tokenizers.models.Unigram([*pieces, ("▁ab", -2.5), ("cd", -2.5)], 2, False))
    library.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    library.post_processor = tokenizers.processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    library.add_special_tokens(["<pad>", "</s>", "<unk>"])
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    library.save(str(folder / "tokenizer.json"))
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    rows = [{"source": "ab cd e", "target": "ab"}, {"source": "abc de abcd ab ecd a b c", "target": "x {ab} cd abc ab"}]
    write_rows(tmp_path / "a.jsonl", rows)
    prepare("a.jsonl", "a.h5", *FORMAT, "--tokenizer", folder)
    with h5py.File(tmp_path / "a.h5") as file:
        tokens, padding = file["tokens"][:-1].reshape(2, -1), file.attrs["pad_token_id"]
    assert padding == 0
    for row, expected in zip(tokens, rows, strict=True):
        for ids, text, length in ((row[:SOURCE], "source", SOURCE), (row[SOURCE:], "target", TARGET)):
            library.enable_truncation(length)
            library.enable_padding(length=length)
            assert ids.tolist() == library.encode(expected[text]).ids, text
