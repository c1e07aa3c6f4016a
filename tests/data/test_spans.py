"""app/prepare_data.py --format spans: T5's span corruption."""

import h5py
import numpy as np
import pytest

from .conftest import REPOSITORY, prepare_module

CORPUS = REPOSITORY / "assets/tiny_corpus/train.txt"
EOS, PAD, VOCAB_SIZE = 256, 0, 384
FORMAT = ("--format", "spans", "--source_length", 64, "--vocab_size", VOCAB_SIZE)


def flax_mask(length: int, noise_density: float, mean_noise_span_length: float, random) -> np.ndarray:
    """random_spans_noise_mask of transformers' examples/flax/language-modeling/run_t5_mlm_flax.py, which draws from
    `random` instead of np.random."""
    num_noise_tokens = int(np.round(length * noise_density))
    num_nonnoise_tokens = length - num_noise_tokens
    num_noise_tokens = min(max(num_noise_tokens, 1), length - 1)
    num_noise_spans = int(np.round(min(num_noise_tokens, num_nonnoise_tokens) / mean_noise_span_length))
    num_noise_spans = max(num_noise_spans, 1)

    def random_segmentation(num_items, num_segments):
        mask_indices = np.arange(num_items - 1) < (num_segments - 1)
        random.shuffle(mask_indices)
        first_in_segment = np.pad(mask_indices, [[1, 0]])
        segment_id = np.cumsum(first_in_segment)
        _, segment_length = np.unique(segment_id, return_counts=True)
        return segment_length

    noise_span_lengths = random_segmentation(num_noise_tokens, num_noise_spans)
    nonnoise_span_lengths = random_segmentation(num_nonnoise_tokens, num_noise_spans)
    interleaved = np.reshape(np.stack([nonnoise_span_lengths, noise_span_lengths], axis=1), [num_noise_spans * 2])
    span_start_indicator = np.zeros((length,), dtype=np.int8)
    span_start_indicator[np.cumsum(interleaved)[:-1]] = True
    return np.equal(np.cumsum(span_start_indicator) % 2, 1)


@pytest.mark.parametrize("window", [5, 17, 70, 568, 1137])
def test_masks_are_those_of_transformers(window):
    spans = prepare_module("spans")
    for seed in range(20):
        mask = spans.noise_mask(window, np.random.RandomState(seed))
        assert np.array_equal(mask, flax_mask(window, 0.15, 3.0, np.random.RandomState(seed)))
        assert (len(mask), mask.sum()) == (window, spans.span_counts(window)[0])


def test_lengths_are_those_of_t5():
    """512 tokens of the source take 568 of the text and give 114 of the target (seqio, run_t5_mlm_flax.py)."""
    spans = prepare_module("spans")
    assert spans.window_of(512) == 568
    assert spans.lengths_of(568) == (512, 114)


def rows_of(path):
    with h5py.File(path) as file:
        length = int(file.attrs["packed_sequence_length"])
        return file["tokens"][:-1].reshape(-1, length), file["loss_mask"][:-1].reshape(-1, length), dict(file.attrs)


def restored(source: np.ndarray, target: np.ndarray) -> list[int]:
    """The window; checks that sentinels come in order, in both."""
    spans: dict[int, list[int]] = {}
    for token in target[:-1].tolist():
        if token > EOS:
            spans[token] = []
        else:
            spans[next(reversed(spans))].append(token)
    in_order = [VOCAB_SIZE - 1 - i for i in range(len(spans))]
    assert list(spans) == in_order and all(spans.values())
    assert [token for token in source.tolist() if token > EOS] == in_order
    return [token for kept in source[:-1].tolist() for token in spans.get(kept, [kept])]


def test_every_token_of_a_text_is_in_one_row_once_and_the_seed_gives_the_masks(prepare, tmp_path):
    out = prepare(CORPUS, "spans.h5", *FORMAT).stdout
    prepare(CORPUS, "text.h5")
    rows, mask, attributes = rows_of(tmp_path / "spans.h5")
    with h5py.File(tmp_path / "text.h5") as file:
        text = file["tokens"][:]
    assert [attributes[name] for name in ("source_length", "pad_token_id", "packed_sequence_length")] == [64, PAD, 78]
    windows = []
    for row, trained in zip(rows, mask, strict=True):
        source, target = row[:64], row[64:]
        source = source[source != PAD]
        assert (source[-1], target[-1], trained.tolist()) == (EOS, EOS, [0] * 64 + [1] * 14)
        windows += restored(source, target)
    assert windows == text[: len(windows)].tolist()
    assert 0 <= len(text) - len(windows) < 70
    assert f"{len(rows):,} pairs" in out
    # Masks follow from the seed.
    for name, flags in {"again": (), "other": ("--span_seed", 1)}.items():
        prepare(CORPUS, f"{name}.h5", *FORMAT, *flags)
    again, other = (rows_of(tmp_path / f"{name}.h5")[0] for name in ("again", "other"))
    assert np.array_equal(rows, again)
    assert rows.shape == other.shape and not np.array_equal(rows, other)
    positions = {tuple(np.flatnonzero(row > EOS)) for row in rows[:, :64]}
    assert len(rows) > 10_000 and len(positions) > 1600  # of the 1,711 partitions of 60 kept tokens into 3 spans


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--format", "spans"), "--source_length"),
        (("--format", "spans", "--source_length", 10**9, "--vocab_size", VOCAB_SIZE), "--source_length"),
        ((*FORMAT, "--seq_length", 80), "--seq_length 78"),
        (("--format", "spans", "--source_length", 64), "--vocab_size 260"),
        ((*FORMAT, "--source_prefix", "x"), "--source_prefix"),
        (("--span_seed", 1), "--span_seed"),
    ],
)
def test_refusals(prepare, tmp_path, flags, named):
    assert named in prepare(CORPUS, "a.h5", *flags, fails=True).stderr
    assert not (tmp_path / "a.h5").exists()


def test_a_tokenizer_without_sentinels_is_refused(prepare, small_bpe):
    flags = ("--format", "spans", "--source_length", 64, "--tokenizer", small_bpe)
    assert "<extra_id_0>" in prepare(CORPUS, "a.h5", *flags, fails=True).stderr
