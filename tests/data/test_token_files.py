"""A token file has checksums throughout."""

import h5py
import numpy as np
import pytest
import xxhash

from .conftest import prepare_module, read_tokens

TokenFile = prepare_module("token_file").TokenFile

TOKENS = (np.arange(1000) * 7919 % 65536).astype(np.uint16)
ATTRIBUTES = {"vocab_size": 65536, "eos_token_id": 7, "tokenizer": "naïve", "source": "text train"}


def check_checksums(path, block: int) -> None:
    """As xxhash computes them of the tokens that h5py reads."""
    with h5py.File(path) as file:
        tokens, table = file["tokens"], file["tokens_xxh3"]
        stored = tokens[:]
        assert tokens.attrs["xxh3_64"].decode() == xxhash.xxh3_64_hexdigest(stored.tobytes())
        assert table.attrs["block_size"] == block == tokens.chunks[0]
        blocks = [stored[begin : begin + block] for begin in range(0, len(stored), block)]
        assert list(table[:]) == [xxhash.xxh3_64_intdigest(part.tobytes()) for part in blocks]
        assert all(file[name].fletcher32 for name in ("tokens", "document_offsets", "tokens_xxh3"))
        for node in (file, tokens, table):
            for name in node.attrs:
                # One of variable length would lie in a heap, which has no checksum.
                assert not node.attrs.get_id(name).get_type().is_variable_str() if is_text(node, name) else True
        assert b"GCOL" not in path.read_bytes()


def is_text(node, name: str) -> bool:
    return isinstance(node.attrs.get_id(name).get_type(), h5py.h5t.TypeStringID)


@pytest.mark.parametrize("pieces", [[1000], [1, 63, 64, 65, 0, 807], [100] * 10])
def test_checksums_are_those_of_the_tokens_however_they_come(tmp_path, pieces):
    file = TokenFile(tmp_path / "a.h5", TOKENS.dtype, chunk=64)
    for begin, size in zip(np.cumsum([0, *pieces]), pieces, strict=False):
        file.append(TOKENS[begin : begin + size], np.array([size] if size else [], np.int64))
    file.commit(ATTRIBUTES, {"dataset": "x"})
    check_checksums(tmp_path / "a.h5", 64)
    assert np.array_equal(read_tokens(tmp_path / "a.h5").tokens, TOKENS)


def test_more_blocks_than_a_chunk_of_checksums(tmp_path):
    tokens = np.tile(TOKENS, 3)
    file = TokenFile(tmp_path / "a.h5", TOKENS.dtype, chunk=2)
    file.append(tokens[:2500], np.array([], np.int64))
    file.append(tokens[2500:], np.array([500]))
    file.commit(ATTRIBUTES, {"dataset": "x"})
    check_checksums(tmp_path / "a.h5", 2)
