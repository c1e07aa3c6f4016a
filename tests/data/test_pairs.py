"""app/prepare_data.py makes token files of source and target pairs."""

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
    assert "cut sources: 1" in out and "cut targets: 1" in out


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
